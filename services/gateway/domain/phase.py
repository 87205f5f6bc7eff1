"""`status.phase` of every kind: one word for people, computed from conditions on every read and never stored.

Must not decide anything; programs look at conditions. Read next: columns.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Body = Mapping[str, Any]


def phase(kind: str, body: Body) -> str:
    """The phase; empty for kinds that have none (no status, or nothing to say)."""
    rule = _RULES.get(kind)
    return rule(body) if rule is not None else ""


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """The condition of that type; empty when there is none."""
    for found in (body.get("status") or {}).get("conditions") or ():
        if isinstance(found, Mapping) and found.get("type") == kind:
            return found
    return {}


def holds(body: Body, kind: str) -> bool:
    """Whether the condition is True."""
    return condition(body, kind).get("status") == "True"


def fails(body: Body, kind: str) -> bool:
    """Whether the condition is False."""
    return condition(body, kind).get("status") == "False"


def deleting(body: Body) -> bool:
    """Whether the deletion was asked for."""
    return bool((body.get("metadata") or {}).get("deletionTimestamp"))


def _namespace(body: Body) -> str:
    return "Terminating" if deleting(body) else "Active"


def _pod(body: Body) -> str:
    status = body.get("status") or {}
    finished = status.get("finished") or ""
    if finished:
        return str(finished)
    states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    if any(state.get("running") is not None or state.get("terminated") for state in states):
        return "Running"
    return "Unknown" if condition(body, "Ready").get("status") == "Unknown" else "Pending"


def _instance_type(body: Body) -> str:
    if deleting(body):
        return "Draining"
    if (body.get("spec") or {}).get("inactive"):
        return "Inactive"
    active = condition(body, "Active")
    if active.get("reason") == "Draining":
        return "Draining"
    return {"True": "Active", "False": "Inactive"}.get(str(active.get("status")), "Activating")


def _workload(body: Body) -> str:
    if deleting(body):
        return "Deleting"
    for kind, word in (("Finished", "Finished"), ("Admitted", "Admitted"), ("QuotaReserved", "Reserved")):
        if holds(body, kind):
            return word
    return "Evicted" if holds(body, "Evicted") else "Pending"


def _artifact(body: Body) -> str:
    if deleting(body):
        return "Deleting"
    status = body.get("status") or {}
    if fails(body, "Resolved"):
        return "Failed"
    if not status.get("resolved"):
        return "Resolving" if condition(body, "Resolved") else "Pending"
    nodes = status.get("nodes") or {}
    if nodes.get("downloading"):
        return "Delivering"
    if nodes.get("ready"):
        return "Ready"
    return "Failed" if nodes.get("failed") else "Resolved"


def _deployment(body: Body) -> str:
    if deleting(body):
        return "Deleting"
    if holds(body, "Available"):
        return "Ready"
    roles = (body.get("status") or {}).get("roles") or ()
    some = any(role.get("ready") for role in roles)
    once = condition(body, "Available").get("reason") in {"Degraded", "ReplicasLost", "ReplicaFailed"}
    return "Degraded" if some or once else "Starting"


def _node(body: Body) -> str:
    if deleting(body):
        return "Deleting"
    word = {"True": "Ready", "False": "NotReady"}.get(str(condition(body, "Ready").get("status")), "Unknown")
    return f"{word},SchedulingDisabled" if (body.get("spec") or {}).get("unschedulable") else word


def _ready(body: Body) -> str:
    if deleting(body):
        return "Deleting"
    ready = condition(body, "Ready")
    return "Ready" if ready.get("status") == "True" else str(ready.get("reason") or "Pending")


def _api_key(body: Body) -> str:
    if (body.get("spec") or {}).get("disabled"):
        return "Disabled"
    return "Deleting" if deleting(body) else "Active"


_RULES: Mapping[str, Callable[[Body], str]] = {
    "Namespace": _namespace,
    "Pod": _pod,
    "Node": _node,
    "InstanceType": _instance_type,
    "Workload": _workload,
    "ModelArtifact": _artifact,
    "NodeModelStore": _ready,
    "ModelDeployment": _deployment,
    "KVCacheBackend": _ready,
    "KVCachePool": _ready,
    "KVCachePoolBinding": _ready,
    "Instance": _ready,
    "InstanceSSHPublicKey": _ready,
    "InstancePersistentVolume": _ready,
    "InstanceImagePullSecret": _ready,
    "ApiKey": _api_key,
}
