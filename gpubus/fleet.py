"""`python -m gpubus.fleet`: all nodes of a fleet file in one process, with the production agents and simulated hardware.

Each node has its discovery, modelstore and deployer agent; they share one connection, one listener for engines and one
heartbeat message. SIGHUP re-reads the file: faults come and go, nodes change, fall silent and return. This is the only
module of the front door that imports services: it hosts their agents and nothing else of them.
Read next: gpubus/fleet_file.py (the format), gpubus/node_bus.py (how a node is cut off).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from pydantic import Field

from gpubus.fleet_blocks import BlockFeed
from gpubus.fleet_file import Fleet, NodePlan, expand, load
from gpubus.node_bus import NodeBus
from services.deployer.agent.pods import PodAgent
from services.deployer.drivers.engine_http import HttpProber
from services.deployer.drivers.simulated import SimulatedRuntime
from services.deployer.drivers.simulated_server import SimulatedHost
from services.discovery.agent.simulated import Identity, SimulatedCards, SimulatedHardware, SimulatedNode, Slot
from services.modelstore.agent.models import ModelAgent
from services.modelstore.drivers.simulated import SimulatedVault
from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import GpubusError
from shared.queries import Heartbeat
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.settings import BaseServiceSettings
from shared.telemetry.logging import get_logger
from shared.units import parse_count

log = get_logger(__name__)

ROLE = "fleet"
BEAT_SECONDS = 1.0
_SPREAD_NODES_A_SECOND = 100
"""Nodes that start or return together ask over as many seconds as this many a second take."""
_MIB = 1024 * 1024


class FleetSettings(BaseServiceSettings):
    """What the fleet process needs beside the base."""

    fleet_file: Path = Field(description="The fleet file; re-read on SIGHUP.")


class LiveNode:
    """One simulated node: three agents on a bus that can be cut."""

    def __init__(self, plan: NodePlan, fleet: SimulatedFleet) -> None:
        self.name = plan.name
        self.bus = NodeBus(fleet.bus, plan.name, fleet.clock)
        self.bus.cut = plan.silent
        hardware = hardware_of(plan)
        spread = fleet.spread
        self.discovery = SimulatedNode(hardware, fleet.identity, bus=self.bus, clock=fleet.clock, spread=spread)
        self.pods = PodAgent(
            node=plan.name,
            bus=self.bus,
            runtime=SimulatedRuntime(
                fleet.engines,
                clock=fleet.clock,
                start_seconds=fleet.file.engine_start_seconds,
                blocks=fleet.blocks.of_node(plan.name, self.bus),
            ),
            prober=fleet.prober,
            clock=fleet.clock,
            machine_id=hardware.machine_id,
            spread=spread,
        )
        self.models = ModelAgent(
            node=plan.name,
            bus=self.bus,
            vault=SimulatedVault(plan.name, int(fleet.file.link_mi_bps * _MIB)),
            clock=fleet.clock,
            machine_id=hardware.machine_id,
            spread=spread,
        )

    def loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What runs for it."""
        return {"discovery": self.discovery.run, "modelstore": self.models.run, "deployer": self.pods.run}

    async def become(self, plan: NodePlan) -> None:
        """Another plan from now on."""
        await self.bus.set_cut(cut=plan.silent)
        await self.discovery.become(hardware_of(plan))


class SimulatedFleet:
    """Every node of the file."""

    def __init__(self, path: Path, file: Fleet, identity: Identity, bus: BusClient, clock: Clock) -> None:
        self.path = path
        self.file = file
        self.identity = identity
        self.bus = bus
        self.clock = clock
        self.engines = SimulatedHost()
        self.prober = HttpProber()
        self.blocks = BlockFeed()
        self.nodes: dict[str, LiveNode] = {}
        self.reload = asyncio.Event()

    @property
    def spread(self) -> float:
        """Seconds over which a common start or reconnect is spread."""
        return max(0.2, sum(node.count for node in self.file.nodes) / _SPREAD_NODES_A_SECOND)

    @property
    def claimed(self) -> bool:
        """Whether every node that is not cut off speaks for itself."""
        return bool(self.nodes) and all(node.bus.cut or node.discovery.agent.speaks for node in self.nodes.values())

    async def run(self) -> None:
        """Bring the file to life, and again whenever it is re-read; for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._realise(tasks)
                await self.reload.wait()
                self.reload.clear()
                self._read()

    async def beat(self) -> None:
        """One message for all nodes, every second; for ever."""
        beats = 0
        while True:
            speaking = {
                name: node.discovery.agent.identity.incarnation
                for name, node in self.nodes.items()
                if node.discovery.agent.speaks and not node.bus.cut
            }
            if speaking:
                beats += 1
                incarnation = self.identity.incarnation
                await self.bus.tell(Heartbeat(source=ROLE, incarnation=incarnation, sequence=beats, nodes=speaking))
            await asyncio.sleep(BEAT_SECONDS)

    async def _realise(self, tasks: asyncio.TaskGroup) -> None:
        plans = {plan.name: plan for plan in expand(self.file)}
        for name, plan in plans.items():
            known = self.nodes.get(name)
            if known is not None:
                await known.become(plan)
                continue
            node = self.nodes[name] = LiveNode(plan, self)
            for loop, body in node.loops().items():
                tasks.create_task(_kept(name, loop, body))
        for name in self.nodes.keys() - plans.keys():
            await self.nodes[name].bus.set_cut(cut=True)
        log.info("fleet_realised", nodes=len(plans), silent=sum(node.bus.cut for node in self.nodes.values()))

    def _read(self) -> None:
        try:
            self.file = load(self.path)
        except GpubusError as error:
            log.warning("fleet_file_refused", reason=str(error))


def hardware_of(plan: NodePlan) -> SimulatedHardware:
    """A node of the file as the simulated driver takes it."""
    node = plan.node
    return SimulatedHardware(
        name=plan.name,
        cpu_milli=plan.cpu_milli,
        memory_bytes=plan.memory_bytes,
        os=node.os,
        arch=node.arch,
        labels=node.labels,
        cards=tuple(
            SimulatedCards(
                manufacturer=devices.manufacturer,
                product=devices.product,
                memory_mib=parse_count(devices.memory) // _MIB,
                cores=devices.cores,
                count=devices.count,
            )
            for devices in node.devices
        ),
        rdma=node.rdma,
        unhealthy=plan.unhealthy or {},
        missing=plan.missing,
        unreadable=plan.unreadable,
    )


async def _kept(node: str, loop: str, body: Callable[[], Awaitable[None]]) -> None:
    """One agent's loop; a world that fails is tried again, and is no other node's trouble."""
    while True:
        try:
            await body()
        except GpubusError as error:
            log.warning("agent_failed", node=node, agent=loop, code=error.code.value, reason=str(error))
        await asyncio.sleep(BEAT_SECONDS)


async def build(runtime: Runtime[FleetSettings]) -> Plan:
    """Read the file, take the fleet's slot, connect and wire."""
    settings, clock = runtime.settings, runtime.clock
    file = load(settings.fleet_file)
    identity = Slot(settings.data_dir / "discovery", ROLE).begin(ROLE, ROLE)
    bus = await runtime.connect_bus(ROLE)
    fleet = SimulatedFleet(settings.fleet_file, file, identity, bus, clock)
    await fleet.engines.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, fleet.reload.set)
    return Plan(
        name=ROLE,
        bus=bus,
        loops={"nodes": fleet.run, "beat": fleet.beat, "blocks": fleet.blocks.run},
        on_stop=(fleet.engines.close,),
        checks={"claimed": lambda: fleet.claimed},
    )


def main() -> NoReturn:
    """Run the fleet."""
    run_main(ROLE, FleetSettings, build)


if __name__ == "__main__":
    main()
