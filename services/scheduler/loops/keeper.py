"""Which pools this copy admits to: one lease a pool, spread evenly over the live copies.

A copy shows that it lives by a lease of its own, so the number of copies is the number of such leases. Must not admit.
Read next: ../domain/share.py, cycle.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.scheduler.domain import share
from services.scheduler.domain.pools import PoolKey
from services.scheduler.loops.cycle import woken
from services.scheduler.projections.board import Board
from shared.errors import Transient
from shared.store import keys
from shared.store.client import Store
from shared.store.leases import RENEW_SECONDS, Lease
from shared.telemetry.logging import get_logger

COPIES = 8
"""Most copies that are told apart; more of them stand by."""
_COUNT_EVERY = 2
"""Rounds between two counts of the copies."""
Body = Callable[[PoolKey, Lease], Awaitable[None]]
log = get_logger(__name__)


@dataclass(slots=True)
class _Held:
    lease: Lease
    task: asyncio.Task[None]


class PoolKeeper:
    """Takes, renews and gives up the leases of pools."""

    def __init__(self, store: Store, board: Board, body: Body) -> None:
        self._store = store
        self._board = board
        self._body = body
        self._held: dict[PoolKey, _Held] = {}
        self._member: Lease | None = None
        self._copies = 1
        self._round = 0
        self._known: frozenset[str] = frozenset()
        self._new = asyncio.Event()

    def notice(self, pool: PoolKey) -> None:
        """Something happened to a pool; one that was not there before is taken without waiting."""
        if pool.name not in self._known:
            self._new.set()

    @property
    def pools(self) -> list[PoolKey]:
        """The pools this copy holds."""
        return sorted(self._held)

    async def run(self) -> None:
        """Keep the share; for ever. Ended, it gives every lease back."""
        await self._board.cache.synced()
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    await self._tick(tasks)
                    await woken(self._new, RENEW_SECONDS)
                    self._new.clear()
            finally:
                for pool in list(self._held):
                    await self._give_up(pool)
                if self._member is not None:
                    await _quietly(self._member.release())

    async def _tick(self, tasks: asyncio.TaskGroup) -> None:
        await asyncio.gather(self._live(), *(_quietly(held.lease.renew()) for held in self._held.values()))
        for pool, held in list(self._held.items()):
            if not held.lease.held or held.task.done():
                log.warning("pool_lease_lost", pool=pool.name)
                await self._give_up(pool)
        if self._round % _COUNT_EVERY == 0:
            self._copies = await self._count()
        self._round += 1
        names = {pool.name: pool for pool in self._board.pool_keys()}
        self._known = frozenset(names)
        held_names = [pool.name for pool in self.pools]
        for name in share.surplus(held_names, names, self._copies):
            await self._give_up(next(pool for pool in self._held if pool.name == name))
        await self._take(tasks, names)

    async def _take(self, tasks: asyncio.TaskGroup, names: dict[str, PoolKey]) -> None:
        for name in share.wanted([pool.name for pool in self._held], list(names), self._copies):
            if len(self._held) >= share.share(len(names), self._copies):
                return
            lease = self._store.lease(f"pool:{name}")
            if await _quietly(lease.acquire()):
                pool = names[name]
                self._held[pool] = _Held(lease, tasks.create_task(self._work(pool, lease)))
                log.info("pool_lease_taken", pool=name, fencing=lease.fencing, copies=self._copies)

    async def _work(self, pool: PoolKey, lease: Lease) -> None:
        await self._body(pool, lease)

    async def _give_up(self, pool: PoolKey) -> None:
        held = self._held.pop(pool)
        held.task.cancel()
        await asyncio.wait({held.task}, timeout=RENEW_SECONDS)
        await _quietly(held.lease.release())

    async def _live(self) -> None:
        """Hold one of the copies' places."""
        if self._member is not None and await _quietly(self._member.renew()):
            return
        if self._member is not None and self._member.held:
            return  # the store is away: nobody has taken it
        for place in range(COPIES):
            lease = self._store.lease(_place(place))
            if await _quietly(lease.acquire()):
                self._member = lease
                return

    async def _count(self) -> int:
        """How many copies live; at least this one."""
        try:
            now = await self._store.time_us()
            places = [self._store.read_hash(keys.lease(self._store.service, _place(n))) for n in range(COPIES)]
            found = await asyncio.gather(*places)
        except Transient:
            return self._copies
        live = [held for held in found if held.get("epoch") == self._store.epoch and int(held.get("expires", 0)) > now]
        return max(len(live), 1)


def _place(number: int) -> str:
    return f"copy:{number}"


async def _quietly(action: Awaitable[object]) -> bool:
    """The store being away is no news about who holds a lease."""
    try:
        async with asyncio.timeout(RENEW_SECONDS):
            return bool(await action)
    except (Transient, TimeoutError):
        return False
