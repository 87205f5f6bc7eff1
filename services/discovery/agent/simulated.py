"""Discovery agents of simulated nodes: what the fleet process builds, node by node.

Must not read files or decide anything. Read next: gpubus/fleet.py.
"""

from __future__ import annotations

from services.discovery.agent.incarnation import Identity, Slot
from services.discovery.agent.node import NodeAgent
from services.discovery.drivers.simulated import SimulatedCards, SimulatedHardware, SimulatedHost, SimulatedProbe
from shared.bus.client import BusClient
from shared.clock import Clock

__all__ = ["Identity", "SimulatedCards", "SimulatedHardware", "SimulatedNode", "Slot"]


class SimulatedNode:
    """One simulated node's discovery agent; `become` changes its hardware."""

    def __init__(
        self, hardware: SimulatedHardware, fleet: Identity, *, bus: BusClient, clock: Clock, spread: float
    ) -> None:
        self._host, self._probe = SimulatedHost(hardware), SimulatedProbe(hardware)
        self.agent = NodeAgent(
            node=hardware.name,
            identity=fleet.of_simulated(hardware.name, hardware.machine_id, hardware.boot_id),
            host=self._host,
            probes=[self._probe],
            runtimes=["simulated"],
            bus=bus,
            clock=clock,
            spread=spread,
        )

    @property
    def hardware(self) -> SimulatedHardware:
        """What the node is now."""
        return self._host.hardware

    async def become(self, hardware: SimulatedHardware) -> None:
        """Another hardware from now on, reported when it differs."""
        self._host.hardware = self._probe.hardware = hardware
        await self.agent.look()

    async def run(self) -> None:
        """Hold the node and keep the controller informed; for ever. The fleet sends the heartbeats."""
        self.agent.listen()
        await self.agent.look()
        await self.agent.keep_place()
