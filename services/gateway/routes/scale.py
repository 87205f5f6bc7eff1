"""/scale of a ModelDeployment: the replicas of its first role, as `kubectl scale` reads and sets them.

Must not know how replicas come about. Read next: writes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.gateway.domain.auth import Principal
from services.gateway.domain.patches import json_patch, merge_patch
from services.gateway.routes.api import SCALED, Api, Target
from services.gateway.routes.http import JSON_TYPE, Request, Response, UnsupportedMedia, json_response
from services.gateway.routes.writes import JSON_PATCH, MERGE, options_of
from shared.errors import Cause, InvalidArgument, Malformed, NotFound
from shared.manifest_text import MAX_BYTES, load_json
from shared.resources.deployment import LABEL_DEPLOYMENT

_INT32 = 2**31


async def read_scale(api: Api, target: Target) -> Response:
    """GET.

    Raises:
        NotFound: no such deployment, or a kind without a scale.
    """
    return json_response(_scale(_scaled(api, target)))


async def write_scale(api: Api, request: Request, principal: Principal, target: Target) -> Response:
    """PUT or PATCH.

    Raises:
        NotFound: no such deployment. InvalidArgument: no number of replicas. GpubusError: the owner's refusal.
    """
    before = _scale(_scaled(api, target))
    raw = await request.body(MAX_BYTES)
    replicas = _replicas(_sent(request, raw, before))
    revision = _sent(request, raw, before).get("metadata", {}).get("resourceVersion")

    def wanted(current: dict[str, Any]) -> dict[str, Any]:
        roles = [dict(role) for role in current["spec"]["roles"]]
        roles[0]["replicas"] = replicas
        metadata = {
            **current["metadata"],
            **({"resourceVersion": revision} if request.method == "PUT" and revision else {}),
        }
        return {**current, "metadata": metadata, "spec": {**current["spec"], "roles": roles}}

    written = await api.objects.change(target.place, wanted, options_of(request, principal, raw))
    assert written.body is not None, "scaling removes nothing"
    return json_response(_scale(written.body))


def _scaled(api: Api, target: Target) -> dict[str, Any]:
    if target.kind.kind != SCALED:
        raise NotFound(f"{target.kind.plural} have no scale")
    document = api.watch.get(SCALED, target.namespace or "", target.name)
    if document is None:
        details = {"name": target.name, "kind": target.kind.plural, "group": target.kind.group}
        raise NotFound(f'{target.kind.plural}.{target.kind.group} "{target.name}" not found', (), details)
    return document.json()


def _scale(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata, role = body["metadata"], body["spec"]["roles"][0]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    ready = next(
        (r.get("ready", 0) for r in (body.get("status") or {}).get("roles") or () if r.get("name") == role["name"]), 0
    )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": role.get("replicas", 1)},
        "status": {"replicas": ready, "selector": f"{LABEL_DEPLOYMENT}={metadata['name']}"},
    }


def _sent(request: Request, raw: bytes, before: dict[str, Any]) -> dict[str, Any]:
    sent = load_json(raw)
    if request.method == "PATCH":
        if request.media_type == MERGE:
            sent = merge_patch(before, sent)
        elif request.media_type == JSON_PATCH:
            sent = json_patch(before, sent)
        else:
            raise UnsupportedMedia(f"a scale takes {MERGE} or {JSON_PATCH}")
    elif request.media_type != JSON_TYPE:
        raise UnsupportedMedia(f"a scale takes {JSON_TYPE}")
    if not isinstance(sent, dict):
        raise Malformed("the body must be a Scale")
    return sent


def _replicas(scale: Mapping[str, Any]) -> int:
    spec = scale.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, Mapping) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise Malformed("spec.replicas must be a whole number", (Cause("spec.replicas", "must be a whole number"),))
    if not 0 <= replicas < _INT32:
        raise InvalidArgument("spec.replicas: must not be negative", (Cause("spec.replicas", "must not be negative"),))
    return replicas
