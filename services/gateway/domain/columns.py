"""Printer columns: what `kubectl get` shows of each kind, as the reference operator prints them.

Cells are text or numbers; ages are for people. Must not read anything but the object and the time it is shown at.
Read next: services/gateway/routes/tables.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.gateway.domain.phase import condition, deleting, holds, phase
from shared.units import format_bytes

Body = Mapping[str, Any]
Cell = str | int
Read = Callable[[Body, datetime], Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; wide ones are shown with `-o wide`."""

    name: str
    read: Read
    description: str = ""
    type: str = "string"
    wide: bool = False

    def definition(self) -> dict[str, Any]:
        """meta.k8s.io/v1 TableColumnDefinition."""
        shown = "name" if self.name == "Name" else ""
        return {
            "name": self.name,
            "type": self.type,
            "format": shown,
            "description": self.description or self.name,
            "priority": 1 if self.wide else 0,
        }


def columns_of(kind: str) -> Sequence[Column]:
    """The columns of a kind, the name first."""
    return _COLUMNS.get(kind, _PLAIN)


def age(since: Any, now: datetime) -> str:
    """How long ago, as kubectl writes it: 5s, 2m10s, 3h, 4d; `<unknown>` when it cannot be told."""
    if not isinstance(since, str) or not since:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        return "<unknown>"
    return duration(max(0, int((now - moment).total_seconds())))


_STEPS = (
    # below this many seconds: (unit, its seconds, next smaller unit, its seconds), as k8s.io/apimachinery HumanDuration
    (120, "s", 1, "", 1), (600, "m", 60, "s", 1), (3 * 3600, "m", 60, "", 1), (8 * 3600, "h", 3600, "m", 60),
    (48 * 3600, "h", 3600, "", 1), (8 * 86400, "d", 86400, "h", 3600), (2 * 365 * 86400, "d", 86400, "", 1),
    (8 * 365 * 86400, "y", 365 * 86400, "d", 86400),
)  # fmt: skip


def duration(seconds: int) -> str:
    """A duration in at most two units."""
    for limit, unit, size, smaller, step in _STEPS:
        if seconds < limit:
            rest = seconds % size // step if smaller else 0
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds // (365 * 86400)}y"


# Readers


def _at(*path: str | int, default: Cell = "") -> Read:
    def read(body: Body, now: datetime) -> Cell:  # noqa: ARG001 - the shape of every reader
        found: Any = body
        for part in path:
            if isinstance(part, int):
                found = found[part] if isinstance(found, Sequence) and len(found) > part else None
            else:
                found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, bool):
            return str(found).lower()
        return found if isinstance(found, str | int) and found != "" else default

    return read


def _age(body: Body, now: datetime) -> Cell:
    return age((body.get("metadata") or {}).get("creationTimestamp"), now)


def _phase(kind: str) -> Read:
    return lambda body, now: phase(kind, body)  # noqa: ARG005


def _holds(kind: str) -> Read:
    return lambda body, now: str(condition(body, kind).get("status", ""))  # noqa: ARG005


def _size(*path: str) -> Read:
    read = _at(*path, default=0)
    return lambda body, now: format_bytes(int(read(body, now))) if read(body, now) else ""


def _count(*path: str) -> Read:
    def read(body: Body, now: datetime) -> Cell:  # noqa: ARG001
        found: Any = body
        for part in path:
            found = (found or {}).get(part)
        return len(found or ())

    return read


def _unit(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    spec = body.get("spec") or {}
    unit = spec.get("unitResources") or {}
    return f"{unit.get('cpu', '?')}c/{unit.get('ram', '?')}/{spec.get('localStorage', '?')}"


def _view(status: Mapping[str, Any], name: str) -> str:
    view = status.get(name) or {}
    return f"{view.get('onceMaxRequest', 0)}/{view.get('remaining', 0)}"


def _accelerator(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    status = body.get("status") or {}
    views = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned")
    return " ".join(_view(status, name) for name in views)


def _cpu(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    return _view(body.get("status") or {}, "cpu")


def _partitions(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    view = (body.get("status") or {}).get("acceleratorPartitioned") or {}
    profiles = view.get("remainingProfiles") or ()
    return ",".join(f"{profile.get('name')}:{profile.get('count')}" for profile in profiles) or "<none>"


def _source(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    source = (body.get("spec") or {}).get("source") or {}
    for name, field in (
        ("huggingFace", "repository"),
        ("modelScope", "repository"),
        ("persistentVolumeClaim", "claimName"),
        ("image", "reference"),
    ):
        if isinstance(source.get(name), Mapping):
            return str(source[name].get(field, ""))
    return ""


def _revision(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    resolved = (body.get("status") or {}).get("resolved") or {}
    return str(resolved.get("revision", ""))[:12]


def _containers_ready(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    statuses = (body.get("status") or {}).get("containerStatuses") or ()
    wanted = len((body.get("spec") or {}).get("containers") or ())
    return f"{sum(1 for status in statuses if status.get('ready'))}/{max(wanted, len(statuses))}"


def _pod_status(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    if deleting(body):
        return "Terminating"
    for status in (body.get("status") or {}).get("containerStatuses") or ():
        state = status.get("state") or {}
        for name in ("waiting", "terminated"):
            reason = (state.get(name) or {}).get("reason")
            if reason and reason != "Completed":
                return str(reason)
    found = phase("Pod", body)
    scheduled = condition(body, "PodScheduled")
    if found == "Pending" and scheduled.get("status") == "False" and scheduled.get("reason"):
        return str(scheduled["reason"])
    return "Completed" if found == "Succeeded" else found


def _restarts(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    return sum(
        int(status.get("restartCount") or 0) for status in (body.get("status") or {}).get("containerStatuses") or ()
    )


def _cards(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    capacity = (body.get("status") or {}).get("capacity") or {}
    cards = {
        key: value
        for key, value in capacity.items()
        if "/" in key and key.count(".") == key.partition("/")[0].count(".")
    }
    return ",".join(f"{key}:{value}" for key, value in sorted(cards.items())) or "<none>"


def _address(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    addresses = (body.get("status") or {}).get("addresses") or ()
    return next((str(a.get("address")) for a in addresses if a.get("type") == "InternalIP"), "<none>")


def _device_cards(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    groups = (body.get("spec") or {}).get("groups") or ()
    return (
        ",".join(f"{g.get('manufacturer')}-{g.get('id')}:{len(g.get('accelerators') or ())}" for g in groups)
        or "<none>"
    )


def _reserved_in(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    admission = (body.get("status") or {}).get("admission") or {}
    return str(admission.get("clusterQueue") or "") if holds(body, "QuotaReserved") else ""


def _workload_reason(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    for kind in ("Finished", "Evicted", "QuotaReserved"):
        found = condition(body, kind)
        if found and (kind == "QuotaReserved" or found.get("status") == "True"):
            return str(found.get("reason", ""))
    return ""


def _downloading(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    return sum(1 for model in (body.get("status") or {}).get("models") or () if model.get("state") == "Downloading")


def _used(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    capacity = (body.get("status") or {}).get("capacity") or {}
    return f"{capacity.get('usedPercent', 0)}%"


def _involved(body: Body, now: datetime) -> Cell:  # noqa: ARG001
    involved = body.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _ago(field: str) -> Read:
    return lambda body, now: age(body.get(field), now)


def _flag(*path: str) -> Read:
    read = _at(*path)
    return lambda body, now: "true" if read(body, now) == "true" else "false"


def _key_phase(body: Body, now: datetime) -> Cell:
    expires = (body.get("spec") or {}).get("expires")
    found = phase("ApiKey", body)
    return "Expired" if found == "Active" and expires and _passed(str(expires), now) else found


def _passed(text: str, now: datetime) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return True  # as the door counts it
    return (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)) <= now


_NAME = Column("Name", _at("metadata", "name"), "Unique within its namespace.")
_AGE = Column("Age", _age, "Time since it was created.")
_PLAIN = (_NAME, _AGE)

_COLUMNS: Mapping[str, Sequence[Column]] = {
    "Namespace": (_NAME, Column("Status", _phase("Namespace")), _AGE),
    "Secret": (_NAME, Column("Type", _at("type")), Column("Data", _count("data"), type="integer"), _AGE),
    "ConfigMap": (_NAME, Column("Data", _count("data"), type="integer"), _AGE),
    "Event": (
        Column("Last Seen", _ago("lastTimestamp")),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _involved),
        Column("Source", _at("source", "component"), wide=True),
        Column("Message", _at("message")),
        Column("First Seen", _ago("firstTimestamp"), wide=True),
        Column("Count", _at("count"), type="integer", wide=True),
        Column("Name", _at("metadata", "name"), wide=True),
    ),
    "Node": (
        _NAME,
        Column("Status", _phase("Node")),
        Column("CPU", _at("status", "capacity", "cpu")),
        Column("Memory", _at("status", "capacity", "memory")),
        Column("Accelerators", _cards, "Whole cards by resource key."),
        _AGE,
        Column("Internal-IP", _address, wide=True),
        Column("OS-Image", _at("status", "nodeInfo", "osImage"), wide=True),
        Column("Kernel-Version", _at("status", "nodeInfo", "kernelVersion"), wide=True),
    ),
    "Pod": (
        _NAME,
        Column("Ready", _containers_ready, "Ready containers of all."),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, type="integer"),
        _AGE,
        Column("IP", _at("status", "podIP", default="<none>"), wide=True),
        Column("Node", _at("spec", "nodeName", default="<none>"), wide=True),
    ),
    "Devices": (_NAME, Column("Accelerators", _device_cards, wide=True), Column("Age", _age, wide=True)),
    "InstanceType": (
        _NAME,
        Column("Entrance", _at("status", "entrance"), "The queue name that workloads ask for."),
        Column("Unit(CPU/RAM)/Storage", _unit, "What one unit charges."),
        Column(
            "Accelerator(EX/SH/SL/PT)",
            _accelerator,
            "The most one request gets / what remains: whole, shares, percent, partitions.",
        ),
        Column("CPU", _cpu, "The most one request gets / what remains."),
        Column("Phase", _phase("InstanceType")),
        Column("Partitions", _partitions, "Profiles that still fit.", wide=True),
    ),
    "InstanceTypeFlavor": (
        _NAME,
        Column("GeneralGroup", _at("spec", "generalGroup")),
        Column("AcceleratorGroup", _at("spec", "acceleratorGroup")),
        Column("Acceleratable", _flag("spec", "acceleratable")),
        Column("Manufacturer", _at("spec", "manufacturer")),
        Column("Product", _at("spec", "product")),
        Column("Memory", _at("spec", "memory", default=0), type="integer"),
        Column("Cores", _at("spec", "cores", default=0), type="integer"),
        Column("Sliceable", _flag("spec", "sliceable")),
    ),
    "LocalQueue": (
        _NAME,
        Column("ClusterQueue", _at("spec", "clusterQueue")),
        Column("Pending Workloads", _at("status", "pendingWorkloads", default=0), type="integer"),
        Column("Admitted Workloads", _at("status", "admittedWorkloads", default=0), type="integer"),
        _AGE,
    ),
    "Workload": (
        _NAME,
        Column("Queue", _at("spec", "queueName")),
        Column("Reserved In", _reserved_in),
        Column("Admitted", _holds("Admitted")),
        Column("Finished", _holds("Finished")),
        Column("Reason", _workload_reason, "Why it waits, or how it ended."),
        _AGE,
        Column("Node", _at("status", "admission", "podSetAssignments", 0, "nodeName"), wide=True),
    ),
    "ModelArtifact": (
        _NAME,
        Column("Source", _source),
        Column("Revision", _revision, "The first 12 characters."),
        Column("Size", _size("status", "resolved", "sizeBytes")),
        Column("Ready", _at("status", "nodes", "ready", default=0), "Nodes that hold it.", "integer"),
        Column("Downloading", _at("status", "nodes", "downloading", default=0), type="integer"),
        Column("Resolved", _holds("Resolved")),
        Column("Age", _age, wide=True),
    ),
    "NodeModelStore": (
        _NAME,
        Column("Ready", _holds("Ready")),
        Column("Used", _used),
        Column("Models", _count("status", "models"), type="integer"),
        Column("Downloading", _downloading, type="integer"),
    ),
    "ModelDeployment": (
        _NAME,
        Column("Engine", _at("spec", "engine", "name")),
        Column("Roles", _at("status", "roleSummary")),
        Column("Phase", _phase("ModelDeployment")),
        Column("Endpoint", _at("status", "endpoint")),
        _AGE,
    ),
    "KVCacheBackend": (
        _NAME,
        Column("Type", _at("spec", "type")),
        Column("Phase", _phase("KVCacheBackend")),
        Column("Endpoint", _at("status", "endpoints", 0, "address")),
        Column("Capacity", _at("status", "capacity", "total")),
        _AGE,
    ),
    "KVCachePool": (
        _NAME,
        Column("Quota", _at("spec", "quota", "total")),
        Column("Usage", _at("status", "usage", "total")),
        Column("Phase", _phase("KVCachePool")),
        Column("Endpoint", _at("status", "clientEndpoint")),
        _AGE,
    ),
    "KVCachePoolBinding": (
        _NAME,
        Column("Pool", _at("spec", "poolRef", "name")),
        Column("Domain", _at("spec", "domain", "name")),
        Column("Effective", _at("status", "effectiveQuota")),
        Column("Usage", _at("status", "usage")),
        Column("Phase", _phase("KVCachePoolBinding")),
        _AGE,
    ),
    "Instance": (_NAME, Column("Type", _at("spec", "type")), Column("Phase", _phase("Instance")), _AGE),
    "InstancePersistentVolume": (
        _NAME,
        Column("Capacity", _at("spec", "capacity")),
        Column("Phase", _phase("InstancePersistentVolume")),
        _AGE,
    ),
    "InstanceSSHPublicKey": (_NAME, Column("Phase", _phase("InstanceSSHPublicKey")), _AGE),
    "InstanceImagePullSecret": (
        _NAME,
        Column("Registry", _at("spec", "registry")),
        Column("Phase", _phase("InstanceImagePullSecret")),
        _AGE,
    ),
    "Setting": (
        _NAME,
        Column("Value", _at("status", "value"), "In force."),
        Column("Default", _at("status", "default"), wide=True),
        _AGE,
    ),
    "ApiKey": (
        _NAME,
        Column("Role", _at("spec", "role")),
        Column("Prefix", _at("spec", "prefix"), "How the key begins."),
        Column("Phase", _key_phase),
        Column("Expires", _at("spec", "expires", default="never")),
        _AGE,
    ),
}
