"""Facts as Kubernetes users look for them: what an Event says, and about which objects.

One fact may speak about two objects: a replica that is ready is news of its Pod and of its ModelDeployment.
Must not keep anything. Read next: services/gateway/store/events.py, which counts and forgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Data = Mapping[str, Any]

_WARNINGS = frozenset({"lost", "degraded", "failed", "held", "preempted", "unready", "retired", "evicted"})
_SILENT = frozenset({"request"})
"""Aggregates that are no news of an object."""


@dataclass(frozen=True, slots=True)
class Happening:
    """One Event to be: about one object."""

    kind: str
    namespace: str
    name: str
    uid: str
    """Empty when the fact does not know it."""
    reason: str
    message: str
    type: str
    """Normal or Warning."""
    component: str


def happenings(fact_type: str, source: str, data: Data) -> Iterator[Happening]:
    """What a fact (`gpubus.workload.admitted.v1`) says about which objects; nothing for facts that are no news."""
    parts = fact_type.split(".")
    if len(parts) != 4 or parts[1] in _SILENT or parts[1].startswith("object-"):
        return
    aggregate, fact = parts[1], parts[2]
    reason = "".join(word.capitalize() for word in f"{aggregate}-{fact}".split("-"))
    kind = "Warning" if fact in _WARNINGS else "Normal"
    component = source.split("/")[2] if source.count("/") >= 2 else source
    for about in _ABOUT.get(aggregate, _nothing)(data):
        yield Happening(*about, reason, _message(aggregate, fact, data), kind, component)


About = tuple[str, str, str, str]
"""(kind, namespace, name, uid)."""


def _message(aggregate: str, fact: str, data: Data) -> str:
    said = " | ".join(line for line in str(data.get("message") or "").splitlines() if line.strip())
    if said:
        return said[:1024]  # in one line: the end of a log would break the table that it is printed in
    known = {name: value for name, value in data.items() if value not in (None, "")}
    counts = {
        name: _Count(len(value) if isinstance(value, list) else value)
        for name, value in known.items()
        if isinstance(value, list | int) and not isinstance(value, bool)
    }
    words = _Words(known | counts)
    sentence = _SENTENCES.get(f"{aggregate}.{fact}", f"{aggregate} {fact}").format_map(words)
    for nothing in (" on -", " with -", " with 0 devices", ", 0 devices"):
        sentence = sentence.replace(nothing, "")
    reason = str(data.get("reason") or "")
    return f"{sentence} ({reason})" if reason and reason not in sentence else sentence


class _Count(int):
    """A number in a sentence; `{count:node}` is `1 node` or `2 nodes`."""

    def __format__(self, noun: str) -> str:
        return f"{int(self)} {noun}{'' if self == 1 else 's'}" if noun else str(int(self))


class _Words(dict[str, Any]):
    """A fact's fields for a sentence: lists as their lengths, what is missing as a dash."""

    def __missing__(self, name: str) -> str:
        return _Dash("-")


class _Dash(str):
    """In place of what a fact does not say, however it was to be written."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)


_SENTENCES: Mapping[str, str] = {
    "node.joined": "its agent reports",
    "node.lost": "its agent is silent",
    "node.returned": "its agent speaks again",
    "node.removed": "it was deleted",
    "device.found": "found {product} {deviceId}",
    "device.changed": "changed {product} {deviceId}",
    "device.degraded": "{product} {deviceId} is unhealthy",
    "device.lost": "{product} {deviceId} is gone",
    "pool.formed": "entrance {entrance}, {nodes:node}, {devices:device}",
    "pool.resized": "now {nodes:node}, {devices:device}",
    "pool.retired": "its last node is gone",
    "capacity.freed": "capacity freed on {node}",
    "workload.queued": "{name} waits in {queue}",
    "workload.admitted": "{name} goes to {node} with {devices:device}",
    "workload.preempted": "{name} made room for a workload of higher priority",
    "workload.finished": "{name} ended and gave back what it held",
    "workload.cancelled": "{name} was taken back",
    "artifact.resolved": "revision {revision:.12}, {fileCount:file}, {sizeBytes:byte}",
    "artifact.delivering": "delivery to {node} began",
    "artifact.ready": "verified and published on {node}",
    "artifact.evicted": "left {node}",
    "deployment.applied": "generation {generation}",
    "deployment.available": "ready: {replicas:replica}",
    "replica.started": "{name} runs on {node}",
    "replica.ready": "{name} answers on {node}",
    "replica.unready": "{name} does not answer",
    "replica.failed": "{name} ended with exit code {exitCode}; restarts: {restarts}",
    "replica.stopped": "{name} is gone from {node}",
    "pod.started": "runs on {node}",
    "pod.ready": "is ready on {node}",
    "pod.failed": "ended with exit code {exitCode}",
    "pod.finished": "ended by itself on {node}",
    "pod.stopped": "is gone from {node}",
    "deployment.degraded": "not all replicas are ready",
    "deployment.removed": "all its replicas are gone",
    "artifact.failed": "cannot be delivered",
    "workload.held": "{name} cannot run now",
    "key.issued": "key {prefix}… is valid",
}


def _nothing(data: Data) -> Iterator[About]:  # noqa: ARG001
    yield from ()


def _cluster(kind: str, field: str = "name") -> Callable[[Data], Iterator[About]]:
    def about(data: Data) -> Iterator[About]:
        yield (kind, "", str(data.get(field, "")), str(data.get("uid", "")) if field == "name" else "")

    return about


def _own(kind: str) -> Callable[[Data], Iterator[About]]:
    def about(data: Data) -> Iterator[About]:
        yield (kind, str(data.get("namespace", "")), str(data.get("name", "")), str(data.get("uid", "")))

    return about


def _workload(data: Data) -> Iterator[About]:
    yield from _own("Workload")(data)
    if data.get("ownerKind") and data.get("ownerName"):
        yield (
            str(data["ownerKind"]),
            str(data.get("namespace", "")),
            str(data["ownerName"]),
            str(data.get("ownerUid", "")),
        )


def _replica(data: Data) -> Iterator[About]:
    yield from _own("Pod")(data)
    if data.get("deployment"):
        yield ("ModelDeployment", str(data.get("namespace", "")), str(data["deployment"]), "")


_ABOUT: Mapping[str, Callable[[Data], Iterator[About]]] = {
    "node": _cluster("Node"),
    "device": _cluster("Devices", "node"),
    "pool": _cluster("InstanceType"),
    "capacity": _cluster("InstanceType"),
    "workload": _workload,
    "artifact": _own("ModelArtifact"),
    "deployment": _own("ModelDeployment"),
    "replica": _replica,
    "pod": _own("Pod"),
    "instance": _own("Instance"),
    "cache-pool": _cluster("KVCachePool"),
    "cache": _own("KVCachePoolBinding"),
    "key": _own("ApiKey"),
}
