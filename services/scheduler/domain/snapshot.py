"""One pool's nodes at one instant, ranked per request so that a decision costs the same on ten nodes and on thousands.

`PoolView` changes only between cycles. Within a cycle a `Trial` reserves on top of it and leaves it as it is, so "what
if" is free and safe. Pure. Read next: admission.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from services.scheduler.domain.filters import Ground, refusal
from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.pools import PoolKey
from services.scheduler.domain.request import Request
from services.scheduler.domain.scorers import DEFAULT_WEIGHTS, Weights, score, weighted

_RANKINGS_KEPT = 32
"""Distinct requests whose order of nodes is kept; the least used one is dropped and computed anew when asked for."""
_Rank = tuple[float, str]


class Ranking:
    """The nodes that can take one request now, best first; equal scores by name."""

    def __init__(self, request: Request, ground: Ground, weights: Weights, nodes: Iterable[NodeView]) -> None:
        self.request = request
        self._ground = ground
        self._weights = weights
        self._ranks: dict[str, _Rank] = {}
        for node in nodes:
            rank = self.rank(node)
            if rank is not None:
                self._ranks[node.name] = rank
        self.order: list[_Rank] = sorted(self._ranks.values())

    def rank(self, node: NodeView) -> _Rank | None:
        """Where a node stands; None when it cannot take the request."""
        if refusal(self.request, node, self._ground) is not None:
            return None
        return (-score(self.request, node, self._ground, self._weights), node.name)

    def changed(self, name: str, node: NodeView | None) -> None:
        """Move one node, or drop it."""
        old = self._ranks.pop(name, None)
        new = self.rank(node) if node is not None else None
        if old is not None:
            del self.order[bisect_left(self.order, old)]
        if new is not None:
            self._ranks[name] = new
            insort(self.order, new)


class PoolView:
    """The nodes of one pool."""

    def __init__(self, key: PoolKey, weights: Weights | None = None) -> None:
        self.key = key
        self.nodes: dict[str, NodeView] = {}
        self._weights = weights if weights is not None else weighted(DEFAULT_WEIGHTS)
        self._real = 0
        self._rankings: OrderedDict[Request, Ranking] = OrderedDict()

    @property
    def ground(self) -> Ground:
        """What filters and scorers look at beside the node."""
        return Ground(self.key.accelerator, self._real > 0)

    def put(self, node: NodeView) -> None:
        """Add a node or replace its view."""
        self._replace(node.name, node)

    def drop(self, name: str) -> None:
        """Forget a node; unknown ones are no matter."""
        self._replace(name, None)

    def ranking(self, request: Request) -> Ranking:
        """The order of nodes for a request; kept and moved along with the nodes."""
        kept = self._rankings.get(request)
        if kept is None:
            kept = self._rankings[request] = Ranking(request, self.ground, self._weights, self.nodes.values())
            if len(self._rankings) > _RANKINGS_KEPT:
                self._rankings.popitem(last=False)
        else:
            self._rankings.move_to_end(request)
        return kept

    def score(self, request: Request, node: NodeView) -> float:
        """How good a node is for a request it can take."""
        return score(request, node, self.ground, self._weights)

    def _replace(self, name: str, node: NodeView | None) -> None:
        old = self.nodes.pop(name, None)
        had_real = self._real > 0
        self._real -= old is not None and not old.facts.simulated
        if node is not None:
            self.nodes[name] = node
            self._real += not node.facts.simulated
        if had_real != (self._real > 0):
            self._rankings.clear()  # whether simulated nodes count has changed for every request
        for ranking in self._rankings.values():
            ranking.changed(name, node)


class _Candidates:
    """One request's place in the order during a trial: the ranking as it was, and nodes that changed since."""

    __slots__ = ("changed", "position", "ranking", "seen")

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.position = 0
        self.seen = 0
        """How many of the trial's steps are in `changed`."""
        self.changed: list[tuple[_Rank, int]] = []
        """A heap of (rank, step): stale once the node took another step."""


class Trial:
    """Reservations on top of a pool that stays as it is."""

    def __init__(self, pool: PoolView) -> None:
        self.pool = pool
        self.kept = ""
        """A node that is kept for a workload which has waited long: nobody else gets it in this cycle."""
        self._nodes: dict[str, NodeView] = {}
        self._steps: list[str] = []
        self._last: dict[str, int] = {}
        self._candidates: dict[Request, _Candidates] = {}

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Every node as it would be now."""
        return {**self.pool.nodes, **self._nodes}

    def node(self, name: str) -> NodeView | None:
        """One node as it would be now."""
        return self._nodes.get(name) or self.pool.nodes.get(name)

    def best(self, request: Request) -> NodeView | None:
        """The best node that can take the request; None when none can."""
        candidates = self._candidates.get(request)
        if candidates is None:
            candidates = self._candidates[request] = _Candidates(self.pool.ranking(request))
        self._catch_up(candidates)
        untouched, touched = self._untouched(candidates), self._touched(candidates)
        if untouched is None or (touched is not None and touched < untouched):
            return self._nodes[touched[1]] if touched is not None else None
        return self.pool.nodes[untouched[1]]

    def reserve(self, node: NodeView, request: Request) -> tuple[str, ...]:
        """Take what the request asks for from a node; returns the cards."""
        self._nodes[node.name], cards = node.with_reservation(request, self.pool.key.accelerator)
        self._last[node.name] = len(self._steps)
        self._steps.append(node.name)
        return cards

    def _catch_up(self, candidates: _Candidates) -> None:
        for step in range(candidates.seen, len(self._steps)):
            name = self._steps[step]
            if self._last[name] == step:
                rank = candidates.ranking.rank(self._nodes[name])
                if rank is not None:
                    heappush(candidates.changed, (rank, step))
        candidates.seen = len(self._steps)

    def _untouched(self, candidates: _Candidates) -> _Rank | None:
        order, at = candidates.ranking.order, candidates.position
        while at < len(order) and order[at][1] in self._nodes:
            at += 1
        candidates.position = at
        while at < len(order) and (order[at][1] == self.kept or order[at][1] in self._nodes):
            at += 1
        return order[at] if at < len(order) else None

    def _touched(self, candidates: _Candidates) -> _Rank | None:
        heap = candidates.changed
        while heap and (self._last[heap[0][0][1]] != heap[0][1] or heap[0][0][1] == self.kept):
            heappop(heap)
        return heap[0][0] if heap else None
