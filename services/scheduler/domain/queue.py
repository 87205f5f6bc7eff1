"""Who waits, in what order: priority, then age. Equal demands form one class, so that a blocked one is skipped whole.

The rule of the queue:
1. Higher priority goes first; among equals the one that came first.
2. Whoever does not fit now is passed over: it never blocks a smaller one behind it (best effort, work conserving).
3. Passing over ends: the first workload that has waited longer than the patience gets one node kept for it, the one
   that lacks least; nobody behind it is admitted there. At most one node of a pool is kept.
4. Whoever can never fit, is held, or waits for a queue that does not exist counts as nobody's head.
Pure. Read next: admission.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from services.scheduler.domain.request import Request

Order = tuple[int, int, str, str]
"""(-priority, revision at which it entered, namespace, name)."""


class Demand(NamedTuple):
    """What makes two waiting workloads alike: where they wait and what for."""

    queue: str
    """InstanceType behind the entrance; empty when the entrance does not exist."""
    entrance: str
    request: Request
    inactive: bool = False
    """The workload itself is switched off."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One workload in the queue."""

    uid: str
    namespace: str
    name: str
    order: Order
    demand: Demand
    revision: int
    """Of the document this was read from."""
    since: float
    """Unix seconds at which it came."""
    reason: str = ""
    """What its condition says now; empty when it was not told yet."""
    message: str = ""


class WaitingClass:
    """The workloads of one demand, in order."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.members: dict[str, Waiting] = {}
        self.reasons: Counter[str] = Counter()
        """How many members were told which reason."""
        self._order: list[tuple[Order, str]] = []

    def __len__(self) -> int:
        return len(self.members)

    def at(self, position: int) -> Waiting:
        """The workload at a place of the class."""
        return self.members[self._order[position][1]]

    def __iter__(self) -> Iterator[Waiting]:
        return (self.members[uid] for _, uid in self._order)

    def put(self, waiting: Waiting) -> None:
        """Add or replace."""
        self.drop(waiting.uid)
        self.members[waiting.uid] = waiting
        self.reasons[waiting.reason] += 1
        insort(self._order, (waiting.order, waiting.uid))

    def drop(self, uid: str) -> None:
        """Forget one; unknown ones are no matter."""
        old = self.members.pop(uid, None)
        if old is not None:
            self.reasons[old.reason] -= 1
            del self._order[bisect_left(self._order, (old.order, uid))]


class Queue:
    """Everything that waits for one pool."""

    def __init__(self) -> None:
        self.classes: dict[Demand, WaitingClass] = {}
        self._demands: dict[str, Demand] = {}

    def __len__(self) -> int:
        return len(self._demands)

    def __iter__(self) -> Iterator[Waiting]:
        return (waiting for found in self.classes.values() for waiting in found)

    def put(self, waiting: Waiting) -> None:
        """Add or replace by uid."""
        if self._demands.get(waiting.uid) != waiting.demand:
            self.drop(waiting.uid)
        self._demands[waiting.uid] = waiting.demand
        self.classes.setdefault(waiting.demand, WaitingClass(waiting.demand)).put(waiting)

    def drop(self, uid: str) -> None:
        """Forget one; unknown ones are no matter."""
        demand = self._demands.pop(uid, None)
        if demand is None:
            return
        found = self.classes[demand]
        found.drop(uid)
        if not found:
            del self.classes[demand]

    def get(self, uid: str) -> Waiting | None:
        """One that waits here."""
        demand = self._demands.get(uid)
        return None if demand is None else self.classes[demand].members[uid]

    def position(self, uid: str) -> int | None:
        """How many go before it."""
        waiting = self.get(uid)
        return None if waiting is None else sum(other.order < waiting.order for other in self)

    def heads(self) -> Heads:
        """Walk through everybody in order."""
        return Heads(self.classes.values())


class Heads:
    """A walk through a queue in order, in which a class that does not fit is left out from there on."""

    def __init__(self, classes: Iterable[WaitingClass]) -> None:
        self._classes = list(classes)
        self._heap = [(members.at(0).order, which, 0) for which, members in enumerate(self._classes)]
        heapify(self._heap)

    def __iter__(self) -> Iterator[Waiting]:
        while self._heap:
            _, which, position = self._heap[0]
            members = self._classes[which]
            waiting = members.at(position)
            yield waiting
            if not self._heap or self._heap[0][1] != which:
                continue
            if position + 1 < len(members):
                heapreplace(self._heap, (members.at(position + 1).order, which, position + 1))
            else:
                heappop(self._heap)

    def skip_class(self) -> None:
        """Nobody else of the class that was just yielded."""
        heappop(self._heap)
