"""The admission cycle of one pool, run under the pool's lease: wake, snapshot, decide, commit, wait for the echo.

Owns batching: up to fifty admissions a commit, halved while somebody else changed one of them. Must not decide.
Read next: ../domain/admission.py, ../store/admissions.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from prometheus_client import Counter, Histogram

from services.scheduler.domain.admission import Admitted, Cycle, Limits, Told, decide_cycle
from services.scheduler.domain.pools import PoolKey
from services.scheduler.domain.queue import Demand, Waiting
from services.scheduler.projections.board import Board
from services.scheduler.store.admissions import Hold, Pick, admission_commit, hold_commit
from services.scheduler.store.ledgers import LedgerStore
from services.scheduler.store.writes import commit
from shared.clock import Clock, rfc3339
from shared.errors import Raced, Transient
from shared.faults import point
from shared.store.client import Store
from shared.store.documents import Commit, Document, LeaseLost, StaleEpoch
from shared.store.leases import Lease
from shared.telemetry.logging import get_logger

ADMISSIONS = "gpubus_admissions_total"
DECIDE_SECONDS = "gpubus_decide_seconds"

admissions_total = Counter(ADMISSIONS, "Workloads that got exact devices.", ["pool"])
decide_seconds = Histogram(
    DECIDE_SECONDS, "Seconds of one decision, by cycle: its time divided by what it admitted or told.", ["pool"],
    buckets=(0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.1),
)  # fmt: skip

_RESYNC_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
"""After the store was away, full, or began a new epoch."""
_CATCH_UP_SECONDS = 2.0
_MICRO = 1_000_000
T = TypeVar("T", Pick, Hold)
log = get_logger(__name__)


class AdmissionLoop:
    """The cycles of the pools that this copy holds."""

    def __init__(
        self, *, store: Store, board: Board, ledgers: LedgerStore, clock: Clock, limits: Limits, batch: int
    ) -> None:
        self._store = store
        self._board = board
        self._ledgers = ledgers
        self._clock = clock
        self._limits = limits
        self._batch = batch
        self._offset = 0.0
        self._events: dict[PoolKey, asyncio.Event] = defaultdict(asyncio.Event)

    def wake(self, pool: PoolKey) -> None:
        """Look at a pool soon."""
        self._events[pool].set()

    async def run(self, pool: PoolKey, lease: Lease) -> None:
        """Admit to one pool while its lease is held."""
        await self._board.cache.synced()
        told: Mapping[Demand, Told] = {}
        wake = self._events[pool]
        wake.set()
        wait = 0.0
        while lease.held:
            await woken(wake, wait or _RESYNC_SECONDS)
            wake.clear()
            try:
                told, wait = await self.cycle(pool, lease, told)
            except LeaseLost:
                return
            except Transient as error:
                log.warning("cycle_failed", pool=pool.name, code=error.code.value, error_text=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                wake.set()

    async def cycle(
        self, pool: PoolKey, lease: Lease | None, told: Mapping[Demand, Told]
    ) -> tuple[Mapping[Demand, Told], float]:
        """One cycle; what was told to whom, and after how many seconds to look again although nothing changed (0: never)."""
        epoch = self._board.cache.epoch
        snapshot = self._board.snapshot(pool, told)
        if not len(snapshot.queue):
            return {}, 0.0
        now = await self._redis_seconds()
        started = self._clock.monotonic()
        decision = decide_cycle(snapshot, now, self._limits)
        cycle = decision.state
        assert cycle is not None, "a cycle always has a result"
        self._measure(pool, cycle, self._clock.monotonic() - started)
        await self._commit(pool, cycle, epoch, lease)
        if cycle.more:
            self.wake(pool)
        return cycle.told, decision.requeue_after or 0.0

    async def _commit(self, pool: PoolKey, cycle: Cycle, epoch: str, lease: Lease | None) -> None:
        now = rfc3339(self._clock.now())
        picks = [Pick(found, item) for item in cycle.admissions if (found := self._document(item.waiting))]
        holds = [Hold(found, item) for item in cycle.holds if (found := self._document(item.waiting))]

        def admit(part: Sequence[Pick]) -> Commit:
            return admission_commit(part, epoch=epoch, lease=lease, now=now)

        def tell(part: Sequence[Hold]) -> Commit:
            return hold_commit(part, epoch=epoch, lease=lease, now=now)

        try:
            async with asyncio.TaskGroup() as tasks:
                for batch in _parts(picks, self._batch):
                    tasks.create_task(self._send(pool, batch, admit))
                for told in _parts(holds, self._batch):
                    tasks.create_task(self._send(pool, told, tell))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def _document(self, waiting: Waiting) -> Document | None:
        """The document that the decision was made on, unless it has moved since."""
        found = self._board.cache.get("Workload", waiting.namespace, waiting.name)
        return found if found is not None and found.revision == waiting.revision else None

    async def _send(self, pool: PoolKey, part: Sequence[T], build: Callable[[Sequence[T]], Commit]) -> None:
        """Commit a batch; halve it while somebody else has changed one of its documents or ledgers."""
        point("scheduler.before-commit")
        try:
            done = await commit(self._store, build(part))
        except (LeaseLost, StaleEpoch):
            raise
        except Raced as error:
            await self._send_less(pool, part, build, error)
            return
        point("scheduler.after-commit")
        if isinstance(part[0], Pick):
            admissions_total.labels(pool.name).inc(len(part))
        log.debug("cycle_committed", pool=pool.name, workloads=len(part), what=type(part[0]).__name__)
        await self._board.cache.reached(done.revisions[-1], _CATCH_UP_SECONDS)

    async def _send_less(
        self, pool: PoolKey, part: Sequence[T], build: Callable[[Sequence[T]], Commit], error: Raced
    ) -> None:
        if len(part) > 1:
            middle = len(part) // 2
            await self._send(pool, part[:middle], build)
            await self._send(pool, part[middle:], build)
            return
        only = part[0]
        log.info("admission_raced", pool=pool.name, workload=only.document.name, error_text=str(error))
        if isinstance(only, Pick):
            await self._check(only.admitted)
        self.wake(pool)

    async def _check(self, admitted: Admitted) -> None:
        """A ledger that refuses what the documents allow is either newer than they are here, or wrong."""
        try:
            await self._ledgers.audit(admitted.assignment.node_name)
        except Raced:
            log.debug("audit_raced", node=admitted.assignment.node_name)

    async def _redis_seconds(self) -> float:
        if not self._offset:
            self._offset = await self._store.time_us() / _MICRO - self._clock.monotonic()
        return self._clock.monotonic() + self._offset

    def _measure(self, pool: PoolKey, cycle: Cycle, seconds: float) -> None:
        decided = len(cycle.admissions) + len(cycle.holds)
        if decided:
            decide_seconds.labels(pool.name).observe(seconds / decided)
        if cycle.admissions:
            log.info(
                "cycle_decided", pool=pool.name, admitted=len(cycle.admissions), told=len(cycle.holds),
                duration_ms=round(seconds * 1000, 2),
            )  # fmt: skip


def _parts(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


async def woken(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, at most so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
