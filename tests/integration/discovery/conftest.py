"""A clean store and bus, the controller as a child process, and simulated agents inside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.discovery.agent.incarnation import Slot
from services.discovery.agent.node import NodeAgent
from services.discovery.domain.lifecycle import reason_of
from services.discovery.drivers.simulated import SimulatedCards, SimulatedHardware, SimulatedHost, SimulatedProbe
from shared.bus.client import BusClient
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.events import device as facts
from shared.messages.base import Fact
from shared.resources.core import Node
from shared.store.client import Store
from tests.support.children import Child
from tests.support.servers import NatsServer, RedisServer

FACTS: tuple[type[Fact], ...] = (
    facts.NodeJoined, facts.NodeLost, facts.NodeReturned, facts.NodeRemoved,
    facts.DeviceFound, facts.DeviceChanged, facts.DeviceDegraded, facts.DeviceLost,
)  # fmt: skip


class SimulatedAgent:
    """One node's agent, run as tasks of the test."""

    def __init__(self, bus: BusClient, directory: Path, hardware: SimulatedHardware, slot: str = "") -> None:
        self.host, self.probe = SimulatedHost(hardware), SimulatedProbe(hardware)
        self.slot = Slot(directory, slot or hardware.name)
        self.agent = NodeAgent(
            node=hardware.name,
            identity=self.slot.begin(hardware.machine_id, "boot"),
            host=self.host,
            probes=[self.probe],
            runtimes=["simulated"],
            bus=bus,
            clock=SystemClock(),
        )
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> SimulatedAgent:
        """Run, or run on after `silence`."""
        if not self.tasks:
            self.agent.listen()
        loops = (self.agent.keep_looking(0.1), self.agent.keep_place(), self.agent.keep_beating())
        self.tasks = [asyncio.ensure_future(loop) for loop in loops]
        return self

    async def silence(self) -> None:
        """Nothing more is said; the agent keeps what it knows."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def end(self) -> None:
        """The process is gone."""
        await self.silence()
        self.slot.release()

    def becomes(self, hardware: SimulatedHardware) -> None:
        """The node's hardware is another one from now on."""
        self.host.hardware = self.probe.hardware = hardware


class House:
    """Everything a test touches."""

    redis: RedisServer
    nats: NatsServer

    def __init__(self, store: Store, bus: BusClient, directory: Path, settings: dict[str, str]) -> None:
        self.store, self.bus, self.directory, self.settings = store, bus, directory, settings
        self.facts: list[tuple[str, str]] = []
        self.children: list[Child] = []
        self.agents: list[SimulatedAgent] = []

    def controller(self, name: str = "discovery-1", **settings: str) -> Child:
        return self.child(name, ("services.discovery",), **settings)

    def host_agent(self, node: str, data_dir: str = "host", name: str = "") -> Child:
        data = self.directory / data_dir
        data.mkdir(exist_ok=True)
        return self.child(
            name or f"agent-{node}-{data_dir}",
            ("services.discovery", "agent"),
            GPUBUS_NODE=node,
            GPUBUS_DATA_DIR=str(data),
        )

    def child(self, name: str, words: tuple[str, ...], **settings: str) -> Child:
        child = Child(self.directory, name, words, self.settings | settings)
        self.children.append(child)
        return child

    def simulated(self, name: str, *, cards: int = 0, slot: str = "", **more: object) -> SimulatedAgent:
        agent = SimulatedAgent(self.bus, self.directory / "slots", hardware(name, cards, **more), slot)
        self.agents.append(agent)
        return agent.start()

    async def node(self, name: str) -> Node | None:
        document = await self.store.get("Node", "", name)
        return document.read(Node) if document else None

    async def is_ready(self, name: str) -> bool:
        node = await self.node(name)
        return node is not None and reason_of(node) == "AgentReports"

    async def all_ready(self, names: list[str]) -> bool:
        taken = await self.store.snapshot(["Node"])
        ready = {d.name for d in taken.documents if reason_of(d.read(Node)) == "AgentReports"}
        return ready >= set(names)

    def count(self, fact: str, key: str = "") -> int:
        return sum(name == fact and (not key or known == key) for name, known in self.facts)


def hardware(name: str, cards: int = 0, **more: object) -> SimulatedHardware:
    kind = SimulatedCards(manufacturer="nvidia", product="NVIDIA A10G", memory_mib=23028, cores=80, count=cards)
    base = {"name": name, "cpu_milli": 32000, "memory_bytes": 128 << 30, "cards": [kind] if cards else []}
    return SimulatedHardware(**(base | more))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    redis, nats = RedisServer(), NatsServer()
    redis.start()
    nats.start()
    await migrate(nats.url)
    store = await Store.connect(url=redis.url, service="discovery", instance="test", clock=SystemClock())
    bus = await BusClient.connect(url=nats.url, user="test")
    settings = {"GPUBUS_NATS_URL": nats.url, "GPUBUS_REDIS_URL": redis.url, "GPUBUS_DATA_DIR": str(tmp_path)}
    house = House(store, bus, tmp_path, settings)
    house.redis, house.nats = redis, nats
    for cls in FACTS:
        await bus.on_fact(cls, _noted(house, cls))
    yield house
    for agent in house.agents:
        await agent.silence()
    for child in house.children:
        child.kill()
    await bus.close()
    await store.close()
    nats.close()
    redis.close()


def _noted(house: House, cls: type[Fact]) -> Callable[[Fact, int], None]:
    return lambda fact, _revision: house.facts.append((cls.__name__, fact.key))
