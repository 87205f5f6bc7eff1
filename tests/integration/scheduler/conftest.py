"""A clean store and bus, the scheduler as child processes, and the owners around it played by the test.

Discovery's and deployer's documents, facts and commands go through their own outboxes and real relays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from services.scheduler.domain import status
from services.scheduler.domain.ledger import Holding
from shared.bus.client import BusClient
from shared.bus.relay import Relay
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.errors import Transient, Unavailable
from shared.events.device import NodeJoined, NodeLost, NodeRemoved, NodeReturned
from shared.events.objects import DiscoveryObjectApplied, GatewayObjectApplied, GatewayObjectRemoved
from shared.events.pool import CapacityFreed, PoolFormed, PoolResized, PoolRetired
from shared.events.workload import (
    WorkloadAdmitted,
    WorkloadCancelled,
    WorkloadFinished,
    WorkloadHeld,
    WorkloadPreempted,
    WorkloadQueued,
)
from shared.messages.base import Fact
from shared.reports import PodsReported, PodState
from shared.resources.kinds import KINDS
from shared.resources.pool import entrance
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import ANY, Commit, Delete, Document, Put
from tests.support.children import Child
from tests.support.outbox import published
from tests.support.servers import NatsServer, RedisServer
from tests.support.wait import eventually

FACTS: tuple[type[Fact], ...] = (
    PoolFormed, PoolResized, PoolRetired, CapacityFreed, WorkloadQueued, WorkloadHeld, WorkloadAdmitted,
    WorkloadPreempted, WorkloadFinished, WorkloadCancelled,
)  # fmt: skip
A10G_POOL = "gpustack--nvidia-a10g-linux-amd64"
CPU_POOL = "gpustack--generic-linux-amd64"
GPU = "nvidia.com/gpu"
CARD = 1_600_000
T = TypeVar("T")


class House:
    """Everything a test touches."""

    redis: RedisServer
    nats: NatsServer

    def __init__(self, stores: dict[str, Store], bus: BusClient, directory: Path, settings: dict[str, str]) -> None:
        self.stores, self.bus, self.directory, self.settings = stores, bus, directory, settings
        self.store = stores["scheduler"]
        self.facts: list[Fact] = []
        self.children: list[Child] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._sequence = 0

    def scheduler(self, name: str = "scheduler-1", **settings: str) -> Child:
        child = Child(self.directory, name, ("services.scheduler",), self.settings | settings)
        self.children.append(child)
        return child

    async def commit(self, service: str, commit: Commit) -> None:
        """Commit as a service; a store that began a new epoch is joined first."""
        for _ in range(20):
            try:
                await self.stores[service].commit(commit)
            except Transient:
                await asyncio.sleep(0.1)
            else:
                return
        raise AssertionError("the store does not come back")

    async def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        fact = GatewayObjectApplied(kind="Namespace", name=name, uid=name)
        await self.commit("gateway", Commit(puts=(Put("Namespace", "", name, body, None),), facts=(fact,)))

    async def remove_namespace(self, name: str) -> None:
        found = await self.store.get("Namespace", "", name)
        assert found is not None
        body = {**found.body, "metadata": {**found.body["metadata"], "deletionTimestamp": "2026-11-30T12:00:00Z"}}
        fact = GatewayObjectRemoved(kind="Namespace", name=name, uid=found.uid)
        await self.commit("gateway", Commit(puts=(Put("Namespace", "", name, body, found.revision),), facts=(fact,)))

    async def node(self, name: str, *, cards: int = 0, confirmed: bool = True, **more: Any) -> None:
        """A node joins (or changes), and its agent has told that nothing runs there."""
        puts = [Put("Node", "", name, node_body(name, **more), ANY)]
        if cards:
            puts.append(Put("Devices", "", name, devices_body(name, cards), ANY))
        await self.commit("discovery", Commit(puts=puts, facts=(NodeJoined(name=name, uid=f"node-{name}"),)))
        if confirmed:
            await self.report(name)
            await eventually(lambda: self.is_confirmed(name), timeout=30)

    async def change_node(self, name: str, change: Callable[[dict[str, Any]], None], fact: Fact | None = None) -> None:
        found = await self.store.get("Node", "", name)
        assert found is not None
        body = {**found.body, "spec": dict(found.body.get("spec") or {}), "status": dict(found.body["status"])}
        change(body)
        fact = fact or DiscoveryObjectApplied(kind="Node", name=name, uid=found.uid)
        await self.commit("discovery", Commit(puts=(Put("Node", "", name, body, found.revision),), facts=(fact,)))

    async def lose(self, name: str) -> None:
        await self.change_node(name, _ready("Unknown"), NodeLost(name=name, uid=name))

    async def find(self, name: str) -> None:
        await self.change_node(name, _ready("True"), NodeReturned(name=name, uid=name))

    async def remove_node(self, name: str) -> None:
        deletes = [Delete("Node", "", name)]
        if await self.store.get("Devices", "", name):
            deletes.append(Delete("Devices", "", name))
        await self.commit("discovery", Commit(deletes=deletes, facts=(NodeRemoved(name=name, uid=name),)))

    async def report(
        self, node: str, *pods: PodState, epoch: str = "", incarnation: str = "i1", sequence: int = 0
    ) -> None:
        """What an agent tells; with a `sequence` it is one that was told then and arrives now."""
        self._sequence += 1
        told = PodsReported(
            node=node,
            incarnation=incarnation,
            sequence=sequence or self._sequence,
            epoch=epoch or self.store.epoch,
            pods=list(pods),
        )
        await _until_connected(lambda: self.bus.report(told))

    async def is_confirmed(self, node: str) -> bool:
        found = await self.store.get("Devices", "", node)
        return found is not None and (found.body.get("status") or {}).get("ledgerEpoch") == self.store.epoch

    async def submit(
        self, name: str, *, cards: int = 0, namespace: str = "default", uid: str = "", **more: Any
    ) -> None:
        await self.commit("deployer", Commit(commands=(submission(name, cards, namespace, uid, **more),)))

    async def cancel(self, name: str, namespace: str = "default", uid: str = "", outcome: str = "Cancelled") -> None:
        order = CancelWorkload(namespace=namespace, name=name, uid=uid or f"uid-{name}", outcome=outcome)
        await self.commit("deployer", Commit(commands=(order,)))

    async def write(
        self, verb: str, kind: str, name: str, body: Any = None, namespace: str = "", **more: Any
    ) -> WriteAnswer:
        if body is not None:
            metadata = {"name": name, "namespace": namespace, **body.pop("metadata", {})}
            body = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata, **body}
        request = WriteObject(verb=verb, kind=kind, namespace=namespace, name=name, object=body, **more)
        return await _until_connected(lambda: self.bus.write("scheduler", request, timeout=30))

    async def workload(self, name: str, namespace: str = "default") -> Document | None:
        return await self.store.get("Workload", namespace, name)

    async def place(self, name: str, namespace: str = "default") -> Holding | None:
        found = await self.workload(name, namespace)
        held = status.holdings(found.body) if found is not None else ()
        return held[0] if held else None

    async def reason(self, name: str, namespace: str = "default") -> str:
        found = await self.workload(name, namespace)
        return status.told(found.body)[0] if found is not None else ""

    async def message(self, name: str, namespace: str = "default") -> str:
        found = await self.workload(name, namespace)
        return status.told(found.body)[1] if found is not None else ""

    async def admitted(self, name: str, namespace: str = "default", timeout: float = 30) -> Holding:
        return await eventually(lambda: self.place(name, namespace), timeout=timeout)

    async def waits_for(self, name: str, reason: str, timeout: float = 30) -> str:
        async def told() -> bool:
            return await self.reason(name) == reason

        await eventually(told, timeout=timeout)
        return await self.message(name)

    async def holdings(self) -> list[Holding]:
        """Everything that live workloads hold."""
        taken = await self.store.snapshot(["Workload"])
        return [holding for document in taken.documents for holding in status.holdings(document.body)]

    async def ledger(self, node: str) -> dict[str, int]:
        """What the ledger says is used, by field."""
        stored = await self.store.read_hash(keys.ledger(node))
        shown = {k: v for k, v in stored.items() if k not in {"epoch", "changes"} and ":" not in k}
        return {name: int(value) for name, value in shown.items() if int(value)}

    async def check_ledgers(self, *nodes: str) -> None:
        """Every ledger equals what live workloads hold; no card is held twice."""
        held: dict[str, dict[str, int]] = {node: {} for node in nodes}
        for holding in await self.holdings():
            for name, amount in holding.amounts().items():
                sums = held.setdefault(holding.node, {})
                sums[name] = sums.get(name, 0) + amount
        for node, sums in held.items():
            assert await self.ledger(node) == sums, node
            assert all(amount <= CARD for name, amount in sums.items() if name not in {"cpu", "memory"})

    async def stored_facts(self, cls: type[Fact]) -> list[str]:
        """Keys of every fact of a class in the stream, repeats included."""
        await published(self.store)
        info = await self.bus.connection.jetstream().stream_info("FACTS_SCHEDULER", subjects_filter=">")
        prefix = f"gpubus.evt.{cls.AGGREGATE}.{cls.FACT}.v1."
        found = []
        for subject, count in (info.state.subjects or {}).items():
            if subject.startswith(prefix):
                found += [subject.rpartition(".")[2]] * count
        return sorted(found)

    def heard(self, cls: type[Fact], **about: Any) -> list[Fact]:
        """Facts of a class that were published since the test began."""
        return [f for f in self.facts if isinstance(f, cls) and all(getattr(f, k) == v for k, v in about.items())]


def _ready(value: str) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        body["status"]["conditions"] = [{"type": "Ready", "status": value, "reason": "x"}]

    return change


def node_body(
    name: str, *, cpu: str = "32", memory: str = "128Gi", labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    system = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {**system, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory},
            "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReports"}],
        },
    }


def devices_body(name: str, cards: int) -> dict[str, Any]:
    accelerators = [
        {"id": f"{name}-gpu-{i}", "index": i, "status": {"logicalSliced": {"count": 128}}} for i in range(cards)
    ]
    group = {
        "id": "a10g", "manufacturer": "nvidia", "name": "NVIDIA A10G", "memory": 23028, "cores": 80,
        "accelerators": accelerators,
    }  # fmt: skip
    return {
        "apiVersion": "worker.gpustack.ai/v1", "kind": "Devices", "metadata": {"name": name, "uid": f"devices-{name}"},
        "spec": {"groups": [group]},
    }  # fmt: skip


def spec(
    cards: int = 0, *, pool: str = A10G_POOL, cpu: str = "", pod: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    limits: dict[str, Any] = {GPU: str(cards)} if cards else {}
    if cpu:
        limits["cpu"] = cpu
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}], **(pod or {})}}
    return {"queueName": entrance(pool), "podSets": [{"template": template}], **more}


def submission(
    name: str, cards: int = 0, namespace: str = "default", uid: str = "", *, owned: bool = True, **more: Any
) -> SubmitWorkload:
    owner = {"owner_kind": "ModelDeployment", "owner_name": "md", "owner_uid": "md-uid"} if owned else {}
    body = more.pop("body", None) or spec(cards, **more)
    return SubmitWorkload(namespace=namespace, name=name, uid=uid or f"uid-{name}", spec=body, **owner)


def a_pod(workload: str, node: str, *cards: int, uid: str = "", phase: str = "Running") -> PodState:
    devices = [f"{node}-gpu-{card}" for card in cards]
    return PodState(
        uid=uid or f"pod-{workload}", namespace="default", name=workload, workload=workload, devices=devices,
        credits=CARD if devices else 0, phase=phase,
    )  # fmt: skip


async def _until_connected(call: Callable[[], Awaitable[T]]) -> T:
    """As any client: a bus that is away is asked again."""
    for _ in range(60):
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.5)
    return await call()


async def _kept_running(relay: Relay) -> None:
    while True:
        try:
            await relay.run()
        except Transient:
            await asyncio.sleep(0.2)


@pytest.fixture
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    redis, nats = RedisServer(), NatsServer(getattr(request.module, "PINGS", ""))
    redis.start()
    nats.start()
    await migrate(nats.url)
    clock = SystemClock()
    stores = {
        service: await Store.connect(url=redis.url, service=service, instance="test", clock=clock)
        for service in ("scheduler", "discovery", "deployer", "gateway")
    }
    bus = await BusClient.connect(url=nats.url, user="test")
    settings = {"GPUBUS_NATS_URL": nats.url, "GPUBUS_REDIS_URL": redis.url, "GPUBUS_DATA_DIR": str(tmp_path)}
    house = House(stores, bus, tmp_path, settings)
    house.redis, house.nats = redis, nats
    for cls in FACTS:
        await bus.on_fact(cls, lambda fact, _revision: house.facts.append(fact))
    for service in ("discovery", "deployer", "gateway"):
        house.tasks.append(asyncio.ensure_future(_kept_running(Relay(stores[service], bus, clock))))
    await house.namespace("default")
    yield house
    for task in house.tasks:
        task.cancel()
    await asyncio.gather(*house.tasks, return_exceptions=True)
    for child in house.children:
        child.kill()
    await bus.close()
    for store in stores.values():
        await store.close()
    nats.close()
    redis.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    house = getattr(item, "funcargs", {}).get("house")
    if report.when == "call" and report.failed and house is not None:
        for child in house.children:
            text = child.log_path.read_text(errors="replace") if child.log_path.exists() else ""
            report.sections.append((f"log of {child.name}", text[-6000:]))
