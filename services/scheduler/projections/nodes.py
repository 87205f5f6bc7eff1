"""Every node with what is held on it, and the pools they form; views are rebuilt lazily, node by node.

Written by board.py alone. Read next: ../domain/nodes.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from services.scheduler.domain.ledger import Holding, Used
from services.scheduler.domain.nodes import NodeFacts, NodeView, view_of
from services.scheduler.domain.orphans import holding_of
from services.scheduler.domain.pools import PoolKey, pools_of
from services.scheduler.domain.scorers import Weights
from services.scheduler.domain.snapshot import PoolView
from shared.resources.device import OrphanHolding

Key = tuple[str, str]
"""(namespace, name) of a Workload."""


class NodeBook:
    """Nodes by name and pools by key."""

    def __init__(self, weights: Weights) -> None:
        self.facts: dict[str, NodeFacts] = {}
        self.pools: dict[PoolKey, PoolView] = {}
        self.unpublished: set[str] = set()
        """Nodes whose use changed since somebody took this set."""
        self._weights = weights
        self._mixed = True
        self._members: dict[str, tuple[PoolKey, ...]] = {}
        self._epochs: dict[str, str] = {}
        self._orphans: dict[str, Sequence[OrphanHolding]] = {}
        self._artifacts: dict[str, frozenset[str]] = {}
        self._held: dict[str, dict[Key, list[Holding]]] = defaultdict(dict)
        self._places: dict[Key, tuple[Holding, ...]] = {}
        self._dirty: set[str] = set()

    def put(self, facts: NodeFacts) -> None:
        """A node as it is now."""
        self.facts[facts.name] = facts
        self._touch(facts.name)

    def drop(self, name: str) -> None:
        """A node that has no document any more; what is held there stays held."""
        self.facts.pop(name, None)
        self._touch(name)

    def mix(self, *, mixed: bool) -> None:
        """Whether nodes with cards are in the generic pool too."""
        if mixed != self._mixed:
            self._mixed = mixed
            self.touch_all()

    def mark(self, name: str, epoch: str, orphans: Sequence[OrphanHolding]) -> bool:
        """Under which epoch the node has told what runs there, and what of it has no Workload; whether that is new."""
        if self._epochs.get(name, "") == epoch and list(self._orphans.get(name, ())) == list(orphans):
            return False
        self._epochs[name] = epoch
        self._orphans[name] = tuple(orphans)
        self._touch(name)
        return True

    def store_artifacts(self, name: str, digests: frozenset[str]) -> None:
        """Verified weights on a node."""
        if self._artifacts.get(name, frozenset()) != digests:
            self._artifacts[name] = digests
            self._touch(name)

    def hold(self, workload: Key, holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
        """What a workload holds now, nothing forgets it; what it held before, if that was something else."""
        before = self._places.get(workload, ())
        if before == holdings:
            return ()
        for node in {holding.node for holding in before}:
            self._held[node].pop(workload, None)
            self._touch(node)
        for holding in holdings:
            self._held[holding.node].setdefault(workload, []).append(holding)
            self._touch(holding.node)
        self._places.pop(workload, None)
        if holdings:
            self._places[workload] = holdings
        return before

    def holdings_on(self, node: str) -> Iterable[tuple[Key, Holding]]:
        """Who holds what of one node."""
        return ((key, holding) for key, found in self._held.get(node, {}).items() for holding in found)

    def held_nodes(self) -> set[str]:
        """Nodes of which something is held, whether they exist or not."""
        return {name for name, found in self._held.items() if found}

    def used(self, node: str) -> Used:
        """What is held of one node in total, orphans included."""
        used = Used()
        for _, holding in self.holdings_on(node):
            used.add(holding)
        for orphan in self._orphans.get(node, ()):
            used.add(holding_of(node, orphan))
        return used

    def holders(self, node: str) -> dict[str, list[str]]:
        """Card to the names of who holds it."""
        found: dict[str, list[str]] = defaultdict(list)
        for (namespace, name), holding in self.holdings_on(node):
            for card in holding.cards:
                found[card].append(f"{namespace}/{name}")
        for orphan in self._orphans.get(node, ()):
            for card in orphan.devices:
                found[card].append(f"{orphan.namespace}/{orphan.name} (orphan)")
        return found

    def epoch_of(self, node: str) -> str:
        """Under which epoch the node has told what runs there."""
        return self._epochs.get(node, "")

    def pools_of(self, node: str) -> tuple[PoolKey, ...]:
        """The pools a node is in, as of the last refresh."""
        return self._members.get(node, ())

    def touch_all(self) -> None:
        """Every view is to be built anew."""
        for name in (*self.facts, *self._members):
            self._touch(name)

    def refresh(self, epoch: str) -> set[PoolKey]:
        """Bring the views of changed nodes up to date; the pools that changed."""
        changed: set[PoolKey] = set()
        while self._dirty:
            changed |= self._rebuild(self._dirty.pop(), epoch)
        return changed

    def take_unpublished(self) -> set[str]:
        """Nodes whose use changed since this was last asked."""
        taken, self.unpublished = self.unpublished, set()
        return taken

    def view(self, node: str, epoch: str) -> NodeView | None:
        """One node as it is now, whatever pools it is in."""
        facts = self.facts.get(node)
        if facts is None:
            return None
        confirmed = bool(epoch) and self.epoch_of(node) == epoch
        return view_of(facts, self.used(node), confirmed=confirmed, artifacts=self._artifacts.get(node, frozenset()))

    def _touch(self, name: str) -> None:
        self._dirty.add(name)
        self.unpublished.add(name)

    def _rebuild(self, name: str, epoch: str) -> set[PoolKey]:
        view = self.view(name, epoch)
        before = set(self._members.pop(name, ()))
        now = pools_of(view.facts, mixed=self._mixed) if view is not None else ()
        for key in before.difference(now):
            self.pools[key].drop(name)
        if view is None:
            return before
        self._members[name] = now
        for key in now:
            self.pool(key).put(view)
        return before.union(now)

    def pool(self, key: PoolKey) -> PoolView:
        """A pool, with nodes or without."""
        found = self.pools.get(key)
        if found is None:
            found = self.pools[key] = PoolView(key, self._weights)
        return found
