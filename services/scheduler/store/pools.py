"""InstanceTypes, entrances, catalogue rows, and what users see of capacity: written when they should differ.

`reshape` may run in any copy at any time: it compares and swaps, so only one of equal attempts writes. Read next:
../domain/shape.py, ../domain/standing.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.pools import PoolKey, pool_of
from services.scheduler.domain.shape import Present, Steps, decide_shape
from services.scheduler.domain.standing import changes, standing
from services.scheduler.domain.views import allocations
from services.scheduler.projections.board import DERIVED, MIXED, Board
from services.scheduler.store.view import CATCH_UP_SECONDS, caught_up
from services.scheduler.store.writes import commit
from shared.clock import Clock
from shared.errors import Raced
from shared.messages.base import Fact
from shared.resources.pool import InstanceType, InstanceTypeFlavor, LocalQueue, entrance
from shared.store.client import Store
from shared.store.documents import About, Commit, Delete, Put, StaleEpoch
from shared.telemetry.logging import get_logger

_BATCH = 50
_ATTEMPTS = 5
_EFFORT = 5
"""Reshaping takes at most a sixth of the time: a thousand nodes that join together reshape their pools a few times."""
_LONGEST_PAUSE = 1.0
log = get_logger(__name__)


class PoolStore:
    """Pools of all nodes."""

    def __init__(self, store: Store, board: Board, clock: Clock) -> None:
        self._store = store
        self._board = board
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._not_before = 0.0

    async def reshape(self) -> bool:
        """Make types and entrances what nodes, namespaces and settings say; whether that is so now."""
        async with self._one_at_a_time:
            for _ in range(_ATTEMPTS):
                if not self._board.shape_changed:
                    return True
                await asyncio.sleep(self._not_before - self._clock.monotonic())
                started = self._clock.monotonic()
                self._board.shape_changed = False
                done = await self._reshaped()
                now = self._clock.monotonic()
                self._not_before = now + min((now - started) * _EFFORT, _LONGEST_PAUSE)
                if not done:
                    self._board.shape_changed = True
                    await caught_up(self._store, self._board.cache)
        return False

    async def publish(self, nodes: Iterable[str], entrances: Iterable[tuple[str, str]]) -> bool:
        """Write what users see of these nodes and entrances and of every type; False when some were raced."""
        types = await self._write(self._type_puts())
        devices = await self._write((put, ()) for put in self._device_puts(nodes))
        queues = await self._write((put, ()) for put in self._queue_puts(entrances))
        return types and devices and queues

    async def _reshaped(self) -> bool:
        steps = decide_shape(self._present())
        writes = [*self._creations(steps)]
        try:
            for start in range(0, len(writes), _BATCH):
                await self._commit_writes(writes[start : start + _BATCH])
            await self._remove(steps)
        except StaleEpoch:
            raise
        except Raced:
            return False
        return await self._write(self._type_puts())

    def _present(self) -> Present:
        board, cache = self._board, self._board.cache
        board.refresh()
        flavors = {flavor.name: flavor.spec for flavor in cache.read_all("InstanceTypeFlavor", InstanceTypeFlavor)}
        queues = cache.read_all("LocalQueue", LocalQueue)
        return Present(
            nodes=board.nodes.facts.values(),
            namespaces={found.name: found.deleting for found in cache.list("Namespace")},
            types={kind.name: kind for kind in cache.read_all("InstanceType", InstanceType)},
            queues={(queue.namespace, queue.name): queue.spec.cluster_queue for queue in queues},
            flavors=flavors,
            in_use=self._in_use,
            mixed=board.setting(MIXED) != "false",
            derived=board.setting(DERIVED) != "false",
        )

    def _in_use(self, instance_type: str) -> bool:
        name = entrance(instance_type)
        spaces = (found.name for found in self._board.cache.list("Namespace"))
        return any(self._board.workloads.counts((space, name))[1] for space in spaces)

    def _creations(self, steps: Steps) -> Iterable[tuple[Put, Sequence[Fact]]]:
        for kind in steps.new_types:
            first = kind.model_copy(
                update={"status": standing(kind, self._nodes(pool_of(kind.spec)), self._clock.now())}
            )
            facts = tuple(changes(kind, kind.status, first.status))
            yield Put("InstanceType", "", kind.name, first.to_json(), None), facts
        for queue in steps.new_queues:
            yield Put("LocalQueue", queue.namespace, queue.name, queue.to_json(), None), ()
        for row in steps.flavors:
            stored = self._board.cache.get("InstanceTypeFlavor", "", row.name)
            body = row.to_json() if stored is None else {**stored.body, "spec": row.to_json()["spec"]}
            yield Put("InstanceTypeFlavor", "", row.name, body, stored.revision if stored is not None else None), ()

    async def _remove(self, steps: Steps) -> None:
        wanted = [
            *(("LocalQueue", *key) for key in steps.gone_queues),
            *(("InstanceType", "", name) for name in steps.gone_types),
            *(("InstanceTypeFlavor", "", name) for name in steps.gone_flavors),
        ]
        found = [document for key in wanted if (document := self._board.cache.get(*key)) is not None]
        for start in range(0, len(found), _BATCH):
            batch = [Delete(*document.key, document.revision) for document in found[start : start + _BATCH]]
            done = await commit(self._store, Commit(deletes=batch, release=True))
            await self._board.cache.reached(done.revisions[-1], CATCH_UP_SECONDS)

    def _nodes(self, pool: PoolKey) -> list[NodeView]:
        return list(self._board.nodes.pool(pool).nodes.values())

    def _type_puts(self) -> Iterable[tuple[Put, Sequence[Fact]]]:
        self._board.refresh()
        for document in self._board.cache.list("InstanceType"):
            kind = self._board.cache.read("InstanceType", "", document.name, InstanceType)
            assert kind is not None, "it was just listed"
            new = standing(kind, self._nodes(pool_of(kind.spec)), self._clock.now())
            if new != kind.status:
                body = document.patched(kind.model_copy(update={"status": new}))
                put = Put("InstanceType", "", document.name, body, document.revision)
                yield put, tuple(changes(kind, kind.status, new))

    def _device_puts(self, nodes: Iterable[str]) -> Iterable[Put]:
        board = self._board
        for name in sorted(nodes):
            document = board.cache.get("Devices", "", name)
            if document is None:
                continue
            status, spec = document.body.get("status") or {}, document.body.get("spec") or {}
            used, holders = board.nodes.used(name).cards, board.nodes.holders(name)
            groups = allocations(spec.get("groups") or (), used, holders)
            if groups != (status.get("groups") or []):
                body = {**document.body, "status": {**status, "groups": groups}}
                yield Put("Devices", "", name, body, document.revision)

    def _queue_puts(self, entrances: Iterable[tuple[str, str]]) -> Iterable[Put]:
        for key in sorted(entrances):
            document = self._board.cache.get("LocalQueue", *key)
            if document is None:
                continue
            pending, running = self._board.workloads.counts(key)
            status = dict(document.body.get("status") or {})
            new = {**status, "pendingWorkloads": pending, "admittedWorkloads": running}
            if new != status:
                yield Put("LocalQueue", *key, {**document.body, "status": new}, document.revision)

    async def _write(self, writes: Iterable[tuple[Put, Sequence[Fact]]]) -> bool:
        """Commit in batches; a batch that was raced is written one by one. False when some were raced even so."""
        pending, clean = list(writes), True
        for start in range(0, len(pending), _BATCH):
            batch = pending[start : start + _BATCH]
            clean = await self._write_batch(batch) and clean
        return clean

    async def _write_batch(self, batch: Sequence[tuple[Put, Sequence[Fact]]]) -> bool:
        try:
            await self._commit_writes(batch)
        except StaleEpoch:
            raise
        except Raced:
            if len(batch) == 1:
                return False
            results = [await self._write_batch([write]) for write in batch]
            return all(results)
        return True

    async def _commit_writes(self, writes: Sequence[tuple[Put, Sequence[Fact]]]) -> None:
        puts = [put for put, _ in writes]
        facts = [About(fact, position) for position, (_, said) in enumerate(writes) for fact in said]
        done = await commit(self._store, Commit(puts=puts, facts=facts, epoch=self._board.cache.epoch))
        for fact in facts:
            log.info("pool_changed", fact=type(fact.message).__name__, pool=fact.message.key)
        await self._board.cache.reached(done.revisions[-1], CATCH_UP_SECONDS)
