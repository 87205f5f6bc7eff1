"""Watches: changes of a collection as they come, one JSON line each.

A watch never goes backwards and never skips: when it cannot go on it says 410 and ends. Must not poll.
Read next: services/gateway/store/watch.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.gateway.domain.auth import Principal
from services.gateway.domain.status import expired, failure
from services.gateway.domain.view import metadata_only
from services.gateway.routes.api import Api, Representation, Stream, Target, representation, view
from services.gateway.routes.http import JSON_TYPE, Request, Send, one_of, pumped, send_head
from services.gateway.routes.resources import Selection, json_lines, selected, selection
from services.gateway.routes.tables import INCLUDES, table
from services.gateway.store.ring import ADDED, DELETED, MODIFIED, Step
from shared.errors import Cause, GpubusError, InvalidArgument, Unauthenticated
from shared.store.documents import Document

BOOKMARK_SECONDS = 30.0
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


async def watch_objects(api: Api, request: Request, principal: Principal, target: Target) -> Stream:
    """GET with watch=true. Everything that can be refused is refused before the stream begins.

    Raises:
        InvalidArgument: parameters that do not go together. GpubusError: answered 410; the revision is too old.
    """
    initial = request.flag("sendInitialEvents")
    if initial and request.query.get("resourceVersionMatch") != "NotOlderThan":
        sentence = "must be NotOlderThan with sendInitialEvents"
        raise InvalidArgument(f"resourceVersionMatch {sentence}", (Cause("resourceVersionMatch", sentence),))
    revision = request.number("resourceVersion") or 0
    kind = target.kind.kind
    generation = api.watch.ring(kind).generation
    from_start = initial or not revision
    if from_start:
        if not await api.watch.reached(kind, revision):
            raise expired(f"resource version {revision} is not known here; list again without one")
        steps = [Step(d.revision, ADDED, d) for d in selected(api, request, target)]
        position = api.watch.revision(kind)
    else:
        steps = await api.watch.since(kind, revision)
        position = steps[-1].revision if steps else revision
    seconds = min(request.number("timeoutSeconds") or api.watch_seconds, api.watch_seconds)
    form = representation(request)
    include = one_of("includeObject", request.query.get("includeObject", ""), INCLUDES, "Metadata")
    watching = _Watch(
        api,
        principal,
        target,
        selection(request, target),
        form,
        include,
        position,
        generation,
        request.flag("allowWatchBookmarks"),
    )
    return Stream(lambda send: watching.run(send, request, steps, seconds, initial=initial))


@dataclass(slots=True)
class _Watch:
    """One running watch."""

    api: Api
    principal: Principal
    target: Target
    wanted: Selection
    form: Representation
    include: str
    position: int
    """Everything up to here was sent."""
    generation: int
    bookmarks: bool
    _headed: bool = field(default=False)

    async def run(self, send: Send, request: Request, steps: Sequence[Step], seconds: int, *, initial: bool) -> None:
        """Send until time is up, the caller is gone, its key is no longer what it was, or the watch cannot go on."""
        await send_head(send, 200, JSON_TYPE, request.id)
        first = [event for step in steps for event in self._events(step)]
        if initial:
            first.append(self._bookmark(_INITIAL_END))
        await self._send(send, first)
        lost = asyncio.ensure_future(self.api.principals.lost(self.principal))
        whole = await pumped(self._pump(send, seconds), request.gone(), lost)
        if lost.done() and not lost.cancelled():
            error = Unauthenticated("the key is no longer valid, or its rights were changed")
            await self._send(send, [{"type": "ERROR", "object": failure(error)}])
            whole = True
        if whole:
            await send({"type": "http.response.body", "body": b""})

    async def _pump(self, send: Send, seconds: int) -> None:
        clock, kind = self.api.clock, self.target.kind.kind
        until = clock.monotonic() + seconds
        bookmarked = clock.monotonic()
        while (left := until - clock.monotonic()) > 0:
            ring = self.api.watch.ring(kind)
            try:
                if ring.generation != self.generation:
                    raise expired("the server's history was renewed; list again")
                steps = ring.after(self.position)
            except GpubusError as error:
                await self._send(send, [{"type": "ERROR", "object": failure(error)}])
                return
            self.position = self.api.watch.revision(kind)
            await self._send(send, [event for step in steps for event in self._events(step)])
            if self.bookmarks and clock.monotonic() - bookmarked > BOOKMARK_SECONDS:
                await self._send(send, [self._bookmark()])
                bookmarked = clock.monotonic()
            if not steps:
                await ring.grown(min(left, BOOKMARK_SECONDS + 1) if self.bookmarks else left)
        if self.bookmarks:
            await self._send(send, [self._bookmark()])

    def _events(self, step: Step) -> Iterable[dict[str, Any]]:
        """At most one event: what the change is to someone who sees only what is selected."""
        document = step.document
        if self.wanted.namespace not in {None, document.namespace} or self.wanted.name not in {None, document.name}:
            return
        now, before = self.wanted.takes(document), self._took(step)
        if step.type == DELETED:
            kind = DELETED if now or before else ""
        elif step.type == ADDED:
            kind = ADDED if now else ""
        else:
            kind = {(True, True): MODIFIED, (True, False): ADDED, (False, True): DELETED}.get((now, before), "")
        if kind:
            yield {"type": kind, "object": self._object(document)}

    def _took(self, step: Step) -> bool:
        if step.old is not None:
            return self.wanted.takes(step.old)
        # From the log: only the labels before are known, the fields count as unchanged.
        return (
            step.type != ADDED and self.wanted.takes_labels(step.old_labels) and self.wanted.takes_fields(step.document)
        )

    def _object(self, document: Document) -> Mapping[str, Any]:
        seen = view(document, self.target.kind, self.principal)
        if self.form == "partial":
            return metadata_only(seen)
        return self._table([seen], document.revision) if self.form == "table" else seen

    def _table(self, views: Sequence[Mapping[str, Any]], revision: int) -> dict[str, Any]:
        found = table(
            self.target.kind.kind, views, now=self.api.clock.now(), include=self.include, headed=not self._headed
        )
        self._headed = True
        return {**found, "metadata": {"resourceVersion": str(revision)}}

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        metadata: dict[str, Any] = {"resourceVersion": str(self.position), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if self.form == "table":
            return {"type": "BOOKMARK", "object": {**self._table([], self.position), "metadata": metadata}}
        kind = self.target.kind
        partial = self.form == "partial"
        names = {
            "kind": "PartialObjectMetadata" if partial else kind.kind,
            "apiVersion": "meta.k8s.io/v1" if partial else kind.api_version,
        }
        return {"type": "BOOKMARK", "object": {**names, "metadata": metadata}}

    async def _send(self, send: Send, events: Sequence[Mapping[str, Any]]) -> None:
        if events:
            await send({"type": "http.response.body", "body": json_lines(*events), "more_body": True})
