"""This process's copy of everything the deployer reads, indexed by owner and by node.

Must not decide or write. Read next: deployments.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TypeVar

from services.deployer.domain import rules_instance
from services.deployer.domain.observed import READY
from services.deployer.domain.pods import owner_of
from shared.clock import Clock
from shared.resources.artifact import NodeModelStore
from shared.resources.base import Resource, get_condition
from shared.resources.core import Node, Pod
from shared.resources.deployment import ModelDeployment
from shared.resources.pool import LABEL_SIMULATED
from shared.resources.workload import Workload
from shared.store.cache import DELETED, Change, DocumentCache
from shared.store.documents import Document

KINDS = (
    "ModelDeployment",
    "Pod",
    *rules_instance.KINDS,
    "Workload",
    "ModelArtifact",
    "NodeModelStore",
    "Node",
    "InstanceType",
    "Namespace",
)
NODE_SILENT = "NodeSilent"
"""Discovery's reason for a node that it declared lost."""
Key = tuple[str, str]
R = TypeVar("R", bound=Resource)


class View:
    """Reads of one process; documents and models are shared and must be treated as frozen."""

    def __init__(self, cache: DocumentCache, clock: Clock, replace_after: float = 0.0) -> None:
        """`replace_after` is how many seconds a node may be lost before its replicas are made elsewhere."""
        self.cache = cache
        self._clock = clock
        self._replace_after = replace_after
        self._pods_on: defaultdict[str, set[Key]] = defaultdict(set)
        self._pods_of: defaultdict[str, set[Key]] = defaultdict(set)
        self._workloads_of: defaultdict[str, set[Key]] = defaultdict(set)
        self._nodes: dict[str, bool] = {}
        """Node -> whether it is simulated."""
        self._lost: dict[str, float] = {}
        """Lost node -> when this process saw it, by its own clock."""
        cache.listen(self._changed)

    # Deployments

    def deployment(self, namespace: str, name: str) -> ModelDeployment | None:
        """One deployment."""
        return self.cache.read("ModelDeployment", namespace, name, ModelDeployment)

    def deployments(self) -> Iterator[ModelDeployment]:
        """All of them."""
        yield from self.cache.read_all("ModelDeployment", ModelDeployment)

    def pods_of(self, owner_uid: str) -> dict[str, Pod]:
        """The Pods of one deployment, by name."""
        return {pod.name: pod for pod in self._read("Pod", self._pods_of.get(owner_uid, ()), Pod)}

    def workloads_of(self, owner_uid: str) -> dict[str, Workload]:
        """The Workloads that one owner submitted, by name."""
        found = self._read("Workload", self._workloads_of.get(owner_uid, ()), Workload)
        return {workload.name: workload for workload in found}

    def owners(self) -> Iterator[tuple[str, str, str]]:
        """(namespace, name, uid) of every deployment that some Pod or Workload names, there or not."""
        for pod in self.cache.read_all("Pod", Pod):
            owner = owner_of(pod)
            if owner is not None:
                yield pod.namespace, owner.name, owner.uid
        for workload in self.cache.read_all("Workload", Workload):
            for reference in workload.metadata.owner_references:
                if reference.kind == "ModelDeployment":
                    yield workload.namespace, reference.name, reference.uid

    def taken(self, namespace: str, name: str) -> bool:
        """Whether a Pod or Workload has a name."""
        return any(self.cache.get(kind, namespace, name) is not None for kind in ("Pod", "Workload"))

    # Pods

    def pod(self, namespace: str, name: str) -> Pod | None:
        """One Pod."""
        return self.cache.read("Pod", namespace, name, Pod)

    def document(self, pod: Pod) -> Document:
        """The stored form of a Pod that was just read."""
        found = self.cache.get("Pod", pod.namespace, pod.name)
        assert found is not None, "nothing is awaited between reading a Pod and its document"
        return found

    def pods_on(self, node: str) -> list[Pod]:
        """The Pods that are bound to one node, by namespace and name."""
        return list(self._read("Pod", sorted(self._pods_on.get(node, ())), Pod))

    def plain_pods(self) -> Iterator[Pod]:
        """The Pods that belong to no deployment."""
        return (pod for pod in self.cache.read_all("Pod", Pod) if owner_of(pod) is None)

    def workload(self, namespace: str, name: str) -> Workload | None:
        """One Workload."""
        return self.cache.read("Workload", namespace, name, Workload)

    # Nodes

    @property
    def nodes(self) -> AbstractSet[str]:
        """All members; changes as they come and go."""
        return self._nodes.keys()

    @property
    def simulated(self) -> bool:
        """Whether some member is simulated."""
        return any(self._nodes.values())

    def node(self, name: str) -> Node | None:
        """One node."""
        return self.cache.read("Node", "", name, Node)

    def is_lost(self, node: str) -> bool:
        """Whether nothing is heard of a node."""
        return node in self._lost

    def given_up(self) -> frozenset[str]:
        """Nodes that are lost long enough for their replicas to be made elsewhere."""
        now = self._clock.monotonic()
        return frozenset(node for node, since in self._lost.items() if now - since >= self._replace_after)

    def model_store(self, node: str) -> NodeModelStore | None:
        """What weights a node holds."""
        return self.cache.read("NodeModelStore", "", node, NodeModelStore)

    def model_stores(self, nodes: Iterable[str]) -> dict[str, NodeModelStore]:
        """The same for several."""
        return {node: found for node in nodes if (found := self.model_store(node)) is not None}

    # Keeping the indexes

    def _read(self, kind: str, keys: Iterable[Key], model: type[R]) -> Iterator[R]:
        for namespace, name in keys:
            found = self.cache.read(kind, namespace, name, model)
            if found is not None:
                yield found

    def _changed(self, change: Change) -> None:
        if change.kind == "Pod":
            self._index(change, self._pods_on, _node_of)
            self._index(change, self._pods_of, _owner_uid)
        elif change.kind == "Workload":
            self._index(change, self._workloads_of, _owner_uid)
        elif change.kind == "Node":
            self._node_changed(change)

    def _index(self, change: Change, index: defaultdict[str, set[Key]], value_of: Callable[[Document], str]) -> None:
        before = value_of(change.old) if change.old is not None else ""
        after = value_of(change.document) if change.type != DELETED else ""
        if before and before != after:
            index[before].discard(change.key)
            if not index[before]:
                del index[before]
        if after:
            index[after].add(change.key)

    def _node_changed(self, change: Change) -> None:
        name = change.key[1]
        if change.type == DELETED:
            self._nodes.pop(name, None)
            self._lost.pop(name, None)
            return
        node = change.document.read(Node)
        self._nodes[name] = node.metadata.labels.get(LABEL_SIMULATED) == "true"
        told = get_condition(node.status.conditions, READY)
        if told is not None and told.status != "True" and told.reason == NODE_SILENT:
            self._lost.setdefault(name, self._clock.monotonic())
        else:
            self._lost.pop(name, None)


def _node_of(document: Document) -> str:
    return str((document.body.get("spec") or {}).get("nodeName") or "")


def _owner_uid(document: Document) -> str:
    references = (document.body.get("metadata") or {}).get("ownerReferences") or ()
    return next((str(r.get("uid", "")) for r in references if r.get("kind") in {"ModelDeployment", "Pod"}), "")
