"""A clean store and bus, modelstore's controller and agents as child processes, a hub that misbehaves on demand.

Gateway's, scheduler's and discovery's documents and facts go through their own outboxes and real relays.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.modelstore.domain.reasons import RESOLVED
from services.modelstore.drivers.hub_folder import HubFolder
from shared.bus.client import BusClient
from shared.bus.relay import Relay
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import NotFound, Transient
from shared.events.device import NodeJoined, NodeRemoved
from shared.events.objects import GatewayObjectApplied, GatewayObjectRemoved
from shared.events.workload import WorkloadAdmitted
from shared.messages.base import Fact
from shared.queries import ReadSecret, SecretAnswer
from shared.resources.artifact import ModelArtifact, NodeModel, NodeModelStore
from shared.resources.base import get_condition
from shared.store.client import Store
from shared.store.documents import ANY, Commit, Delete, Put
from tests.integration.modelstore.origin import Origin
from tests.support.bus import kept
from tests.support.children import Child
from tests.support.outbox import published
from tests.support.servers import NatsServer, RedisServer, free_port
from tests.support.wait import eventually

SETTING = "model-artifact-huggingface-endpoint"
PATIENCE = 30.0


class House:
    """Everything a test touches."""

    redis: RedisServer
    nats: NatsServer
    origin: Origin

    def __init__(self, stores: dict[str, Store], bus: BusClient, directory: Path, settings: dict[str, str]) -> None:
        self.stores, self.bus, self.directory, self.settings = stores, bus, directory, settings
        self.store = stores["modelstore"]
        self.children: list[Child] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.secrets: dict[tuple[str, str], dict[str, str]] = {}
        self.hub_port = free_port()
        self.hub = HubFolder(directory / "models" / "hub")

    # Processes

    def controller(self, name: str = "modelstore-1", **settings: str) -> Child:
        return self._child(name, ("services.modelstore",), GPUBUS_HUB_PORT=str(self.hub_port), **settings)

    def agent(self, node: str = "n1", **settings: str) -> Child:
        data = self.directory / node
        data.mkdir(exist_ok=True)
        more = {"GPUBUS_NODE": node, "GPUBUS_DATA_DIR": str(data), **settings}
        return self._child(f"agent-{node}", ("services.modelstore", "agent"), **more)

    def _child(self, name: str, words: tuple[str, ...], **settings: str) -> Child:
        child = Child(self.directory, name, words, self.settings | settings)
        self.children.append(child)
        return child

    # What others write

    async def commit(self, service: str, commit: Commit) -> None:
        await self.stores[service].commit(commit)

    async def put(self, service: str, body: dict[str, Any], *facts: Fact) -> None:
        about = body["metadata"]
        about.setdefault("uid", f"uid-{about['name']}")
        put = Put(body["kind"], about.get("namespace", ""), about["name"], body, ANY)
        await self.commit(service, Commit(puts=(put,), facts=facts))

    async def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.put("gateway", body, GatewayObjectApplied(kind="Namespace", name=name, uid=name))

    async def remove_namespace(self, name: str, *, stays: bool = False) -> None:
        """Ask for a namespace's deletion; `stays`: only the fact of an earlier namespace of that name comes."""
        fact = GatewayObjectRemoved(kind="Namespace", name=name, uid=f"old-{name}")
        metadata = {"name": name} | ({} if stays else {"deletionTimestamp": "2026-11-30T12:00:00Z"})
        await self.put("gateway", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, fact)

    async def endpoint(self, url: str) -> None:
        """Where repositories are that the local hub does not hold."""
        metadata = {"name": SETTING, "namespace": "gpustack-system", "uid": "setting"}
        body = {"apiVersion": "gpustack.ai/v1", "kind": "Setting", "metadata": metadata, "spec": {"value": url}}
        fact = GatewayObjectApplied(kind="Setting", namespace="gpustack-system", name=SETTING, uid="setting")
        await self.put("gateway", body, fact)

    async def secret(self, name: str, token: str | None, namespace: str = "default") -> None:
        self.secrets[namespace, name] = {} if token is None else {"token": token}
        metadata = {"name": name, "namespace": namespace, "uid": f"secret-{name}"}
        fact = GatewayObjectApplied(kind="Secret", namespace=namespace, name=name, uid=f"secret-{name}")
        await self.put("gateway", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}, fact)

    async def node(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": f"node-{name}"}}
        await self.put("discovery", body, NodeJoined(name=name, uid=f"node-{name}"))

    async def remove_node(self, name: str, *, stays: bool = False) -> None:
        """`stays`: only the fact of an earlier node of that name comes."""
        deletes = () if stays else (Delete("Node", "", name),)
        await self.commit("discovery", Commit(deletes=deletes, facts=(NodeRemoved(name=name, uid=f"old-{name}"),)))

    async def admit(self, artifact: str, *nodes: str, name: str = "", finished: bool = False) -> None:
        """A workload that needs an artifact is on some nodes."""
        name = name or f"w-{artifact}"
        status: dict[str, Any] = {
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"nodeName": n, "pool": "p"} for n in nodes]}
        }
        if finished:
            status["conditions"] = [{"type": "Finished", "status": "True"}]
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "queueName": "q",
                "podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}],
                "artifact": artifact,
            },
            "status": status,
        }
        fact = WorkloadAdmitted(namespace="default", name=name, uid=f"uid-{name}", node=nodes[0], artifact=artifact)
        await self.put("scheduler", body, fact)

    # What users do

    async def artifact(
        self, name: str, repository: str, *, revision: str = "main", secret: str = "", namespace: str = "default",
        **spec: Any,
    ) -> WriteAnswer:  # fmt: skip
        source: dict[str, Any] = {"repository": repository, "revision": revision}
        if secret:
            source["secretRef"] = {"name": secret}
        body = {
            "apiVersion": "worker.gpustack.ai/v1",
            "kind": "ModelArtifact",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"source": {"huggingFace": source}, **spec},
        }
        write = WriteObject(verb="create", kind="ModelArtifact", namespace=namespace, name=name, object=body)
        return await self.bus.write("modelstore", write, timeout=10)

    async def remove(self, name: str, namespace: str = "default") -> WriteAnswer:
        write = WriteObject(verb="delete", kind="ModelArtifact", namespace=namespace, name=name)
        return await self.bus.write("modelstore", write, timeout=10)

    def import_files(self, repository: str, files: dict[str, bytes]) -> str:
        """Put files into the local hub as `hub add` does; the commit."""
        source = self.directory / "sources" / repository
        for path, content in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(content)
        return self.hub.add(source, repository)[0]

    # What one sees

    async def read(self, name: str, namespace: str = "default") -> ModelArtifact | None:
        found = await self.store.get("ModelArtifact", namespace, name)
        return found.read(ModelArtifact) if found else None

    async def told(self, name: str, namespace: str = "default") -> tuple[str, str, str]:
        """Status, reason and message of Resolved; empty before the first attempt."""
        artifact = await self.read(name, namespace)
        condition = get_condition(artifact.status.conditions, RESOLVED) if artifact else None
        return (condition.status, condition.reason, condition.message) if condition else ("", "", "")

    async def refused(self, name: str, reason: str, timeout: float = PATIENCE) -> str:
        """Wait for a reason; the message."""

        async def check() -> bool:
            status, told, _ = await self.told(name)
            assert (status, told) == ("False", reason)
            return True

        await eventually(check, timeout=timeout)
        return (await self.told(name))[2]

    async def resolved(self, name: str, namespace: str = "default") -> str:
        """Wait until an artifact is resolved; its digest."""

        async def check() -> str:
            artifact = await self.read(name, namespace)
            told = artifact.status.resolved if artifact else None
            assert told is not None, await self.told(name, namespace)
            return told.manifest_digest

        return await eventually(check, timeout=PATIENCE)

    async def node_store(self, node: str) -> NodeModelStore | None:
        found = await self.store.get("NodeModelStore", "", node)
        return found.read(NodeModelStore) if found else None

    async def copy(self, digest: str, node: str = "n1") -> NodeModel | None:
        store = await self.node_store(node)
        return next((m for m in (store.status.models if store else []) if m.digest == digest), None)

    async def copy_is(self, digest: str, state: str, node: str = "n1", reason: str = "") -> NodeModel:
        """Wait for a state of a copy."""

        async def check() -> NodeModel:
            found = await self.copy(digest, node)
            assert found is not None
            assert (found.state, found.reason) == (state, reason), found
            return found

        return await eventually(check, timeout=PATIENCE)

    async def facts(self) -> Counter[tuple[str, str, str]]:
        """How often each fact of artifacts is in the stream: (fact, artifact, node)."""
        await published(self.stores["modelstore"])
        counted: Counter[tuple[str, str, str]] = Counter()
        for message in await kept(self.nats, "FACTS_MODELSTORE"):
            parts = message.subject.split(".")
            if parts[2] == "artifact":
                data = orjson.loads(message.data)["data"]
                counted[parts[3], data["name"], data.get("node", "")] += 1
        return counted

    async def fact_count(self, *key: str) -> int:
        return (await self.facts())[key]  # type: ignore[index]


def content(name: str, size: int) -> bytes:
    """Bytes that look like nothing else and are the same each time."""
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


async def _kept_running(relay: Relay) -> None:
    while True:
        try:
            await relay.run()
        except Transient:
            await asyncio.sleep(0.2)


@pytest.fixture
def origin() -> Iterator[Origin]:
    origin = Origin()
    yield origin
    origin.close()


@pytest.fixture
async def house(tmp_path: Path, origin: Origin) -> AsyncIterator[House]:
    redis, nats = RedisServer(), NatsServer()
    redis.start()
    nats.start()
    await migrate(nats.url)
    clock = SystemClock()
    stores = {
        service: await Store.connect(url=redis.url, service=service, instance="test", clock=clock)
        for service in ("modelstore", "gateway", "scheduler", "discovery")
    }
    bus = await BusClient.connect(url=nats.url, user="test")
    settings = {"GPUBUS_NATS_URL": nats.url, "GPUBUS_REDIS_URL": redis.url, "GPUBUS_DATA_DIR": str(tmp_path)}
    house = House(stores, bus, tmp_path, settings)
    house.redis, house.nats, house.origin = redis, nats, origin

    async def secret(question: ReadSecret) -> SecretAnswer:
        found = house.secrets.get((question.namespace, question.name))
        if found is None:
            raise NotFound("no such Secret")
        return SecretAnswer(data=found)

    await bus.answer(ReadSecret, "*", secret)
    for service in ("gateway", "scheduler", "discovery"):
        house.tasks.append(asyncio.ensure_future(_kept_running(Relay(stores[service], bus, clock))))
    await house.namespace("default")
    await house.endpoint(origin.url)
    yield house
    for child in house.children:
        child.kill()
    for task in house.tasks:
        task.cancel()
    await asyncio.gather(*house.tasks, return_exceptions=True)
    await bus.close()
    for store in stores.values():
        await store.close()
    nats.close()
    redis.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    house = getattr(item, "funcargs", {}).get("house")
    if report.when == "call" and report.failed and house is not None:
        for child in house.children:
            text = child.log_path.read_text(errors="replace") if child.log_path.exists() else ""
            report.sections.append((f"log of {child.name}", text[-6000:]))
