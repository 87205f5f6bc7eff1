"""What one copy does for all, under one lease: views of capacity, facts that were missed, clean-up, audits.

Writes nothing when nothing changed. Must not admit. Read next: ../store/pools.py, ../store/ledgers.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from services.scheduler.projections.board import Board
from services.scheduler.store.ledgers import LedgerStore
from services.scheduler.store.pools import PoolStore
from services.scheduler.store.workloads import WorkloadStore
from shared.clock import Clock
from shared.errors import Raced
from shared.store.client import Store
from shared.store.leases import Lease
from shared.telemetry.logging import get_logger

LEASE = "steward"
_SOONEST = 0.05
"""Least time between two publications of views (contract: 50 ms)."""
_LATEST = 1.0
_EFFORT = 10
"""Views take at most a tenth of the time: a publication that took long is followed by a longer pause."""
_GRACE = 1.0
"""Seconds in which facts usually reshape pools; after that the steward does."""
_CANCELLED_KEPT_US = 20 * 60 * 1_000_000
"""Longer than commands are redelivered (10 minutes) and the inbox remembers (15)."""
log = get_logger(__name__)


class Steward:
    """Looks after everything that is nobody's pool."""

    def __init__(
        self,
        *,
        store: Store,
        board: Board,
        pools: PoolStore,
        ledgers: LedgerStore,
        workloads: WorkloadStore,
        clean_up: Callable[[tuple[str, str]], Awaitable[None]],
        clock: Clock,
        audit_seconds: float,
    ) -> None:
        self._store = store
        self._board = board
        self._pools = pools
        self._ledgers = ledgers
        self._workloads = workloads
        self._clean_up = clean_up
        self._clock = clock
        self._audit_seconds = audit_seconds
        self._changed = asyncio.Event()
        board.on_views = self._changed.set

    async def run(self, lease: Lease) -> None:  # noqa: ARG002 - what is written here compares and swaps
        """Work until the lease is lost."""
        await self._board.cache.synced()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._views())
                tasks.create_task(self._resync())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _views(self) -> None:
        self._board.shape_changed = True
        self._board.nodes.touch_all()
        self._board.workloads.unpublished.update(
            (queue.namespace, queue.name) for queue in self._board.cache.list("LocalQueue")
        )
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            started = self._clock.monotonic()
            await self.publish()
            took = self._clock.monotonic() - started
            await asyncio.sleep(min(max(_SOONEST, took * _EFFORT), _LATEST))

    async def publish(self) -> None:
        """Write the views of what changed since the last time."""
        self._board.refresh()
        nodes = self._board.nodes.take_unpublished()
        entrances = self._board.workloads.take_unpublished()
        for name in nodes:
            if name in self._board.nodes.facts and self._board.nodes.epoch_of(name) != self._board.cache.epoch:
                await self._ledgers.mirror(name)
        if not await self._pools.publish(nodes, entrances):
            self._board.nodes.unpublished |= nodes
            self._board.workloads.unpublished |= entrances
            self._changed.set()

    async def _resync(self) -> None:
        """Everything that a lost fact would leave undone; soon after a change, and all of it now and then."""
        due = 0.0
        while True:
            now = self._clock.monotonic()
            if now >= due:
                due = now + self._audit_seconds * random.uniform(0.8, 1.0)  # noqa: S311 - spreads copies
                self._board.shape_changed = True
                await self.audit()
            if self._board.shape_changed:
                await self._pools.reshape()
            for key in [*self._board.workloads.leaving]:
                await self._clean_up(key)
            await asyncio.sleep(_GRACE)

    async def audit(self) -> None:
        """Compare every ledger with the documents, and end what nobody else ends."""
        nodes = self._board.nodes
        for name in sorted({*nodes.facts, *nodes.held_nodes()}):
            try:
                await self._ledgers.audit(name)
            except Raced:
                continue  # it is in use right now; the next round finds it
        cache = self._board.cache
        spaces = {found.name for found in cache.list("Namespace") if not found.deleting}
        keys = [*self._board.workloads.finished]
        keys += [(found.namespace, found.name) for found in cache.list("Workload") if found.namespace not in spaces]
        for name in nodes.held_nodes() - nodes.facts.keys():
            keys += [key for key, _ in nodes.holdings_on(name)]
        for key in keys:
            await self._clean_up(key)
        await self._workloads.forget_cancelled(await self._store.time_us() - _CANCELLED_KEPT_US)
