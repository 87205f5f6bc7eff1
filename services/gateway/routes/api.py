"""What every route works with, which object an address means, and how it may be shown.

Must not do I/O. Read next: asgi.py (dispatch), resources.py (reads), writes.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from services.gateway.domain.auth import Principal, sees_secrets
from services.gateway.domain.view import shown
from services.gateway.routes.http import Request, Response, Send, accepts
from services.gateway.store.objects import Objects, Place
from services.gateway.store.principals import Principals
from services.gateway.store.watch import WatchCache
from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import Malformed, NotFound
from shared.resources.kinds import BY_PLURAL, KINDS, Kind
from shared.store.documents import Document

Representation = Literal["json", "table", "partial"]
SCALED = "ModelDeployment"
"""The kind with a /scale."""
SUBRESOURCES = ("status", "scale", "log", "explain")
_BELOW: Mapping[str, tuple[str, ...]] = {
    "Pod": ("log", "status"),
    SCALED: ("scale", "status"),
    "Workload": ("explain", "status"),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer in pieces; writes its own head."""

    run: Callable[[Send], Awaitable[None]]


Answer = Response | Stream


@dataclass(slots=True, kw_only=True)
class Api:
    """Everything the routes need, built by app.py."""

    watch: WatchCache
    objects: Objects
    bus: BusClient
    principals: Principals
    clock: Clock
    ready: Callable[[], dict[str, bool]]
    metrics: Callable[[], Awaitable[bytes]]
    watch_seconds: int = 3600
    """The longest a watch lasts."""


@dataclass(frozen=True, slots=True)
class Target:
    """What an address means."""

    kind: Kind
    namespace: str | None
    """None: all namespaces; empty for cluster-wide kinds."""
    name: str = ""
    """Empty: the collection."""
    subresource: str = ""

    @property
    def place(self) -> Place:
        """The object, or where a new one goes."""
        return Place(self.kind, self.namespace or "", self.name)


def target_of(segments: tuple[str, ...]) -> Target:
    """The target of /api/v1/… or /apis/<group>/<version>/….

    Raises:
        NotFound: nothing is served there; says what is.
    """
    group, version, rest = _group_version(segments)
    namespace: str | None = None
    if rest[:1] == ("namespaces",) and len(rest) >= 3 and rest[2] not in SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        raise _unknown(segments)
    kind = BY_PLURAL.get((group, rest[0]))
    if kind is None or kind.version != version or (namespace is not None and not kind.namespaced):
        raise _unknown(segments)
    name, subresource = (*rest[1:], "", "")[:2]
    if kind.namespaced and name and namespace is None:
        raise NotFound(f"{kind.plural} are namespaced: /namespaces/<namespace>/{kind.plural}/{name}")
    if subresource and subresource not in SUBRESOURCES:
        raise NotFound(f"{kind.plural} have no {subresource} here; of one object there is {', '.join(below(kind))}")
    return Target(kind, namespace if kind.namespaced else "", name, subresource)


def below(kind: Kind) -> tuple[str, ...]:
    """The subresources of a kind."""
    return _BELOW.get(kind.kind, ("status",))


def _group_version(segments: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    if segments[0] == "api":
        return "", segments[1], segments[2:]
    if len(segments) < 3:
        raise _unknown(segments)
    return segments[1], segments[2], segments[3:]


def _unknown(segments: tuple[str, ...]) -> NotFound:
    group = "" if segments[0] == "api" else segments[1]
    served = sorted({kind.api_version for kind in KINDS.values() if kind.group == group})
    here = sorted(kind.plural for kind in KINDS.values() if kind.group == group)
    hint = f"; served are {', '.join(here)} as {', '.join(served)}" if here else ""
    return NotFound(f"the server could not find the requested resource{hint}")


def representation(request: Request) -> Representation:
    """How the caller wants objects, by the first media range that we have.

    Raises:
        NotAcceptable: none.
    """
    header = request.header(b"accept")
    if not header:
        return "json"
    for kind, parameters in accepts(header):
        if kind not in {"application/json", "application/*", "*/*"}:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return "json"
        if parameters.get("v") == "v1" and wanted == "Table":
            return "table"
        if parameters.get("v") == "v1" and wanted in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
            return "partial"
    raise NotAcceptable("only JSON is served (also as Table and PartialObjectMetadata, v1)")


class NotAcceptable(Malformed):
    """No representation that the caller takes (406)."""


def view(document: Document, kind: Kind, principal: Principal) -> dict[str, Any]:
    """A stored object as the caller sees it."""
    return shown(kind, document.json(), secrets=sees_secrets(principal))


def answered(body: Mapping[str, Any], kind: Kind, principal: Principal) -> dict[str, Any]:
    """An owner's answer as the caller sees it."""
    return shown(kind, body, secrets=sees_secrets(principal))
