"""Why a workload is where it is, or waits: asked of the scheduler; and what became of a write whose answer was lost.

Must not judge placement. Read next: shared/queries.py (ExplainPlacement).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.gateway.domain.auth import Principal, authorise
from services.gateway.routes.api import Api, Target
from services.gateway.routes.http import Request, Response, json_response
from shared.errors import Cause, Malformed, NotFound, from_dict
from shared.manifest_text import MAX_BYTES, load_json
from shared.queries import ExplainPlacement
from shared.resources.kinds import KINDS

_ASK_SECONDS = 5.0
WORKLOAD = KINDS["Workload"]


async def explain_one(api: Api, target: Target) -> Response:
    """GET …/workloads/NAME/explain.

    Raises:
        NotFound: no such workload. Unavailable: no scheduler answers.
    """
    if target.kind is not WORKLOAD:
        raise NotFound(f"{target.kind.plural} cannot be explained; ask for their workload")
    if api.watch.get(WORKLOAD.kind, target.namespace or "", target.name) is None:
        raise NotFound(f'workloads "{target.name}" not found', (), {"name": target.name, "kind": WORKLOAD.plural})
    question = ExplainPlacement(namespace=target.namespace or "", name=target.name)
    answer = await api.bus.ask(question, _ASK_SECONDS)
    return json_response(answer.model_dump(mode="json", by_alias=True))


async def explain_what_if(api: Api, request: Request, principal: Principal) -> Response:
    """POST /apis/gpubus.io/v1/explain: a Workload manifest, or {namespace, workload: WorkloadSpec}; nothing is stored.

    Raises:
        Malformed: neither. PermissionDenied: another's namespace. Unavailable: no scheduler answers.
    """
    body = load_json(await request.body(MAX_BYTES))
    namespace, spec = _what_if(body)
    authorise(principal, "get", WORKLOAD, namespace)
    answer = await api.bus.ask(ExplainPlacement(namespace=namespace, workload=spec), _ASK_SECONDS)
    return json_response(answer.model_dump(mode="json", by_alias=True))


def _what_if(body: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(body, Mapping) and body.get("kind") == WORKLOAD.kind:
        metadata = body.get("metadata") if isinstance(body.get("metadata"), Mapping) else {}
        namespace, spec = (metadata or {}).get("namespace", "default"), body.get("spec")
    elif isinstance(body, Mapping):
        namespace, spec = body.get("namespace", "default"), body.get("workload")
    else:
        namespace, spec = None, None
    if not isinstance(namespace, str) or not isinstance(spec, dict):
        raise Malformed("send a Workload, or {namespace, workload: its spec}", (Cause("workload", "is required"),))
    return namespace, spec


async def operation(api: Api, principal: Principal, operation_id: str) -> Response:
    """GET /apis/gpubus.io/v1/operations/ID: the answer to a write that timed out; administrators only see others'.

    Raises:
        NotFound: no owner knows it: it did not run, or was more than 15 minutes ago.
    """
    authorise(principal, "get", KINDS["Namespace"], "", principal.namespace)
    found = await api.objects.operation(operation_id)
    if found is None:
        raise NotFound(
            "no such operation: it was never carried out, or more than 15 minutes ago", (), {"name": operation_id}
        )
    if found.error is not None:
        raise from_dict(found.error)
    # Not the object: the asker may not be the one who may read it.
    metadata = (found.object or {}).get("metadata") or {}
    kept = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
    state = {
        "kind": "Operation",
        "apiVersion": "gpubus.io/v1",
        "metadata": {"name": operation_id},
        "status": {"done": True},
    }
    return json_response({**state, "object": {"kind": (found.object or {}).get("kind", ""), **kept}})
