"""Reads: one object, and lists that are one snapshot however many pages they are read in.

Must not write. Read next: watch.py, writes.py.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from services.gateway.domain.auth import Principal
from services.gateway.domain.selectors import (
    FieldSelector,
    LabelSelector,
    field_selector,
    label_selector,
    selected_name,
)
from services.gateway.domain.status import expired
from services.gateway.domain.view import metadata_only
from services.gateway.routes.api import Api, Representation, Target, representation, view
from services.gateway.routes.http import Request, Response, json_response, one_of
from services.gateway.routes.tables import INCLUDES, table
from shared.errors import Cause, Malformed, NotFound
from shared.resources.kinds import Kind
from shared.store.documents import Document

_PAGED_LISTS = 32
_PAGED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection."""

    kind: Kind
    namespace: str | None
    name: str | None
    labels: LabelSelector | None
    fields: FieldSelector | None

    def takes(self, document: Document) -> bool:
        """Whether an object is selected, in its present state."""
        if self.namespace not in {None, document.namespace} or self.name not in {None, document.name}:
            return False
        return self.takes_labels(document.labels) and self.takes_fields(document)

    def takes_labels(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return self.labels is None or self.labels(labels)

    def takes_fields(self, document: Document) -> bool:
        """Whether the fields are selected; `status.phase` is computed as readers see it."""
        if self.fields is None:
            return True
        from services.gateway.domain.view import shown

        return self.fields(shown(self.kind, document.body))


def selection(request: Request, target: Target) -> Selection:
    """The selection of a list or watch.

    Raises:
        Malformed: a selector that cannot be read.
    """
    text = request.query.get("fieldSelector", "")
    name = target.name or selected_name(text)
    labels = label_selector(request.query.get("labelSelector", ""))
    return Selection(
        target.kind,
        target.namespace if target.kind.namespaced else None,
        name,
        labels,
        field_selector(text, target.kind.kind),
    )


@dataclass(slots=True)
class Pages:
    """Lists that are being read in pages: the documents as they were on the first page."""

    kept: OrderedDict[str, tuple[Sequence[Document], int, float]]

    def keep(self, documents: Sequence[Document], revision: int, now: float) -> str:
        """Keep a list; the oldest goes when there are too many."""
        mark = secrets.token_hex(8)
        self.kept[mark] = (documents, revision, now)
        while len(self.kept) > _PAGED_LISTS:
            self.kept.popitem(last=False)
        return mark

    def resume(self, token: str, now: float) -> tuple[str, int, Sequence[Document], int]:
        """(mark, offset, documents, revision) of a continue token.

        Raises:
            Malformed: it is none of ours. GpubusError: answered 410; the list is no longer kept.
        """
        try:
            mark, _, offset = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
            start = int(offset)
        except (ValueError, binascii.Error):
            raise Malformed("continue: not a token of this server", (Cause("continue", "is not valid"),)) from None
        documents, revision, since = self.kept.get(mark, ((), 0, float("-inf")))
        if now - since > _PAGED_SECONDS:
            raise expired("the continue token has expired; list again from the start")
        return mark, max(0, start), documents, revision


def token_of(mark: str, offset: int) -> str:
    """The continue token of a kept list."""
    return base64.urlsafe_b64encode(f"{mark}:{offset}".encode()).decode()


async def get_one(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """GET of one object.

    Raises:
        NotFound: there is none.
    """
    await _caught_up(api, request, target.kind)
    document = api.watch.get(target.kind.kind, target.namespace or "", target.name)
    if document is None:
        kind = target.kind
        resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        details = {"name": target.name, "kind": kind.plural, "group": kind.group}
        raise NotFound(f'{resource} "{target.name}" not found', (), details)
    seen = view(document, target.kind, principal)
    form = representation(request)
    if form == "table":
        include = one_of("includeObject", request.query.get("includeObject", ""), INCLUDES, "Metadata")
        found = table(target.kind.kind, [seen], now=api.clock.now(), include=include)
        return json_response({**found, "metadata": {"resourceVersion": str(document.revision)}})
    return json_response(metadata_only(seen) if form == "partial" else seen)


async def list_objects(api: Api, pages: Pages, request: Request, principal: Principal, target: Target) -> Response:
    """GET of a collection.

    Raises:
        GpubusError: answered 410; the asked revision or continue token is too old.
    """
    limit, token = request.number("limit") or 0, request.query.get("continue", "")
    now = api.clock.monotonic()
    if token:
        mark, start, documents, revision = pages.resume(token, now)
    else:
        await _caught_up(api, request, target.kind)
        mark, start, documents, revision = "", 0, selected(api, request, target), api.watch.revision(target.kind.kind)
    end = start + limit if limit else len(documents)
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if end < len(documents):
        mark = mark or pages.keep(documents, revision, now)
        metadata |= {"continue": token_of(mark, end), "remainingItemCount": len(documents) - end}
    views = [view(document, target.kind, principal) for document in documents[start:end]]
    return json_response(_listed(api, request, target.kind, views, metadata))


def selected(api: Api, request: Request, target: Target) -> list[Document]:
    """The selected documents, now."""
    wanted = selection(request, target)
    kind = target.kind.kind
    if wanted.name is not None and (wanted.namespace or not target.kind.namespaced):
        found = api.watch.get(kind, wanted.namespace or "", wanted.name)
        return [found] if found is not None and wanted.takes(found) else []
    documents = api.watch.list(kind, wanted.namespace)
    plain = wanted.name is None and wanted.labels is None and wanted.fields is None
    return documents if plain else [document for document in documents if wanted.takes(document)]


def _listed(
    api: Api, request: Request, kind: Kind, views: Sequence[dict[str, Any]], metadata: dict[str, Any]
) -> dict[str, Any]:
    form: Representation = representation(request)
    if form == "table":
        include = one_of("includeObject", request.query.get("includeObject", ""), INCLUDES, "Metadata")
        return {**table(kind.kind, views, now=api.clock.now(), include=include), "metadata": metadata}
    if form == "partial":
        items = [metadata_only(seen) for seen in views]
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items,
        }
    return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": views}


async def _caught_up(api: Api, request: Request, kind: Kind) -> None:
    """A reader that has seen a revision elsewhere is not shown less here.

    Raises:
        Malformed: the revision is no number. GpubusError: answered 410; it is unknown here, or too old for `Exact`.
    """
    revision = request.number("resourceVersion")
    if not revision:
        return
    if not await api.watch.reached(kind.kind, revision):
        raise expired(f"resource version {revision} is not known here; list again without one")
    exact = request.query.get("resourceVersionMatch", "") == "Exact"
    if exact and api.watch.revision(kind.kind) != revision:
        raise expired(f"resource version {revision} is no longer kept; list again without one")


def json_lines(*objects: Mapping[str, Any]) -> bytes:
    """Objects as lines of JSON."""
    return b"".join(orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE) for item in objects)
