"""The next step of a Pod that belongs to no deployment: wait at its queue, run, end, go.

The Pod's own revision orders its decisions: it is bound in a commit that requires its Workload as it was read, and its
Workload is taken back with the commit that removes it. Pure. Read next: pods.py.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.deployer.domain import observed
from services.deployer.domain.names import pod_workload_uid
from services.deployer.domain.pods import scheduled
from services.deployer.domain.render import allocated, assigned
from services.deployer.domain.steps import Cancel, Outcome
from shared.commands.workload import SubmitWorkload
from shared.resources.base import Metadata, get_condition
from shared.resources.core import Pod, PodTemplate
from shared.resources.deployment import ANNOTATION_ALLOCATED, ANNOTATION_WORKLOAD, ANNOTATION_WORKLOAD_UID
from shared.resources.pool import LABEL_QUEUE
from shared.resources.workload import QUOTA_RESERVED, PodSet, Workload, WorkloadSpec

WAITING = "WaitingForAdmission"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do with one Pod."""

    submit: SubmitWorkload | None = None
    pod: Pod | None = None
    """Its new state."""
    binds: Workload | None = None
    """The Workload that `pod` relies on."""
    stop: bool = False
    remove: bool = False
    cancel: Cancel | None = None


def step(pod: Pod, workload: Workload | None, *, nodes: AbstractSet[str], resync: bool, now: datetime) -> Step | None:
    """The next step; None when there is nothing to do. `workload` is the one of the Pod's name."""
    own = workload if workload is not None and workload.uid == pod_workload_uid(pod.uid) else None
    if pod.deleting:
        return Step(remove=True, cancel=_cancel(own, "Cancelled")) if observed.gone(pod, nodes) else None
    if pod.status.finished:
        needed = own is not None and not observed.finished(own)
        return (
            Step(cancel=_cancel(own, "Failed" if pod.status.finished == "Failed" else "Succeeded")) if needed else None
        )
    if pod.spec.node_name:
        lost = pod.spec.node_name not in nodes or not observed.carries(own, pod)
        return Step(stop=True) if lost else None
    if own is None:
        return Step(submit=_submit(pod)) if workload is None and (resync or not _submitted(pod)) else None
    if observed.admitted(own):
        return Step(pod=_bound(pod, own, now), binds=own)
    return _waiting(pod, own, now)


def submitted(pod: Pod, now: datetime) -> Pod:
    """The Pod once its Workload was asked for."""
    conditions = scheduled(pod.status.conditions, bound=False, reason=WAITING, message="waits at its queue", now=now)
    return pod.model_copy(update={"status": pod.status.model_copy(update={"conditions": conditions})})


def _submitted(pod: Pod) -> bool:
    return get_condition(pod.status.conditions, "PodScheduled") is not None


def _cancel(workload: Workload | None, outcome: Outcome) -> Cancel | None:
    return Cancel(workload.name, workload.uid, outcome) if workload is not None else None


def _submit(pod: Pod) -> SubmitWorkload:
    spec = pod.spec
    template = PodTemplate(metadata=Metadata(labels=pod.metadata.labels), spec=spec)
    workload = WorkloadSpec(
        queue_name=pod.metadata.labels.get(LABEL_QUEUE, ""),
        pod_sets=[PodSet(name="main", count=1, template=template)],
        priority=spec.priority or 0,
        priority_class_name=spec.priority_class_name or "",
    )
    body: dict[str, Any] = workload.model_dump(mode="json", by_alias=True, exclude_none=True)
    return SubmitWorkload(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod_workload_uid(pod.uid),
        spec=body,
        owner_kind="Pod",
        owner_name=pod.name,
        owner_uid=pod.uid,
        labels=pod.metadata.labels,
    )


def _bound(pod: Pod, workload: Workload, now: datetime) -> Pod:
    assignment = assigned(workload)
    assert assignment is not None, "admitted means assigned"
    annotations = {
        **pod.metadata.annotations,
        ANNOTATION_WORKLOAD: workload.name,
        ANNOTATION_WORKLOAD_UID: workload.uid,
        ANNOTATION_ALLOCATED: allocated(assignment),
    }
    conditions = scheduled(pod.status.conditions, bound=True, now=now)
    return pod.model_copy(
        update={
            "metadata": pod.metadata.model_copy(update={"annotations": annotations}),
            "spec": pod.spec.model_copy(update={"node_name": assignment.node_name}),
            "status": pod.status.model_copy(update={"conditions": conditions}),
        }
    )


def _waiting(pod: Pod, workload: Workload, now: datetime) -> Step | None:
    told = get_condition(workload.status.conditions, QUOTA_RESERVED)
    if told is None or told.status == "True":
        return None
    conditions = scheduled(
        pod.status.conditions, bound=False, reason=told.reason or WAITING, message=told.message, now=now
    )
    if conditions == pod.status.conditions:
        return None
    return Step(pod=pod.model_copy(update={"status": pod.status.model_copy(update={"conditions": conditions})}))
