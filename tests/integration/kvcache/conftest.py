"""A clean store and bus with a namespace, and kvcache as child processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared import subjects
from shared.bus.client import BusClient
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.envelope import Envelope
from shared.messages.base import Fact
from shared.messages.catalog import type_name
from shared.resources.base import Condition, get_condition
from shared.resources.kinds import KINDS
from shared.store.client import Store
from shared.store.documents import Commit, Put
from tests.support.children import Child
from tests.support.servers import NatsServer, RedisServer


class Room:
    """Everything a test touches."""

    def __init__(self, store: Store, bus: BusClient, directory: Path, settings: dict[str, str]) -> None:
        self.store, self.bus, self.directory, self.settings = store, bus, directory, settings
        self.children: list[Child] = []

    def controller(self, name: str = "kvcache-1", **settings: str) -> Child:
        child = Child(self.directory, name, ("services.kvcache",), self.settings | settings)
        self.children.append(child)
        return child

    async def write(
        self, verb: str, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any
    ) -> WriteAnswer:
        body = None
        if spec is not None:
            metadata = {"name": name, "namespace": namespace}
            body = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata, "spec": spec}
        request = WriteObject(verb=verb, kind=kind, namespace=namespace, name=name, object=body, **more)
        return await self.bus.write("kvcache", request, timeout=10)

    async def condition(self, kind: str, name: str, of: str, namespace: str = "") -> Condition | None:
        document = await self.store.get(kind, namespace, name)
        return get_condition(document.read(KINDS[kind].model).status.conditions, of) if document else None

    async def put(self, kind: str, name: str, namespace: str = "", **body: Any) -> None:
        """A document of another owner."""
        metadata = {"name": name, "namespace": namespace}
        full = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata, **body}
        await self.store.commit(Commit(puts=(Put(kind, namespace, name, full, None),)))

    async def publish(self, fact: Fact, number: int = 1) -> None:
        """A fact as its owner's relay would publish it."""
        kind = type(fact)
        envelope = Envelope(
            id=f"test.{kind.__name__}.{number}",
            source="/test",
            type=type_name(kind),
            time=SystemClock().now(),
            data=fact.model_dump(by_alias=True, mode="json"),
        )
        subject = subjects.fact(kind, fact.scope, fact.key)
        await self.bus.connection.jetstream().publish(subject, envelope.model_dump_json().encode())


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    redis, nats = RedisServer(), NatsServer()
    redis.start()
    nats.start()
    await migrate(nats.url)
    store = await Store.connect(url=redis.url, service="kvcache", instance="test", clock=SystemClock())
    bus = await BusClient.connect(url=nats.url, user="test")
    room = Room(store, bus, tmp_path, {"GPUBUS_NATS_URL": nats.url, "GPUBUS_REDIS_URL": redis.url})
    for namespace in ("blue", "red"):
        await room.put("Namespace", namespace)
    yield room
    for child in room.children:
        child.kill()
    await bus.close()
    await store.close()
    nats.close()
    redis.close()
