"""A Pod's status from what its node's agent reports, and the facts that go with the change.

Pure. Read next: plain.py, for Pods without a deployment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from services.deployer.domain.observed import READY, STOPPED
from shared.clock import rfc3339
from shared.events import deployment as events
from shared.messages.base import Fact
from shared.reports import PodState
from shared.resources.base import Condition, OwnerReference, get_condition, is_true, set_condition
from shared.resources.core import ContainerState, ContainerStatus, Endpoint, Pod, PodStatus
from shared.resources.deployment import ANNOTATION_MODEL, ANNOTATION_WORKLOAD, LABEL_COMPONENT

SCHEDULED, INITIALIZED, CONTAINERS_READY = "PodScheduled", "Initialized", "ContainersReady"
NODE_LOST, TERMINATING = "NodeLost", "Terminating"
WAITING_REASON = "ContainerCreating"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where a state comes from."""

    sequence: int
    node_lost: bool
    now: datetime


def observe(pod: Pod, state: PodState | None, report: Report) -> tuple[PodStatus, tuple[Fact, ...]] | None:
    """The status after a report that has (or lacks) the Pod; None when nothing changed or the report is not newer."""
    old = pod.status
    if report.sequence <= old.observed_sequence or is_true(old.conditions, STOPPED):
        return None
    new = _absent(pod, report) if state is None else _seen(pod, state, report)
    if new == old:
        return None
    return new.model_copy(update={"observed_sequence": report.sequence}), facts(pod, new)


def with_node(pod: Pod, *, lost: bool, now: datetime) -> tuple[PodStatus, tuple[Fact, ...]] | None:
    """The status after its node fell silent or spoke again; None when nothing changed."""
    if not pod.status.container_statuses or is_true(pod.status.conditions, STOPPED):
        return None
    ready, why = _may_serve(pod, ready=pod.status.container_statuses[0].ready, why=_why(pod.status))
    conditions = _ready_conditions(
        pod.status.conditions, ready=ready, why=why, report=Report(sequence=0, node_lost=lost, now=now)
    )
    new = pod.status.model_copy(update={"conditions": conditions})
    return None if new == pod.status else (new, facts(pod, new))


def scheduled(
    conditions: list[Condition], *, bound: bool, reason: str = "", message: str = "", now: datetime
) -> list[Condition]:
    """With PodScheduled as it is."""
    told = Condition(type=SCHEDULED, status="True" if bound else "False", reason=reason, message=message)
    return set_condition(conditions, told, now)


def owner_of(pod: Pod) -> OwnerReference | None:
    """The deployment that a Pod belongs to."""
    return next((o for o in pod.metadata.owner_references if o.kind == "ModelDeployment" and o.controller), None)


def facts(pod: Pod, new: PodStatus) -> tuple[Fact, ...]:
    """What happened between two states: started, ready, unready, failed, finished, stopped; none twice."""
    return tuple(_facts(pod, new))


def _facts(pod: Pod, new: PodStatus) -> Iterable[Fact]:
    old, tell = pod.status, _Teller(pod)
    before, after = _container(old), _container(new)
    if after.state.running is not None and (
        before.state.running is None or before.restart_count != after.restart_count
    ):
        yield tell.started()
    if _failures(after) > _failures(before):
        yield tell.failed(after)
    was_ready, is_ready = is_true(old.conditions, READY), is_true(new.conditions, READY)
    if is_ready and not was_ready:
        yield tell.ready(new)
    if was_ready and not is_ready:
        yield from tell.unready(new)
    if new.finished == "Succeeded" and not old.finished:
        yield from tell.finished()
    if is_true(new.conditions, STOPPED) and not is_true(old.conditions, STOPPED):
        yield tell.stopped()


class _Teller:
    """Words the facts of one Pod, of a replica or of a Pod on its own."""

    def __init__(self, pod: Pod) -> None:
        owner = owner_of(pod)
        self._replica = owner is not None
        self._about: dict[str, Any] = {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "node": pod.spec.node_name,
            "workload": pod.metadata.annotations.get(ANNOTATION_WORKLOAD, ""),
        }
        if owner is not None:
            self._about["deployment"] = owner.name
            self._about["role"] = pod.metadata.labels.get(LABEL_COMPONENT, "")
            self._about["model"] = pod.metadata.annotations.get(ANNOTATION_MODEL, "")

    def started(self) -> Fact:
        return (events.ReplicaStarted if self._replica else events.PodStarted)(**self._about)

    def ready(self, new: PodStatus) -> Fact:
        if not self._replica:
            return events.PodReady(**self._about)
        at = new.endpoint
        return events.ReplicaReady(**self._about, address=at.address if at else "", port=at.port if at else 0)

    def unready(self, new: PodStatus) -> Iterable[Fact]:
        told = get_condition(new.conditions, READY)
        if self._replica and told is not None:
            yield events.ReplicaUnready(**self._about, reason=told.reason, message=told.message)

    def failed(self, container: ContainerStatus) -> Fact:
        ended = container.state.terminated or container.last_state.terminated or {}
        about = {**self._about, "reason": ended.get("reason", "Error"), "message": ended.get("message", "")}
        if self._replica:
            return events.ReplicaFailed(**about, exit_code=ended.get("exitCode"), restarts=container.restart_count)
        return events.PodFailed(**about, exit_code=ended.get("exitCode"))

    def finished(self) -> Iterable[Fact]:
        if not self._replica:
            yield events.PodFinished(**self._about)

    def stopped(self) -> Fact:
        return (events.ReplicaStopped if self._replica else events.PodStopped)(**self._about)


def _container(status: PodStatus) -> ContainerStatus:
    return status.container_statuses[0] if status.container_statuses else ContainerStatus(name="")


def _failures(container: ContainerStatus) -> int:
    """How often it ended with an error, as far as the state tells."""
    ended = container.state.terminated or container.last_state.terminated
    bad = ended is not None and (ended.get("exitCode") != 0 or bool(ended.get("signal")))
    count = container.restart_count + (1 if container.state.terminated or container.state.waiting else 0)
    return count if bad else 0


def _seen(pod: Pod, state: PodState, report: Report) -> PodStatus:
    old = pod.status
    if state.phase == "Stopped":
        return _stopped(pod, report)
    container = _container_status(pod, state)
    conditions = scheduled(old.conditions, bound=True, now=report.now)
    conditions = set_condition(conditions, Condition(type=INITIALIZED, status="True"), report.now)
    ready, why = _may_serve(pod, ready=container.ready, why=(state.reason, state.message))
    conditions = _ready_conditions(conditions, ready=ready, why=why, report=report)
    for kind in state.conditions:
        conditions = set_condition(conditions, Condition(type=kind, status="True", reason=kind), report.now)
    finished = state.phase if state.phase in _ENDED else ""
    return old.model_copy(
        update={
            "host_ip": state.address or old.host_ip,
            "pod_ip": state.address or old.pod_ip,
            "start_time": old.start_time or _moment(state.started_unix),
            "container_statuses": [container],
            "conditions": conditions,
            "endpoint": _endpoint(pod, state),
            "finished": old.finished or finished,
        }
    )


def _container_status(pod: Pod, state: PodState) -> ContainerStatus:
    spec = pod.spec.containers[0]
    ended = _terminated(state)
    running = state.phase == "Running"
    current = ContainerState()
    if running:
        # Left out while unknown: kubectl cannot read an empty time.
        started = _text(state.started_unix)
        current = ContainerState(running={"startedAt": started} if started else {})
    elif state.phase in _ENDED:
        current, ended = ContainerState(terminated=ended or {"exitCode": 0, "reason": "Completed"}), None
    else:
        waiting = {"reason": state.reason or WAITING_REASON, "message": state.message}
        current = ContainerState(waiting={name: text for name, text in waiting.items() if text})
    return ContainerStatus(
        name=spec.name,
        image=spec.image,
        ready=running and state.ready,
        started=running,
        restart_count=state.restarts,
        container_id=f"{state.uid}/{state.restarts}" if running else "",
        state=current,
        last_state=ContainerState(terminated=ended) if ended else ContainerState(),
    )


def _terminated(state: PodState) -> dict[str, Any] | None:
    """How it ended last, with the end of its log; None when it has not ended, or nobody knows how."""
    if state.exit_code is None and state.signal is None:
        return None
    ended: dict[str, Any] = {"exitCode": state.exit_code if state.exit_code is not None else 128 + (state.signal or 0)}
    if state.signal:
        ended["signal"] = state.signal
    ended["reason"] = "Completed" if ended["exitCode"] == 0 else "Error"
    if state.message:
        ended["message"] = state.message
    return ended


def _may_serve(pod: Pod, *, ready: bool, why: tuple[str, str]) -> tuple[bool, tuple[str, str]]:
    """One that must stop never becomes ready; one that is ready stays it until it has stopped."""
    if ready and pod.deleting and not is_true(pod.status.conditions, READY):
        return False, (TERMINATING, "it is being stopped")
    return ready, why


def _ready_conditions(
    conditions: list[Condition], *, ready: bool, why: tuple[str, str], report: Report
) -> list[Condition]:
    reason, message = why
    contained = Condition(
        type=CONTAINERS_READY,
        status="True" if ready else "False",
        reason="" if ready else reason,
        message="" if ready else message,
    )
    conditions = set_condition(conditions, contained, report.now)
    whole = contained.model_copy(update={"type": READY})
    if report.node_lost:
        sentence = "nothing is heard of its node; it may still run there"
        whole = Condition(type=READY, status="Unknown", reason=NODE_LOST, message=sentence)
    return set_condition(conditions, whole, report.now)


def _stopped(pod: Pod, report: Report) -> PodStatus:
    """Confirmed: it serves nobody, its endpoint is void, its devices can be given back."""
    reason, sentence = "Stopped", "the node has stopped it"
    conditions = _ready_conditions(
        pod.status.conditions,
        ready=False,
        why=(reason, sentence),
        report=Report(sequence=0, node_lost=False, now=report.now),
    )
    told = Condition(type=STOPPED, status="True", reason="ConfirmedByNode", message=sentence)
    containers = [c.model_copy(update={"ready": False, "started": False}) for c in pod.status.container_statuses]
    return pod.status.model_copy(
        update={
            "conditions": set_condition(conditions, told, report.now),
            "container_statuses": containers,
            "endpoint": None,
        }
    )


def _absent(pod: Pod, report: Report) -> PodStatus:
    """Not in its node's full report: not started there yet, or forgotten with the node's disk."""
    if not pod.status.container_statuses or pod.status.finished:
        return pod.status
    waiting = {"reason": WAITING_REASON, "message": "its node does not have it (any more)"}
    container = pod.status.container_statuses[0].model_copy(
        update={"ready": False, "started": False, "state": ContainerState(waiting=waiting)}
    )
    conditions = _ready_conditions(
        pod.status.conditions, ready=False, why=(waiting["reason"], waiting["message"]), report=report
    )
    return pod.status.model_copy(update={"container_statuses": [container], "conditions": conditions, "endpoint": None})


def _why(status: PodStatus) -> tuple[str, str]:
    told = get_condition(status.conditions, CONTAINERS_READY)
    return (told.reason, told.message) if told is not None else ("", "")


def _endpoint(pod: Pod, state: PodState) -> Endpoint | None:
    if not state.address or not state.port or state.phase != "Running":
        return None
    return Endpoint(address=state.address, port=state.port, path=state.path, token=state.token, replica_uid=pod.uid)


def _moment(unix: int | None) -> datetime | None:
    return datetime.fromtimestamp(unix, UTC) if unix is not None else None


def _text(unix: int | None) -> str:
    moment = _moment(unix)
    return rfc3339(moment) if moment is not None else ""
