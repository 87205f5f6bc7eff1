"""One node's discovery agent: claims the node, reports what is there when it changed, says every second that it lives.

Level-triggered: it asks every 10 s (and on connect and on a wake) whether the controller knows its claim and its last
report, and says again what is not known. Must not keep state that a restart would lose, nor speak for a node that
another agent holds. Read next: app.py, which runs one; gpubus/fleet.py, which runs many.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from services.discovery.agent.incarnation import Identity
from services.discovery.domain.known import KnownCards
from services.discovery.domain.liveness import BEAT_SECONDS
from services.discovery.ports import AcceleratorProbe, HostFacts, HostProbe
from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import GpubusError, Transient, Unavailable
from shared.faults import point
from shared.queries import ClaimAnswer, ClaimNode, Heartbeat
from shared.reports import NodeReported
from shared.resources.device import AcceleratorGroup
from shared.telemetry.logging import get_logger
from shared.units import format_milli, format_quantity

log = get_logger(__name__)

ASK_SECONDS = 10.0
RETRY_SECONDS = (0.2, 0.4, 1.0)
"""Pauses while nobody answers or takes the report; the last one repeats."""
_SETTLED_SECONDS = 5.0
"""A report older than this that the controller does not know is lost."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything a report says."""

    host: HostFacts
    groups: tuple[AcceleratorGroup, ...]


class NodeAgent:
    """One node on one bus client; any number of them in one process."""

    def __init__(
        self,
        *,
        node: str,
        identity: Identity,
        host: HostProbe,
        probes: Sequence[AcceleratorProbe],
        runtimes: Sequence[str],
        bus: BusClient,
        clock: Clock,
        spread: float = 0.2,
    ) -> None:
        """Nothing is sent before `keep_place` runs; `spread` is the most seconds a common reconnect is spread over."""
        self.node = node
        self.identity = identity
        self.speaks = False
        """Whether the controller accepted this start as the node's voice."""
        self._host = host
        self._probes = tuple(probes)
        self._runtimes = list(runtimes)
        self._bus = bus
        self._clock = clock
        self._spread = spread
        self._known = KnownCards()
        self._failing: set[str] = set()
        self._sight: Sight | None = None
        self._sequence = 0
        self._reported = 0
        self._reported_at = 0.0
        self._epoch = ""
        self._refusal = ""
        self._nudge = asyncio.Event()
        self._hurry = False

    def listen(self) -> None:
        """Be woken by the controller and by reconnects."""
        self._bus.on_wake(self.node, lambda _revision: self.nudge())
        self._bus.on_reconnect(self.nudge)

    def nudge(self) -> None:
        """Ask soon."""
        self._nudge.set()

    async def keep_place(self) -> None:
        """Hold the node and keep the controller informed; for ever."""
        await asyncio.sleep(random.uniform(0, self._spread))  # noqa: S311 - spreads a common start
        failures = 0
        while True:
            # A change goes out at once; whether we still speak for the node is asked again soon enough.
            known = (self._hurry and self.speaks) or await self.ask()
            self._hurry = False
            known = self.speaks and await self.tell() and known  # the bus keeps a report for a controller that is away
            failures = 0 if known else failures + 1
            pause = ASK_SECONDS if known else RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]
            if await self._nudged(pause * random.uniform(0.9, 1.1)) and not self._hurry:  # noqa: S311 - as above
                await self._nudged(random.uniform(0, self._spread))  # noqa: S311 - as above; a change ends it

    async def keep_looking(self, seconds: float) -> None:
        """Look at the hardware again and again; for ever."""
        while True:
            await self.look()
            await asyncio.sleep(seconds)

    async def keep_beating(self) -> None:
        """Say that the node lives; for ever."""
        beats = 0
        while True:
            if self.speaks:
                beats += 1
                await self._bus.tell(Heartbeat(source=self.node, incarnation=self.identity.incarnation, sequence=beats))
            await asyncio.sleep(BEAT_SECONDS)

    async def look(self) -> bool:
        """Look once; True when something changed, which then is told without delay."""
        try:
            host = await self._host.read()
        except Unavailable as error:
            self._fails("host", error)
            if self._sight is None:
                return False
            host = self._sight.host
        else:
            self._works("host")
        await asyncio.gather(*(self._probe(probe) for probe in self._probes))
        sight = Sight(host, self._known.groups())
        if sight == self._sight:
            return False
        self._sight = sight
        self._sequence += 1
        self._hurry = True
        self.nudge()
        return True

    async def ask(self) -> bool:
        """Claim the node; whether an answer said that this agent speaks for it."""
        claim = ClaimNode(
            node=self.node,
            machine_id=self.identity.machine_id,
            boot_id=self.identity.boot_id,
            incarnation=self.identity.incarnation,
            previous=list(self.identity.previous),
        )
        try:
            answer: ClaimAnswer = await self._bus.ask(claim)
        except Transient:
            return False  # nobody there now: who spoke goes on speaking
        except GpubusError as error:
            log.warning("claim_failed", node=self.node, code=error.code.value, reason=str(error))
            return False
        return self._answered(answer)

    async def tell(self) -> bool:
        """Report what is not reported yet; whether nothing is left to tell."""
        if self._sight is None:
            return False
        if self._reported == self._sequence:
            return True
        sequence, report = self._sequence, self._report(self._sight)
        point("discovery-agent.before-report")
        try:
            await self._bus.report(report)
        except GpubusError as error:
            log.warning("report_not_stored", node=self.node, code=error.code.value)
            return False
        self._reported, self._reported_at = sequence, self._clock.monotonic()
        return True

    def _answered(self, answer: ClaimAnswer) -> bool:
        refusal = "" if answer.accepted else answer.reason
        if refusal and refusal != self._refusal:
            log.warning("claim_refused", node=self.node, reason=answer.reason, message=answer.message)
        elif answer.accepted and not self.speaks:
            log.info("node_claimed", node=self.node, reason=answer.reason)
        self.speaks, self._refusal = answer.accepted, refusal
        if not answer.accepted:
            return False
        waited = self._clock.monotonic() - self._reported_at
        forgotten = answer.observed_sequence < self._reported and waited > _SETTLED_SECONDS
        renewed = bool(self._epoch) and answer.epoch != self._epoch
        self._epoch = answer.epoch
        if self._reported and (forgotten or renewed):
            # A new number: the bus drops repeats of an old one, and the controller takes none that is not newer.
            self._sequence += 1
        return True

    async def _nudged(self, seconds: float) -> bool:
        """Wait for a nudge; False when none came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        except TimeoutError:
            return False
        self._nudge.clear()
        return True

    async def _probe(self, probe: AcceleratorProbe) -> None:
        try:
            self._known.read(probe.source, await probe.read())
        except Unavailable as error:
            self._fails(probe.source, error)
        else:
            self._works(probe.source)

    def _fails(self, source: str, error: GpubusError) -> None:
        if source not in self._failing:
            self._failing.add(source)
            log.warning("measurement_failed", node=self.node, source=source, reason=str(error))

    def _works(self, source: str) -> None:
        if source in self._failing:
            self._failing.discard(source)
            log.info("measurement_works_again", node=self.node, source=source)

    def _report(self, sight: Sight) -> NodeReported:
        info = sight.host.info.model_copy(
            update={"machine_id": self.identity.machine_id, "boot_id": self.identity.boot_id}
        )
        return NodeReported(
            node=self.node,
            incarnation=self.identity.incarnation,
            sequence=self._sequence,
            labels=sight.host.labels,
            capacity={"cpu": format_milli(sight.host.cpu_milli), "memory": format_quantity(sight.host.memory_bytes)},
            node_info=info.model_dump(mode="json", by_alias=True),
            addresses=[address.model_dump(mode="json", by_alias=True) for address in sight.host.addresses],
            runtimes=self._runtimes,
            groups=[group.model_dump(mode="json", by_alias=True, exclude_none=True) for group in sight.groups],
        )
