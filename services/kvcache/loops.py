"""kvcache's timers: conditions brought up to date, gone replicas forgotten, their bits swept out.

Must not hold state that a restart would lose: the index is a hint and fills again. Read next: domain/index.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from prometheus_client import Gauge

from services.kvcache.domain.index import PrefixIndex
from services.kvcache.store import CacheStore
from shared.store.leases import Lease

RESYNC_LEASE = "resync"
BLOCKS = "gpubus_cache_index_blocks"
REPLICAS = "gpubus_cache_index_replicas"

blocks_gauge = Gauge(BLOCKS, "Blocks in this process's prefix index.")
replicas_gauge = Gauge(REPLICAS, "Replicas in this process's prefix index.")

_RESYNC_SECONDS = 60.0
_TEND_SECONDS = 10.0
_FORGET_EVERY = 6
"""Rounds of tending between two looks at which Pods there are."""


async def keep_in_step(lease: Lease, reconcile: Callable[[], Awaitable[None]]) -> None:  # noqa: ARG001 - run_leased's shape
    """Reconcile all objects about every minute; facts only make it faster."""
    while True:
        await reconcile()
        await asyncio.sleep(_RESYNC_SECONDS * random.uniform(0.8, 1.0))  # noqa: S311 - spreads copies


async def tend(index: PrefixIndex, objects: CacheStore) -> None:
    """Keep the index small and honest; for ever, in every copy."""
    rounds = 0
    while True:
        await asyncio.sleep(_TEND_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - spreads copies
        rounds += 1
        if rounds % _FORGET_EVERY == 0 and index.replicas:
            await forget_gone(index, objects)
        for _ in index.swept():
            await asyncio.sleep(0)
        blocks_gauge.set(index.blocks)
        replicas_gauge.set(len(index.replicas))


async def forget_gone(index: PrefixIndex, objects: CacheStore) -> None:
    """Drop replicas that are no Pod any more: the fact that says so reaches one copy only."""
    known = index.replicas
    for replica in known - await objects.pods():
        index.drop(replica)
