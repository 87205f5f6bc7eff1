"""What one node should run: its bound Pods, and those of them that must stop.

Pure. Read next: ../agent/pods.py, which makes it so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.deployer.domain.render import assigned
from shared.queries import StoppingPod, WantedPod
from shared.resources.artifact import NodeModel, NodeModelStore
from shared.resources.core import Node, Pod
from shared.resources.deployment import (
    ANNOTATION_ALLOCATED,
    ANNOTATION_DIGEST,
    ANNOTATION_ENGINE,
    ANNOTATION_MODEL,
    ANNOTATION_WORKLOAD,
)
from shared.resources.pool import LABEL_SIMULATED
from shared.resources.workload import Workload

MEMBER_UNKNOWN = "the node is not (yet) a member"


def refusal(node: Node | None, machine_id: str) -> str:
    """Why an agent does not speak for the node; empty when it does. An unknown node must not stop what it runs."""
    if node is None:
        return MEMBER_UNKNOWN
    known = node.status.node_info.machine_id
    if known and machine_id != known:
        return f"node {node.name} is another machine ({known[:8]}...); this one is {machine_id[:8]}..."
    return ""


def wanted(pod: Pod, workload: Workload | None, node: Node, store: NodeModelStore | None) -> WantedPod:
    """One Pod as its agent needs it."""
    notes = pod.metadata.annotations
    digest = notes.get(ANNOTATION_DIGEST, "")
    path = model_path(store, digest) if digest else ""
    simulated = node.metadata.labels.get(LABEL_SIMULATED) == "true"
    assignment = assigned(workload) if workload is not None else None
    return WantedPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        pod=_body(pod),
        workload=notes.get(ANNOTATION_WORKLOAD, ""),
        runtime="simulated" if simulated else "process",
        engine=notes.get(ANNOTATION_ENGINE, ""),
        served_model=notes.get(ANNOTATION_MODEL, ""),
        model_path=path,
        hold="the weights are not on this node yet" if digest and not path else "",
        devices=[device for device in notes.get(ANNOTATION_ALLOCATED, "").split(",") if device],
        credits=assignment.credits if assignment else 0,
        cpu_milli=assignment.cpu_milli if assignment else 0,
        memory_bytes=assignment.memory_bytes if assignment else 0,
    )


def stopping(pod: Pod) -> StoppingPod:
    """One Pod that must end."""
    asked = pod.metadata.deletion_grace_period_seconds
    grace = asked or pod.spec.termination_grace_period_seconds
    return StoppingPod(uid=pod.uid, namespace=pod.namespace, name=pod.name, grace_seconds=grace)


def model_path(store: NodeModelStore | None, digest: str) -> str:
    """Where verified weights lie on the node; empty while they do not."""
    models: Iterable[NodeModel] = store.status.models if store is not None else ()
    return next((model.path for model in models if model.digest == digest and model.state == "Ready"), "")


def copies(stores: Mapping[str, NodeModelStore], digest: str) -> dict[str, tuple[str, str]]:
    """Node -> (state, message) of one set of weights."""
    return {
        node: (model.state, model.message or model.reason)
        for node, store in stores.items()
        for model in store.status.models
        if model.digest == digest
    }


def _body(pod: Pod) -> dict[str, object]:
    """Without the status: an agent needs none, and a report must not change what it is asked to run."""
    return pod.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
