"""A Workload's status as JSON: written by patching what is stored, so that fields of other versions stay.

Works on JSON and not on models, because the admission cycle writes thousands of them a second. Pure.
Read next: lifecycle.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.scheduler.domain.ledger import Holding
from services.scheduler.domain.lifecycle import HOLDING, State, state_of
from shared.resources.workload import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, Assignment, WorkloadReason

Json = dict[str, Any]


def status_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The stored status; empty when there is none."""
    return body.get("status") or {}


def state(body: Mapping[str, Any]) -> State:
    """The state of a stored Workload."""
    return state_of(status_of(body).get("conditions") or ())


def told(body: Mapping[str, Any]) -> tuple[str, str]:
    """(reason, message) that a waiting workload was told; empty when nothing was said yet."""
    for condition in status_of(body).get("conditions") or ():
        if condition.get("type") == QUOTA_RESERVED:
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return "", ""


def holdings(body: Mapping[str, Any]) -> tuple[Holding, ...]:
    """What a stored Workload holds now; nothing unless it is admitted and not finished."""
    return tuple(_assigned(body)) if state(body) in HOLDING else ()


def assignments(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Where its Pods are, as JSON; also of a finished one."""
    admission = status_of(body).get("admission") or {}
    return admission.get("podSetAssignments") or ()


def held(body: Mapping[str, Any], *, reason: WorkloadReason, message: str, entered: int, now: str) -> Json:
    """The body of a workload that is told why it waits; `entered` is the revision at which it came."""
    status = dict(status_of(body))
    status.setdefault("queuedRevision", entered)
    status["conditions"] = _with(status, now, _condition(QUOTA_RESERVED, "False", reason, message, body))
    return {**body, "status": status}


def admitted(body: Mapping[str, Any], *, queue: str, assignment: Assignment, entered: int, now: str) -> Json:
    """The body of a workload that got its place."""
    status = dict(status_of(body))
    status.setdefault("queuedRevision", entered)
    count = len(assignment.devices)
    what = "1 card" if count == 1 else f"{count or 'no'} cards"
    sentence = f"on node {assignment.node_name} with {what}"
    status["admission"] = {"clusterQueue": queue, "podSetAssignments": [_assignment(assignment)]}
    status["conditions"] = _with(
        status,
        now,
        _condition(QUOTA_RESERVED, "True", WorkloadReason.ADMITTED, sentence, body),
        _condition(ADMITTED, "True", WorkloadReason.ADMITTED, sentence, body),
    )
    return {**body, "status": status}


def evicted(body: Mapping[str, Any], *, reason: str, message: str, now: str) -> Json:
    """The body of a workload that is asked to leave."""
    status = dict(status_of(body))
    status["conditions"] = _with(status, now, _condition(EVICTED, "True", reason, message, body))
    return {**body, "status": status}


def finished(body: Mapping[str, Any], *, reason: str, message: str, now: str) -> Json:
    """The body of a workload that is over; its admission stays to be read, and holds nothing."""
    status = dict(status_of(body))
    status["conditions"] = _with(status, now, _condition(FINISHED, "True", reason, message, body))
    return {**body, "status": status}


def finished_at(body: Mapping[str, Any]) -> str:
    """When it finished, as RFC 3339; empty when it did not."""
    for condition in status_of(body).get("conditions") or ():
        if condition.get("type") == FINISHED and condition.get("status") == "True":
            return str(condition.get("lastTransitionTime", ""))
    return ""


def _assigned(body: Mapping[str, Any]) -> Iterator[Holding]:
    for found in assignments(body):
        yield Holding(
            node=found["nodeName"],
            cards=tuple(found.get("devices") or ()),
            credits=found.get("credits") or 0,
            cpu_milli=found.get("cpuMilli") or 0,
            memory_bytes=found.get("memoryBytes") or 0,
        )


def _assignment(assignment: Assignment) -> Json:
    return {
        "name": assignment.name,
        "index": assignment.index,
        "nodeName": assignment.node_name,
        "pool": assignment.pool,
        "devices": assignment.devices,
        "credits": assignment.credits,
        "cpuMilli": assignment.cpu_milli,
        "memoryBytes": assignment.memory_bytes,
        "count": 1,
    }


def _condition(kind: str, status: str, reason: str, message: str, body: Mapping[str, Any]) -> Json:
    generation = (body.get("metadata") or {}).get("generation") or 0
    return {
        "type": kind, "status": status, "reason": str(reason), "message": message, "observedGeneration": generation,
    }  # fmt: skip


def _with(status: Mapping[str, Any], now: str, *new: Json) -> list[Json]:
    """The conditions with the new ones in place of their types; the time moves only when a status does."""
    old = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    for condition in new:
        before = old.get(condition["type"])
        same = before is not None and before.get("status") == condition["status"]
        condition["lastTransitionTime"] = before.get("lastTransitionTime", now) if before and same else now
        old[condition["type"]] = condition
    return list(old.values())
