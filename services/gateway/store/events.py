"""Events in memory: facts as objects that can be listed and watched, counted when they repeat, forgotten after an hour.

Fed by a core NATS subscription of all facts; a gateway that was away missed some, and a new one starts empty. The facts
themselves stay in their streams. Must not be asked for anything that has to be right. Read next: ../domain/happenings.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from services.gateway.domain.happenings import Happening, happenings
from services.gateway.store.ring import ADDED, DELETED, MODIFIED, Ring, Step
from shared.clock import Clock, rfc3339
from shared.envelope import Envelope
from shared.ids import derived_id
from shared.resources.kinds import KINDS
from shared.store.documents import Document

KEPT = 4096
KEPT_FOR = timedelta(hours=1)
_FALLBACK_NAMESPACE = "default"
"""Where Kubernetes keeps Events of cluster-wide objects."""

_REMEMBERED = 4096
"""Ids of facts: a relay that was cut off publishes again."""

Key = tuple[str, ...]
Documents = list[Document]
FindUid = Callable[[str, str, str], str]


class Events:
    """The Events of this process, with their own rising revisions."""

    def __init__(self, clock: Clock, find_uid: FindUid) -> None:
        self.ring = Ring()
        self._clock = clock
        self._find_uid = find_uid
        self._kept: OrderedDict[Key, tuple[Document, datetime]] = OrderedDict()
        """Event and when its last fact came here: the sender's clock is shown, never compared."""
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._by_name: dict[tuple[str, str], Document] = {}
        # Time in microseconds, so that a restarted gateway goes on above its former self.
        self.revision = int(clock.now().timestamp() * 1_000_000)
        self.ring.reset(self.revision)

    def take(self, fact: Envelope) -> None:
        """One fact from the bus; a repeat changes nothing."""
        if fact.id in self._seen:
            return
        self._seen[fact.id] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        for happening in happenings(fact.type, fact.source, fact.data):
            if happening.name:
                self._record(happening, fact.time.astimezone(UTC))
        self._forget()

    def get(self, namespace: str, name: str) -> Document | None:
        """One Event."""
        self._forget()
        return self._by_name.get((namespace, name))

    def list(self, namespace: str | None) -> Documents:
        """The Events of one namespace, or all, oldest first."""
        self._forget()
        return [event for event, _ in self._kept.values() if namespace in {None, event.namespace}]

    def _record(self, happening: Happening, moment: datetime) -> None:
        uid = happening.uid or self._find_uid(happening.kind, happening.namespace, happening.name)
        key = (happening.kind, happening.namespace, happening.name, uid, happening.reason, happening.message)
        old, _ = self._kept.pop(key, (None, None))
        body = _again(old.body, moment) if old is not None else _first(happening, uid, key, moment)
        metadata = body["metadata"]
        event = self._step(MODIFIED if old else ADDED, metadata["namespace"], metadata["name"], body, old)
        self._kept[key] = (event, self._clock.now())

    def _forget(self) -> None:
        oldest = self._clock.now() - KEPT_FOR
        while self._kept:
            key, (event, arrived) = next(iter(self._kept.items()))
            if len(self._kept) <= KEPT and arrived > oldest:
                return
            del self._kept[key]
            self._step(DELETED, event.namespace, event.name, event.body, event)

    def _step(self, kind: str, namespace: str, name: str, body: dict[str, Any], old: Document | None) -> Document:
        self.revision = max(self.revision + 1, int(self._clock.now().timestamp() * 1_000_000))
        document = Document("Event", namespace, name, body["metadata"]["uid"], self.revision, 1, body)
        if kind == DELETED:
            self._by_name.pop((namespace, name), None)
        else:
            self._by_name[namespace, name] = document
        self.ring.append(Step(self.revision, kind, document, old))
        return document


def _first(happening: Happening, uid: str, key: Key, moment: datetime) -> dict[str, Any]:
    kind = KINDS.get(happening.kind)
    involved = {
        "apiVersion": kind.api_version if kind else "",
        "kind": happening.kind,
        "namespace": happening.namespace,
        "name": happening.name,
        "uid": uid,
    }
    event_uid = derived_id(*key, rfc3339(moment))
    namespace = happening.namespace or _FALLBACK_NAMESPACE
    name = f"{happening.name[:230]}.{event_uid.replace('-', '')[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace, "uid": event_uid, "creationTimestamp": rfc3339(moment)},
        "involvedObject": {field: value for field, value in involved.items() if value},
        "reason": happening.reason,
        "message": happening.message,
        "type": happening.type,
        "source": {"component": happening.component},
        "firstTimestamp": rfc3339(moment),
        "lastTimestamp": rfc3339(moment),
        "count": 1,
    }


def _again(body: dict[str, Any], moment: datetime) -> dict[str, Any]:
    return {**body, "count": body["count"] + 1, "lastTimestamp": max(body["lastTimestamp"], rfc3339(moment))}
