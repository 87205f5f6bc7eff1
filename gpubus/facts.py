"""Facts for people: one line each, the same words in `gpubus events` and in the demo.

Works on the wire form, so that a fact this version does not know is shown too. Must not act on facts.
Read next: gpubus/events.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.subjects import SERVICES

_QUIET = frozenset({"namespace", "name", "uid", "key", "labels", "generation", "workloadUid"})
_MIB = 1024 * 1024
WIDTH = 25
"""Of the widest fact's name, `object-modelstore.removed`."""


@dataclass(frozen=True, slots=True)
class FactLine:
    """One fact."""

    time: str
    """`15:04:05` of the sender's clock."""
    what: str
    """`workload.admitted`."""
    about: str
    """`default/smollm2-0`, or a cluster-wide name."""
    text: str
    """What matters of its content."""
    data: Mapping[str, Any]

    def plain(self) -> str:
        """The line without colours."""
        return f"{self.time}  {self.what:<{WIDTH}} {self.about:<40} {self.text}".rstrip()


def read(raw: bytes) -> FactLine | None:
    """A fact from its envelope; None for what is no fact of ours."""
    try:
        envelope = json.loads(raw)
        data = envelope["data"]
        _, aggregate, fact, _ = str(envelope["type"]).split(".")
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(data, dict):
        return None
    what = f"{aggregate}.{fact}"
    told = _WORDS.get(what, _rest)(data)
    return FactLine(str(envelope.get("time", ""))[11:19], what, _about(aggregate, data), told, data)


def _about(aggregate: str, data: Mapping[str, Any]) -> str:
    if aggregate == "device":
        return f"{data.get('node', '')}/{data.get('deviceId', '')}"
    name = str(data.get("name") or data.get("model") or data.get("node") or "")
    namespace = data.get("namespace")
    kind = f"{data['kind']} " if data.get("kind") and aggregate.startswith("object") else ""
    return f"{kind}{namespace}/{name}" if namespace else f"{kind}{name}"


def size(count: int) -> str:
    """Bytes in the largest unit that keeps three digits readable."""
    if count < _MIB:
        return f"{count / 1024:.0f} KiB"
    return f"{count / _MIB:.1f} MiB" if count < 1024 * _MIB else f"{count / (1024 * _MIB):.1f} GiB"


def _count(number: Any, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _artifact(data: Mapping[str, Any]) -> str:
    node = f" on {data['node']}" if data.get("node") else ""
    files = f"{_count(data['fileCount'], 'file')}, " if data.get("fileCount") else ""
    revision = f" at {str(data['revision'])[:12]}" if data.get("revision") else ""
    return f"{files}{size(int(data.get('sizeBytes') or 0))}{revision}{node}"


def _pool(data: Mapping[str, Any]) -> str:
    return ", ".join(_count(data[f"{name}s"], name) for name in ("node", "device", "core") if data.get(f"{name}s"))


def _device(data: Mapping[str, Any]) -> str:
    memory = f", {int(data.get('memoryMib') or 0) // 1024} GiB" if data.get("memoryMib") else ""
    return f"{data.get('product', '')}{memory}{_because(data)}"


def _replica(data: Mapping[str, Any]) -> str:
    node = f"on {data['node']}" if data.get("node") else ""
    port = f", port {data['port']}" if data.get("port") else ""
    code = f", exit code {data['exitCode']}" if data.get("exitCode") is not None else ""
    return f"{node}{port}{code}{_because(data)}".lstrip(", ")


def _because(data: Mapping[str, Any]) -> str:
    said = data.get("message") or data.get("reason")
    return f": {said}" if said else ""


def _workload(data: Mapping[str, Any]) -> str:
    nodes = data.get("node") or data.get("nodeName") or ", ".join(str(node) for node in data.get("nodes") or ())
    devices = data.get("devices") or ()
    cards = f" with {_count(len(devices), 'device')}" if devices else ""
    return f"{f'on {nodes}' if nodes else ''}{cards}{_because(data)}".lstrip(": ")


def _deployment(data: Mapping[str, Any]) -> str:
    return f"serves {data.get('model', '')}{_because(data)}"


def _object(data: Mapping[str, Any]) -> str:
    return f"generation {data['generation']}" if data.get("generation") else ""


def _capacity(data: Mapping[str, Any]) -> str:
    node = f"on {data['node']}" if data.get("node") else ""
    return f"{node}{_because(data)}".lstrip(": ")


def _rest(data: Mapping[str, Any]) -> str:
    shown = {name: value for name, value in data.items() if name not in _QUIET and value not in ("", None, [], {}, 0)}
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in shown.items()
    )[:160]


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "capacity.freed": _capacity,
    **{f"node.{fact}": lambda data: _because(data).lstrip(": ") for fact in ("joined", "lost", "returned", "removed")},
    **{f"deployment.{fact}": _deployment for fact in ("applied", "available", "degraded", "removed")},
    **{f"object-{owner}.{fact}": _object for owner in SERVICES for fact in ("applied", "removed")},
    **{f"artifact.{fact}": _artifact for fact in ("resolved", "delivering", "ready")},
    **{f"pool.{fact}": _pool for fact in ("formed", "resized", "retired")},
    **{f"device.{fact}": _device for fact in ("found", "changed", "degraded", "lost")},
    **{
        f"{kind}.{fact}": _replica
        for kind in ("replica", "pod")
        for fact in ("started", "ready", "unready", "failed", "stopped")
    },
    **{f"workload.{fact}": _workload for fact in ("queued", "held", "admitted", "preempted", "finished", "cancelled")},
}
