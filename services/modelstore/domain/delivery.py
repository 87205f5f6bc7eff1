"""Which node must hold which copies, and what a node's report means. Pure.

Derived from state alone: a copy is wanted on a node as long as a workload admitted there names its artifact.
Read next: services/modelstore/handlers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from services.modelstore.domain.lifecycle import Identity
from shared.events.artifact import ArtifactDelivering, ArtifactEvicted, ArtifactFailed, ArtifactReady
from shared.messages.base import Decision, Fact
from shared.reports import ModelsReported, ModelState
from shared.resources.artifact import (
    ArtifactNodes,
    ModelArtifact,
    NodeModel,
    NodeModelStore,
    NodeModelStoreStatus,
    StoreCapacity,
)
from shared.resources.base import Metadata, is_true
from shared.resources.workload import FINISHED, Workload

Artifacts = Mapping[tuple[str, str], ModelArtifact]
"""By (namespace, name)."""


def nodes_of(workload: Workload) -> frozenset[str]:
    """Where a live workload was admitted to; empty when it waits, ended, or needs no weights."""
    admission = workload.status.admission
    if admission is None or not workload.spec.artifact or is_true(workload.status.conditions, FINISHED):
        return frozenset()
    return frozenset(assignment.node_name for assignment in admission.pod_set_assignments)


def wanted_on(node: str, workloads: Iterable[Workload], artifacts: Artifacts) -> dict[str, ModelArtifact]:
    """The copies one node should hold: digest to an artifact that names it."""
    found: dict[str, ModelArtifact] = {}
    for workload in workloads:
        artifact = artifacts.get((workload.namespace, workload.spec.artifact))
        if artifact is not None and artifact.status.resolved is not None and node in nodes_of(workload):
            found.setdefault(artifact.status.resolved.manifest_digest, artifact)
    return found


def nodes_wanting(namespace: str, name: str, workloads: Iterable[Workload]) -> frozenset[str]:
    """The nodes that wait for one artifact."""
    waiting: frozenset[str] = frozenset()
    for workload in workloads:
        if (workload.namespace, workload.spec.artifact) == (namespace, name):
            waiting |= nodes_of(workload)
    return waiting


@dataclass(frozen=True, slots=True)
class Observed:
    """What a report changes."""

    store: NodeModelStore | None
    """None: nothing changed."""
    facts: tuple[Fact, ...] = ()
    digests: frozenset[str] = field(default_factory=frozenset)
    """Copies whose state moved: the counts of their artifacts are to be looked at."""


def observe(
    old: NodeModelStore | None, report: ModelsReported, named: Mapping[str, Sequence[ModelArtifact]]
) -> Observed:
    """Make a node's store what its agent reports; `named` tells the artifacts of each digest."""
    before = {model.digest: model for model in old.status.models} if old is not None else {}
    if old is not None and report.sequence <= old.status.observed_sequence:
        return Observed(None)
    models = [_model(state) for state in sorted(report.models, key=lambda state: state.digest)]
    facts: list[Fact] = []
    moved: set[str] = set()
    for model in models:
        was = before.get(model.digest)
        if was is None or (was.state, was.reason) != (model.state, model.reason):
            moved.add(model.digest)
            facts += [_fact(artifact, model, report.node) for artifact in named.get(model.digest, ())]
    for digest in before.keys() - {model.digest for model in models}:
        moved.add(digest)
        facts += [_evicted(artifact, digest, report.node) for artifact in named.get(digest, ())]
    return Observed(_store(old, report, models), tuple(facts), frozenset(moved))


def by_digest(stores: Iterable[NodeModelStore]) -> dict[str, list[tuple[str, NodeModel]]]:
    """All copies, each with its node."""
    found: dict[str, list[tuple[str, NodeModel]]] = {}
    for store in stores:
        for model in store.status.models:
            found.setdefault(model.digest, []).append((store.name, model))
    return found


def counts(copies: Iterable[tuple[str, NodeModel]], there: Callable[[str, str], int]) -> ArtifactNodes:
    """How many nodes hold, fetch or failed to fetch one digest; `there` tells the bytes of (node, digest) so far."""
    placed = list(copies)
    states = [model for _, model in placed]
    running = [(node, model) for node, model in placed if model.state == "Downloading"]
    parts = [there(node, model.digest) * 100 // max(1, model.size_bytes) for node, model in running]
    return ArtifactNodes(
        ready=sum(model.state == "Ready" for model in states),
        downloading=len(running),
        failed=sum(model.state == "Failed" for model in states),
        # Steps of five, so that a running delivery does not rewrite its artifact all the time.
        downloading_percent=sum(parts) // len(parts) // 5 * 5 if parts else None,
    )


def counted(artifact: ModelArtifact, nodes: ArtifactNodes) -> Decision[ModelArtifact]:
    """The artifact with its copies counted; nothing when the numbers stand."""
    if artifact.status.nodes == nodes:
        return Decision("AlreadyDone")
    status = artifact.status.model_copy(update={"nodes": nodes})
    return Decision("Counted", artifact.model_copy(update={"status": status}))


def ready_already(artifact: ModelArtifact, digest: str, stores: Iterable[NodeModelStore]) -> tuple[Fact, ...]:
    """Facts of an artifact whose bytes some nodes held before it was resolved."""
    copies = by_digest(stores).get(digest, ())
    return tuple(_fact(artifact, model, node) for node, model in copies if model.state == "Ready")


def _store(old: NodeModelStore | None, report: ModelsReported, models: list[NodeModel]) -> NodeModelStore:
    status = NodeModelStoreStatus(
        capacity=StoreCapacity(
            total_bytes=report.total_bytes,
            stored_bytes=report.stored_bytes,
            used_percent=report.used_percent // 5 * 5,
        ),
        models=models,
        observed_sequence=report.sequence,
    )
    if old is not None:
        return old.model_copy(update={"status": status})
    return NodeModelStore(
        api_version="worker.gpustack.ai/v1",
        kind="NodeModelStore",
        metadata=Metadata(name=report.node, generation=1),
        status=status,
    )


def _model(state: ModelState) -> NodeModel:
    retry = datetime.fromtimestamp(state.retry_unix, UTC) if state.retry_unix else None
    return NodeModel(
        digest=state.digest,
        state=state.state,
        size_bytes=state.size_bytes,
        downloaded_bytes=state.downloaded_bytes,
        source="Hub" if state.source == "Hub" else "",
        path=state.path,
        reason=state.reason,
        message=state.message,
        retry_time=retry,
    )


def _fact(artifact: ModelArtifact, model: NodeModel, node: str) -> Fact:
    about = {**Identity.of(artifact).fields(), "digest": model.digest, "node": node}
    if model.state == "Ready":
        return ArtifactReady(**about, path=model.path, size_bytes=model.size_bytes)
    if model.state == "Downloading":
        return ArtifactDelivering(**about, size_bytes=model.size_bytes)
    return ArtifactFailed(**about, reason=model.reason, message=model.message, retry=model.retry_time is not None)


def _evicted(artifact: ModelArtifact, digest: str, node: str) -> Fact:
    return ArtifactEvicted(**Identity.of(artifact).fields(), digest=digest, node=node)
