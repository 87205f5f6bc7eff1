"""Writes over HTTP: decode the body, say what is meant, answer what became of it.

Must not decide what is right (the kind's owner does) nor apply changes itself (store/objects.py does).
Read next: services/gateway/store/objects.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from services.gateway.domain import protobuf
from services.gateway.domain.auth import Principal, authorise
from services.gateway.domain.decoding import address
from services.gateway.domain.merging import merge_keys
from services.gateway.domain.patches import json_patch, merge_patch
from services.gateway.domain.status import success
from services.gateway.domain.strategic import strategic_merge
from services.gateway.routes.api import Api, Target, answered
from services.gateway.routes.http import JSON_TYPE, Request, Response, UnsupportedMedia, json_response, one_of
from services.gateway.routes.resources import selected
from services.gateway.store.objects import Options, Place, Written
from shared.errors import Cause, InvalidArgument, Malformed, NotFound, invalid
from shared.manifest_text import MAX_BYTES, load_json, load_one
from shared.store.documents import Document

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
APPLY_TYPES = ("application/apply-patch+yaml", "application/apply-patch+json")
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_SLOW_BYTES = 64 * 1024
"""Larger YAML is read in a thread: it takes a second for 3 MiB, and other requests must not wait."""
_MANAGER = re.compile(r"[\x20-\x7e]{1,128}", re.ASCII)
_PARALLEL_DELETES = 16
_ANSWER_WARNINGS = 10
_KEY_SHOWN_ONCE = (
    "the key is status.token of this answer and is never shown again; kubectl shows it with -o jsonpath={.status.token}"
)
"""`kubectl apply` prints only that an object was created: who did not ask for the key must make another."""


async def create(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """POST to a collection."""
    raw = await request.body(MAX_BYTES)
    body = await _object(request, raw)
    options = options_of(request, principal, raw)
    filled = address(target.kind, body, target.namespace or "", "")
    name = filled["metadata"].get("name") or ""
    written = await api.objects.create(Place(target.kind, target.namespace or "", name), filled, options)
    return _written(written, target, principal)


async def replace(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """PUT of one object."""
    raw = await request.body(MAX_BYTES)
    body = address(target.kind, await _object(request, raw), target.namespace or "", target.name)

    def wanted(current: dict[str, Any]) -> dict[str, Any]:
        return _with_managed(body, current)

    return _written(
        await api.objects.change(target.place, wanted, options_of(request, principal, raw)), target, principal
    )


async def patch(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """PATCH of one object: merge, JSON, strategic, or server-side apply."""
    raw = await request.body(MAX_BYTES)
    options = options_of(request, principal, raw)
    media = request.media_type
    if media in APPLY_TYPES:
        if not request.query.get("fieldManager"):
            raise invalid("fieldManager", "is required for apply patch", "FieldValueRequired")
        config = address(target.kind, await _yaml(raw), target.namespace or "", target.name)
        if (config.get("metadata") or {}).get("managedFields"):
            raise Malformed("metadata.managedFields must be left out of an applied object")
        return _written(await api.objects.apply(target.place, config, options), target, principal)
    change = _patch_change(media, raw, target)

    def wanted(current: dict[str, Any]) -> dict[str, Any]:
        changed = change(current)
        if not isinstance(changed, Mapping):
            raise InvalidArgument("the patch leaves no object", (Cause("", "is no object"),))
        return address(target.kind, changed, target.namespace or "", target.name)

    return _written(await api.objects.change(target.place, wanted, options), target, principal)


def _patch_change(media: str, raw: bytes, target: Target) -> Callable[[dict[str, Any]], Any]:
    if media == MERGE:
        sent = _mapping(load_json(raw))
        return lambda current: merge_patch(current, sent)
    if media == JSON_PATCH:
        operations = load_json(raw)
        return lambda current: json_patch(current, operations)
    if media == STRATEGIC:
        directives, keys = _mapping(load_json(raw)), merge_keys(target.kind)
        return lambda current: strategic_merge(current, directives, keys)
    taken = f"{MERGE}, {STRATEGIC}, {JSON_PATCH}, {APPLY_TYPES[0]}"
    raise UnsupportedMedia(
        f"the body of the request was in an unsupported format - accepted media types include: {taken}"
    )


async def delete(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """DELETE of one object."""
    options, uid, revision = await _delete_options(request, principal)
    written = await api.objects.delete(target.place, options, uid=uid, revision=revision)
    if written.body is None:
        return json_response(success(written.details))
    return json_response(answered(written.body, target.kind, principal))


async def delete_collection(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """DELETE of a collection: what is selected now, each on its own."""
    options, uid, revision = await _delete_options(request, principal)
    if uid or revision is not None:
        raise Malformed("preconditions are for one object")
    authorise(principal, "list", target.kind, target.namespace)
    documents = selected(api, request, target)
    room = asyncio.Semaphore(_PARALLEL_DELETES)

    async def one(document: Document) -> dict[str, Any]:
        async with room:
            try:
                place = Place(target.kind, document.namespace, document.name)
                written = await api.objects.delete(place, options, uid=document.uid)
            except NotFound:
                return document.json()
        return written.body or document.json()

    found = await asyncio.gather(*(one(document) for document in documents), return_exceptions=True)
    failures = [item for item in found if isinstance(item, BaseException)]
    if failures:
        raise failures[0]
    items = [answered(item, target.kind, principal) for item in found if isinstance(item, dict)]
    metadata = {"resourceVersion": str(api.watch.revision(target.kind.kind))}
    return json_response(
        {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.api_version, "metadata": metadata, "items": items}
    )


def _written(written: Written, target: Target, principal: Principal) -> Response:
    if written.body is None:
        return json_response(success(written.details))
    response = json_response(answered(written.body, target.kind, principal), 201 if written.created else 200)
    once = (
        (_KEY_SHOWN_ONCE,) if (written.body.get("status") or {}).get("token") and target.kind.kind == "ApiKey" else ()
    )
    for warning in (*once, *written.warnings[:_ANSWER_WARNINGS]):
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.append(("warning", f'299 - "{text}"'))
    return response


def _with_managed(body: dict[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """A replacement that says nothing about ownership leaves it as it is."""
    metadata = dict(body["metadata"])
    if not metadata.get("managedFields") and metadata.get("managedFields") != []:
        metadata.pop("managedFields", None)
        known = (current.get("metadata") or {}).get("managedFields")
        if known is not None:
            metadata["managedFields"] = known
    return {**body, "metadata": metadata}


# What was sent


async def _object(request: Request, raw: bytes) -> dict[str, Any]:
    media = request.media_type
    if media == JSON_TYPE:
        return _mapping(load_json(raw))
    if media in YAML_TYPES:
        return await _yaml(raw)
    if media == protobuf.MEDIA_TYPE:
        return protobuf.load_protobuf(raw)
    raise UnsupportedMedia(f"Content-Type {media[:80]!r} is not taken; send {JSON_TYPE} or {YAML_TYPES[0]}")


async def _yaml(raw: bytes) -> dict[str, Any]:
    return load_one(raw) if len(raw) < _SLOW_BYTES else await asyncio.to_thread(load_one, raw)


def _mapping(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Malformed("the body must be a mapping")
    return body


def options_of(request: Request, principal: Principal, raw: bytes) -> Options:
    """How a write is meant, from its parameters and headers.

    Raises:
        InvalidArgument, Malformed: a parameter that is not valid.
    """
    validation = one_of(
        "fieldValidation", request.query.get("fieldValidation", ""), ("Strict", "Warn", "Ignore"), "Strict"
    )
    return Options(
        user=principal.name,
        manager=_manager(request),
        dry_run=_dry_run(request.query.get("dryRun", "")),
        force=request.flag("force"),
        validation=validation,  # type: ignore[arg-type]  # one_of checked it
        idempotency=_idempotency(request, raw),
    )


def _manager(request: Request) -> str:
    sent = request.query.get("fieldManager", "")
    if sent:
        if not _MANAGER.fullmatch(sent):
            raise invalid("fieldManager", "must be at most 128 printable characters")
        return sent
    agent = request.header(b"user-agent").partition("/")[0]
    return agent if _MANAGER.fullmatch(agent) else "unknown"


def _dry_run(value: str) -> bool:
    return one_of("dryRun", value, ("All",), "") == "All"


def _idempotency(request: Request, raw: bytes) -> str:
    key = request.header(b"idempotency-key")
    if not key:
        return ""
    if len(key) > 256 or not key.isprintable():
        raise invalid("Idempotency-Key", "must be at most 256 printable characters")
    return f"{key}:{hashlib.sha256(raw).hexdigest()}"


async def _delete_options(request: Request, principal: Principal) -> tuple[Options, str, int | None]:
    raw = await request.body(MAX_BYTES)
    sent = await _object(request, raw) if raw.strip() else {}
    dry = sent.get("dryRun") or ([request.query["dryRun"]] if request.query.get("dryRun") else [])
    if not isinstance(dry, list) or not all(isinstance(item, str) for item in dry):
        raise Malformed("dryRun must be a list", (Cause("dryRun", "must be a list"),))
    given = sent.get("propagationPolicy") or request.query.get("propagationPolicy", "")
    propagation = one_of("propagationPolicy", str(given), ("Background", "Foreground", "Orphan"), "Background")
    grace = sent.get("gracePeriodSeconds")
    if grace is None:
        grace = request.number("gracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
        raise invalid("gracePeriodSeconds", "must be a whole number, not negative")
    uid, revision = _preconditions(sent.get("preconditions"))
    options = Options(
        user=principal.name,
        manager=_manager(request),
        dry_run=any(_dry_run(item) for item in dry),
        propagation=propagation,
        grace_seconds=grace,
        idempotency=_idempotency(request, raw),
    )
    return options, uid, revision


def _preconditions(sent: Any) -> tuple[str, int | None]:
    if sent is None:
        return "", None
    if not isinstance(sent, Mapping):
        raise Malformed("preconditions must be a mapping", (Cause("preconditions", "must be a mapping"),))
    uid, revision = sent.get("uid") or "", sent.get("resourceVersion") or ""
    if not isinstance(uid, str) or not isinstance(revision, str) or (revision and not revision.isdigit()):
        raise Malformed(
            "preconditions.uid and preconditions.resourceVersion must be text",
            (Cause("preconditions", "is not valid"),),
        )
    return uid, int(revision) if revision else None
