"""Discovery's timers: the ear that notices its own deafness, and the leased sweeper that judges silence.

Must not hold state that a restart would lose: receive times are learnt anew within one time-out.
Read next: domain/liveness.py, which judges.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Gauge

from services.discovery.domain import lifecycle
from services.discovery.domain.liveness import Liveness, Seat, Verdict
from services.discovery.store import NodeStore
from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import Raced
from shared.messages.base import Fact
from shared.resources.core import Node
from shared.store.cache import DocumentCache
from shared.store.documents import Document, LeaseLost
from shared.store.leases import Lease
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

SWEEPER_LEASE = "sweeper"
NODES = "gpubus_nodes"

nodes_gauge = Gauge(NODES, "Nodes by state, as the sweeper sees them; unknown is an alert.", ["state"])

LISTEN_SECONDS = 1.0
_SHORTEST, _LONGEST = 0.1, 1.0
_HELD_SECONDS = 0.5
_ORPHAN_SECONDS = 60.0
_CHUNK = 50
"""Nodes in one commit of the sweeper."""

Change = Callable[[Node], tuple[Node, Sequence[Fact]] | None]


async def keep_listening(liveness: Liveness, bus: BusClient, clock: Clock) -> None:
    """Start listening anew after this process was frozen or the bus was away; for ever."""
    bus.on_reconnect(lambda: liveness.listen_anew(clock.monotonic()))
    while True:
        now = clock.monotonic()
        liveness.awake(now)
        if not bus.connected:
            liveness.listen_anew(now)
        await asyncio.sleep(LISTEN_SECONDS)


class Sweeper:
    """Judges silence; one copy at a time, under a lease."""

    def __init__(
        self, *, nodes: NodeStore, cache: DocumentCache, liveness: Liveness, bus: BusClient, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._cache = cache
        self._liveness = liveness
        self._bus = bus
        self._clock = clock
        self._seats: list[Seat] = []
        self._seats_revision = -1
        self._holding = False

    async def run(self, lease: Lease) -> None:
        """Judge until the lease is lost."""
        await self._cache.synced()
        while True:
            seats = self.seats()
            verdict = await self._verdict(seats)
            if verdict is not None:
                await self._apply(verdict, lease)
                self._show(seats, verdict)
            due = self._liveness.due(seats, self._clock.monotonic())
            held = verdict is not None and verdict.held
            await asyncio.sleep(_HELD_SECONDS if held else min(_LONGEST, max(_SHORTEST, due)))

    def seats(self) -> list[Seat]:
        """All nodes as stored; built once a revision."""
        if self._seats_revision != self._cache.revision:
            self._seats_revision = self._cache.revision
            self._seats = [
                Seat(node.name, node.status.incarnation, lifecycle.is_lost(node), lifecycle.is_held(node))
                for node in self._cache.read_all("Node", Node)
                if node.status.incarnation and lifecycle.reason_of(node) != lifecycle.NodeReason.NOT_REPORTED_YET
            ]
        return self._seats

    async def _verdict(self, seats: Sequence[Seat]) -> Verdict | None:
        """None: there is no telling now."""
        if not self._bus.connected:
            return None
        verdict = self._liveness.judge(seats, self._clock.monotonic())
        if not verdict.lost and not verdict.held:
            return verdict
        # Rather our ears than the nodes: only when the server answers now, and all it sent has been heard, is it them.
        if not await self._bus.reachable():
            self._liveness.listen_anew(self._clock.monotonic())
            return None
        await asyncio.sleep(_SHORTEST)
        return self._liveness.judge(seats, self._clock.monotonic())

    async def _apply(self, verdict: Verdict, lease: Lease) -> None:
        now, seconds = self._clock.now(), self._liveness.timeout

        def lost(node: Node) -> tuple[Node, Sequence[Fact]] | None:
            return (
                None if lifecycle.is_lost(node) else (lifecycle.lost(node, seconds, now), [lifecycle.lost_fact(node)])
            )

        def returned(node: Node) -> tuple[Node, Sequence[Fact]] | None:
            return (lifecycle.ready(node, now), [lifecycle.returned_fact(node)]) if lifecycle.is_lost(node) else None

        def held(node: Node) -> tuple[Node, Sequence[Fact]] | None:
            if lifecycle.is_held(node) or lifecycle.is_lost(node):
                return None
            return lifecycle.held(node, verdict.crowd, verdict.of, now), []

        def relieved(node: Node) -> tuple[Node, Sequence[Fact]] | None:
            return (lifecycle.known(node, now), []) if lifecycle.is_held(node) else None

        for names, change in (
            (verdict.returned, returned),
            (verdict.relieved, relieved),
            (verdict.lost, lost),
            (verdict.held, held),
        ):
            for start in range(0, len(names), _CHUNK):
                await self._write(names[start : start + _CHUNK], change, lease)

    async def _write(self, names: Sequence[str], change: Change, lease: Lease) -> None:
        known = {seat.name: seat.incarnation for seat in self._seats}
        changes: list[tuple[Document, Node, Sequence[Fact]]] = []
        for name, (document, node) in (await self._nodes.load_nodes(names)).items():
            # Another agent start took over in between: the verdict was about the one before.
            next_state = change(node) if node.status.incarnation == known.get(name) else None
            if next_state is not None:
                changes.append((document, *next_state))
        if not changes:
            return
        try:
            await self._nodes.write_nodes(changes, lease)
        except LeaseLost:
            raise
        except Raced:
            return  # somebody wrote one of them: the next round sees it
        for _, node, facts in changes:
            for fact in facts:
                log.warning("node_silent" if lifecycle.is_lost(node) else "node_heard_again", node=fact.key)

    def _show(self, seats: Sequence[Seat], verdict: Verdict) -> None:
        lost = sum(seat.lost for seat in seats) + len(verdict.lost) - len(verdict.returned)
        unknown = len(verdict.held)
        for state, count in (("ready", len(seats) - lost - unknown), ("lost", lost), ("unknown", unknown)):
            nodes_gauge.labels(state).set(count)
        if bool(verdict.held) != self._holding:
            self._holding = bool(verdict.held)
            if self._holding:
                log.error("nodes_unknown", silent=verdict.crowd, of=verdict.of, nodes=list(verdict.held)[:20])
            else:
                log.info("nodes_known_again")


async def keep_clean(nodes: NodeStore, remove: Callable[[str], Awaitable[object]]) -> None:
    """Remove Devices whose Node is gone (the fact that says so may be lost); for ever, about every minute."""
    while True:
        await asyncio.sleep(_ORPHAN_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - spreads copies
        for name in await nodes.orphans():
            await remove(name)
