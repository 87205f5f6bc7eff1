"""Who waits for which pool, in what order, and how many wait and run behind each entrance.

Written by board.py alone. Requests are read once per distinct Pod template. Read next: ../domain/queue.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson
from pydantic import ValidationError

from services.scheduler.domain import status
from services.scheduler.domain.lifecycle import HOLDING, State
from services.scheduler.domain.pools import PoolKey
from services.scheduler.domain.queue import Demand, Queue, Waiting
from services.scheduler.domain.request import Request, read_workload
from shared.resources.base import read_tolerant
from shared.resources.workload import WorkloadSpec
from shared.store.documents import Document

Key = tuple[str, str]
Entrance = tuple[str, str]
"""(namespace, queue name)."""
_REQUESTS_KEPT = 4096
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Lookups:
    """What a workload's place depends on beside itself."""

    type_of: Callable[[str, str], str]
    """(namespace, entrance) to the InstanceType; empty when there is none."""
    pool_of: Callable[[str], PoolKey]
    """InstanceType to its pool."""
    digest_of: Callable[[str, str], str]
    """(namespace, artifact) to its manifest digest; empty until it is resolved."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a workload is kept here."""

    uid: str
    entrance: Entrance
    artifact: Key
    state: State
    pool: PoolKey | None


class WorkloadBook:
    """Workloads by (namespace, name)."""

    def __init__(self, lookups: Lookups) -> None:
        self.queues: dict[PoolKey, Queue] = {}
        self.unpublished: set[Entrance] = set()
        """Entrances whose counts changed since somebody took this set."""
        self.leaving: set[Key] = set()
        """Documents whose deletion was asked for."""
        self.finished: set[Key] = set()
        self._lookups = lookups
        self._places: dict[Key, _Place] = {}
        self._by_entrance: dict[Entrance, set[Key]] = defaultdict(set)
        self._by_artifact: dict[Key, set[Key]] = defaultdict(set)
        self._pending: Counter[Entrance] = Counter()
        self._running: Counter[Entrance] = Counter()
        self._requests: OrderedDict[bytes, Request] = OrderedDict()

    def put(self, document: Document) -> PoolKey | None:
        """A workload as it is now; the pool whose queue is to be looked at again because of it."""
        key = (document.namespace, document.name)
        before = self._places.get(key)
        place = self._place(document)
        if before is not None:
            self._forget(key, before, kept=place)
        self._remember(key, place)
        (self.leaving.add if document.deleting else self.leaving.discard)(key)
        (self.finished.add if place.state is State.FINISHED else self.finished.discard)(key)
        if place.pool is None:
            return before.pool if before is not None and place.state not in HOLDING else None
        return place.pool if self._enqueue(place, self._waiting(document)) else None

    def _enqueue(self, place: _Place, waiting: Waiting) -> bool:
        """Whether it waits differently than before; being told why is no difference."""
        assert place.pool is not None, "it waits for a pool"
        queue = self.queue(place.pool)
        known = queue.get(waiting.uid)
        queue.put(waiting)
        return known is None or (known.demand, known.order) != (waiting.demand, waiting.order)

    def drop(self, key: Key) -> PoolKey | None:
        """A workload that has no document any more; the pool in whose queue it was."""
        self.leaving.discard(key)
        self.finished.discard(key)
        place = self._places.pop(key, None)
        if place is None:
            return None
        self._forget(key, place, kept=None)
        return place.pool

    def behind(self, entrance: Entrance) -> tuple[Key, ...]:
        """Workloads that name an entrance."""
        return tuple(self._by_entrance.get(entrance, ()))

    def needing(self, artifact: Key) -> tuple[Key, ...]:
        """Workloads that need an artifact."""
        return tuple(self._by_artifact.get(artifact, ()))

    def queue(self, pool: PoolKey) -> Queue:
        """Who waits for a pool."""
        found = self.queues.get(pool)
        if found is None:
            found = self.queues[pool] = Queue()
        return found

    def waiting(self, key: Key) -> Waiting | None:
        """One workload, if it waits."""
        place = self._places.get(key)
        return None if place is None or place.pool is None else self.queue(place.pool).get(place.uid)

    def counts(self, entrance: Entrance) -> tuple[int, int]:
        """How many wait and run behind an entrance."""
        return self._pending[entrance], self._running[entrance]

    def take_unpublished(self) -> set[Entrance]:
        """Entrances whose counts changed since this was last asked."""
        taken, self.unpublished = self.unpublished, set()
        return taken

    def demand(self, namespace: str, spec: WorkloadSpec | dict[str, object]) -> Demand:
        """What a spec asks for and where."""
        body = spec if isinstance(spec, dict) else spec.model_dump(mode="json", by_alias=True)
        entrance = str(body.get("queueName", ""))
        request = self._request(body)
        artifact = str(body.get("artifact") or "")
        digest = self._lookups.digest_of(namespace, artifact) if artifact else ""
        if digest:
            request = replace(request, artifact=digest)
        return Demand(self._lookups.type_of(namespace, entrance), entrance, request, body.get("active") is False)

    def _place(self, document: Document) -> _Place:
        spec = document.body.get("spec") or {}
        state = status.state(document.body)
        namespace, entrance = document.namespace, str(spec.get("queueName", ""))
        pool = None
        if state is State.WAITING and not document.deleting:
            pool = self._lookups.pool_of(self._lookups.type_of(namespace, entrance))
        return _Place(document.uid, (namespace, entrance), (namespace, str(spec.get("artifact") or "")), state, pool)

    def _waiting(self, document: Document) -> Waiting:
        spec = document.body.get("spec") or {}
        entered = status.status_of(document.body).get("queuedRevision") or document.revision
        order = (-int(spec.get("priority") or 0), entered, document.namespace, document.name)
        demand = self.demand(document.namespace, spec)
        reason, message = status.told(document.body)
        return Waiting(
            document.uid, document.namespace, document.name, order, demand, document.revision, entered / _MICRO,
            reason, message,
        )  # fmt: skip

    def _request(self, spec: dict[str, object]) -> Request:
        memo = orjson.dumps(spec.get("podSets"))
        known = self._requests.get(memo)
        if known is None:
            known = self._requests[memo] = _read(spec)
            if len(self._requests) > _REQUESTS_KEPT:
                self._requests.popitem(last=False)
        return known

    def _remember(self, key: Key, place: _Place) -> None:
        self._places[key] = place
        self._by_entrance[place.entrance].add(key)
        if place.artifact[1]:
            self._by_artifact[place.artifact].add(key)
        self._count(place, 1)

    def _forget(self, key: Key, place: _Place, *, kept: _Place | None) -> None:
        """Take a workload out of everywhere; out of its queue only if it does not stay there."""
        self._by_entrance[place.entrance].discard(key)
        self._by_artifact[place.artifact].discard(key)
        for index, name in ((self._by_entrance, place.entrance), (self._by_artifact, place.artifact)):
            if not index[name]:
                del index[name]
        self._count(place, -1)
        if place.pool is not None and (kept is None or (kept.pool, kept.uid) != (place.pool, place.uid)):
            self.queue(place.pool).drop(place.uid)

    def _count(self, place: _Place, step: int) -> None:
        if place.state is State.WAITING:
            self._pending[place.entrance] += step
        elif place.state in HOLDING:
            self._running[place.entrance] += step
        self.unpublished.add(place.entrance)


def _read(spec: dict[str, object]) -> Request:
    try:
        request, causes = read_workload(read_tolerant(WorkloadSpec, spec))
    except ValidationError as error:
        return Request(invalid=f"{error.error_count()} fields have a wrong shape")
    if causes:
        return replace(request, invalid="; ".join(f"{cause.field}: {cause.message}" for cause in causes[:3]))
    return request
