"""What admission looks at, kept from the log: nodes, pools, queues, InstanceTypes; and who wants to know of changes.

Every copy of the service keeps one; it holds nothing that the documents do not say. Read next: nodes.py, workloads.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from services.scheduler.domain import status
from services.scheduler.domain.admission import Snapshot, Told, TypeState
from services.scheduler.domain.ledger import Holding
from services.scheduler.domain.nodes import facts_of
from services.scheduler.domain.pools import NO_POOL, PoolKey, pool_of
from services.scheduler.domain.queue import Demand
from services.scheduler.domain.scorers import Weights
from services.scheduler.projections.nodes import NodeBook
from services.scheduler.projections.workloads import Lookups, WorkloadBook
from shared.resources.access import SETTINGS, SETTINGS_NAMESPACE
from shared.resources.core import Node
from shared.resources.device import Devices, OrphanHolding
from shared.resources.pool import InstanceType
from shared.store.cache import DELETED, MODIFIED, Change, DocumentCache
from shared.store.documents import Document

KINDS = (
    "Namespace", "Setting", "Node", "Devices", "NodeModelStore", "ModelArtifact", "InstanceType", "InstanceTypeFlavor",
    "LocalQueue", "Workload",
)  # fmt: skip
"""What the cache must hold, in an order in which each needs only the ones before."""
_SHAPING = frozenset({"Namespace", "Setting", "Node"})
"""Kinds of which any change may change which pools and entrances there are."""
_SHAPED = frozenset({"InstanceType", "InstanceTypeFlavor", "LocalQueue"})
"""Kinds that are made and removed by that; a mere new status of one changes nothing."""
MIXED = "instance-type-mixed-on-node"
DERIVED = "instance-type-derived-from-node"


class Board:
    """One per process; read it only on the event loop."""

    def __init__(self, cache: DocumentCache, weights: Weights) -> None:
        self.cache = cache
        self.nodes = NodeBook(weights)
        self.workloads = WorkloadBook(Lookups(self.type_of, self.pool_of, self._digest_of))
        self.types: dict[str, TypeState] = {}
        self.shape_changed = True
        """Something that pools and entrances follow from has changed."""
        self.on_pool: Callable[[PoolKey], None] = lambda _: None
        """Called when a pool's nodes or queue changed."""
        self.on_views: Callable[[], None] = lambda: None
        """Called when something that users see of capacity changed."""
        self._pools: dict[str, PoolKey] = {}
        self._epoch = ""
        self._take: Mapping[str, Callable[[Change], None]] = {
            "Node": self._node,
            "Devices": self._devices,
            "NodeModelStore": self._artifacts,
            "ModelArtifact": self._artifact,
            "InstanceType": self._type,
            "LocalQueue": self._entrance,
            "Workload": self._workload,
            "Setting": self._setting,
        }
        cache.listen(self._changed)

    def snapshot(self, pool: PoolKey, told: Mapping[Demand, Told]) -> Snapshot:
        """What one cycle decides on."""
        self.refresh()
        return Snapshot(self.nodes.pool(pool), self.workloads.queue(pool), self.types, told)

    def refresh(self) -> None:
        """Bring every view up to date."""
        if self.cache.epoch != self._epoch:
            self._epoch = self.cache.epoch
            self.nodes.touch_all()
        self.nodes.refresh(self._epoch)

    def pool_keys(self) -> list[PoolKey]:
        """Every pool that has nodes, a type or a queue, and the one of workloads without a queue; by name."""
        self.refresh()
        found = {key for key, pool in self.nodes.pools.items() if pool.nodes}
        found |= set(self._pools.values()) | {key for key, queue in self.workloads.queues.items() if len(queue)}
        return sorted(found | {NO_POOL})

    def type_of(self, namespace: str, entrance: str) -> str:
        """The InstanceType behind an entrance; empty when there is none."""
        found = self.cache.get("LocalQueue", namespace, entrance)
        return str((found.body.get("spec") or {}).get("clusterQueue", "")) if found is not None else ""

    def pool_of(self, instance_type: str) -> PoolKey:
        """The pool an InstanceType names."""
        return self._pools.get(instance_type, NO_POOL)

    def types_on(self, pool: PoolKey) -> list[str]:
        """The InstanceTypes that name a pool."""
        return sorted(name for name, key in self._pools.items() if key == pool)

    def setting(self, name: str) -> str:
        """A setting's value in force."""
        found = self.cache.get("Setting", SETTINGS_NAMESPACE, name)
        value = (found.body.get("spec") or {}).get("value") if found is not None else None
        return SETTINGS[name] if value in {None, ""} else str(value)

    def _changed(self, change: Change) -> None:
        if change.kind in _SHAPING or (change.kind in _SHAPED and _is_made_or_going(change)):
            self.shape_changed = True
        take = self._take.get(change.kind)
        if take is not None:
            take(change)

    def _node(self, change: Change) -> None:
        name = change.key[1]
        if change.type == DELETED:
            self._wake_pools_of(name)
            self.nodes.drop(name)
        else:
            self._describe(name)
        self._wake_pools_of(name)

    def _devices(self, change: Change) -> None:
        name = change.key[1]
        new = {} if change.type == DELETED else change.document.body
        old = change.old.body if change.old is not None else {}
        if new.get("spec") != old.get("spec"):
            self.shape_changed = True
            self._describe(name)
        told = new.get("status") or {}
        orphans = [OrphanHolding.model_validate(orphan) for orphan in told.get("orphans") or ()]
        if self.nodes.mark(name, str(told.get("ledgerEpoch", "")), orphans) or new.get("spec") != old.get("spec"):
            self._wake_pools_of(name)

    def _read_devices(self, name: str) -> Devices | None:
        return self.cache.read("Devices", "", name, Devices)

    def _describe(self, name: str) -> None:
        node = self.cache.read("Node", "", name, Node)
        if node is not None:
            self.nodes.put(facts_of(node, self._read_devices(name)))

    def _wake_pools_of(self, node: str) -> None:
        before = self.nodes.pools_of(node)
        self.refresh()
        for key in {*before, *self.nodes.pools_of(node)}:
            self.on_pool(key)
        self.on_views()

    def _artifacts(self, change: Change) -> None:
        found: list[dict[str, Any]] = []
        if change.type != DELETED:
            found = (change.document.body.get("status") or {}).get("models") or []
        digests = frozenset(str(model["digest"]) for model in found if model.get("state") == "Ready")
        self.nodes.store_artifacts(change.key[1], digests)

    def _artifact(self, change: Change) -> None:
        for key in self.workloads.needing(change.key):
            self._place_again(key)

    def _digest_of(self, namespace: str, name: str) -> str:
        found = self.cache.get("ModelArtifact", namespace, name)
        resolved = (found.body.get("status") or {}).get("resolved") if found is not None else None
        return str((resolved or {}).get("manifestDigest", ""))

    def _type(self, change: Change) -> None:
        name = change.key[1]
        before = self._pools.get(name)
        if change.type == DELETED:
            self._pools.pop(name, None)
            self.types.pop(name, None)
        else:
            found = self.cache.read("InstanceType", "", name, InstanceType)
            assert found is not None, "the document is in the cache when listeners hear of it"
            self._pools[name] = pool_of(found.spec)
            self.types[name] = TypeState(found.spec.inactive, found.deleting)
        if before != self._pools.get(name):
            for queue in self.cache.list("LocalQueue"):
                if (queue.body.get("spec") or {}).get("clusterQueue") == name:
                    self._requeue((queue.namespace, queue.name))
        for key in {before, self._pools.get(name)} - {None}:
            assert key is not None
            self.on_pool(key)
        self.on_views()

    def _entrance(self, change: Change) -> None:
        before = change.old.body.get("spec") if change.old is not None else None
        if change.type == MODIFIED and before == change.document.body.get("spec"):
            return  # how many wait and run behind it, written by the steward
        self._requeue(change.key)
        self.workloads.unpublished.add(change.key)

    def _requeue(self, entrance: tuple[str, str]) -> None:
        for key in self.workloads.behind(entrance):
            self._place_again(key)

    def _place_again(self, key: tuple[str, str]) -> None:
        document = self.cache.get("Workload", *key)
        if document is not None:
            self._queued(document)

    def _workload(self, change: Change) -> None:
        if change.type == DELETED:
            freed = self.nodes.hold(change.key, ())
            pool = self.workloads.drop(change.key)
            if pool is not None:
                self.on_pool(pool)
        else:
            self._queued(change.document)
            freed = self.nodes.hold(change.key, status.holdings(change.document.body))
        self._wake_freed(freed)
        self.on_views()

    def _queued(self, document: Document) -> None:
        pool = self.workloads.put(document)
        if pool is not None:
            self.on_pool(pool)

    def _wake_freed(self, freed: tuple[Holding, ...]) -> None:
        """Whoever waits may have what a workload held before."""
        if freed and any(state.deleting for state in self.types.values()):
            self.shape_changed = True  # a type goes when the last workload in it does
        for holding in freed:
            for key in self.nodes.pools_of(holding.node):
                self.on_pool(key)

    def _setting(self, change: Change) -> None:
        if change.key == (SETTINGS_NAMESPACE, MIXED):
            self.nodes.mix(mixed=self.setting(MIXED) != "false")
            for key in list(self.nodes.pools):
                self.on_pool(key)


def _is_made_or_going(change: Change) -> bool:
    return change.type != MODIFIED or change.document.deleting
