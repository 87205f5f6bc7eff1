"""/openapi/v3: the schemas of every kind, generated from its model, as kubectl explain, apply and diff read them.

Built once, when first asked for: the models are large. Must not invent fields. Read next: shared/resources/kinds.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import orjson

from services.gateway.domain.merging import merge_keys
from services.gateway.domain.strategic import SETS
from services.gateway.routes.api import SCALED
from services.gateway.routes.discovery import groups, verbs
from services.gateway.routes.http import Response, json_response
from shared.errors import NotFound
from shared.resources.kinds import Kind

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_REFERENCE = "#/components/schemas/"
_DROPPED = frozenset({"additionalProperties", "title", "$defs"})
_SCALE_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_PATCHES = (*_SCALE_PATCHES, "application/apply-patch+yaml", "application/strategic-merge-patch+json")
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# gnostic's Document with swagger "2.0", info {title "gpubus", version "v1"} and no paths.
_V2 = b"\x0a\x032.0\x12\x0c\x0a\x06gpubus\x12\x02v1\x42\x00"
_OPTIONS = ("dryRun", "fieldManager", "fieldValidation", "force")


def index() -> Response:
    """Which documents there are; the hash lets clients keep them."""
    paths = {}
    for api_version in groups():
        place = "api/v1" if api_version == "v1" else f"apis/{api_version}"
        mark = hashlib.sha256(document(place)).hexdigest()[:32]
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={mark}"}
    return json_response({"paths": paths})


def empty_v2() -> Response:
    """/openapi/v2 for kubectl, which asks it about kinds that version 3 does not know; it then says so itself."""
    return Response(200, _V2, _V2_TYPE)


def group_document(place: str) -> Response:
    """One group's document.

    Raises:
        NotFound: no such group.
    """
    return Response(200, document(place))


@cache
def document(place: str) -> bytes:
    """The document of `api/v1` or `apis/<group>/<version>` as JSON text.

    Raises:
        NotFound: no such group.
    """
    api_version = place.removeprefix("apis/").removeprefix("api/")
    kinds = groups().get(api_version)
    if kinds is None or place != ("api/v1" if api_version == "v1" else f"apis/{api_version}"):
        raise NotFound(f"no OpenAPI document {place}; served are {', '.join(groups())}")
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for kind in kinds:
        _add_schemas(kind, schemas)
        paths |= _paths(kind, f"/{place}")
    body = {
        "openapi": "3.0.0",
        "info": {"title": "gpubus", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    return orjson.dumps(body)


def _add_schemas(kind: Kind, schemas: dict[str, Any]) -> None:
    generated = kind.model.model_json_schema(by_alias=True)
    prefix = _prefix(kind)
    names = {name: f"{prefix}.{name}" for name in generated.get("$defs", {})} | {"Metadata": f"{_META}.ObjectMeta"}
    for name, schema in generated.get("$defs", {}).items():
        schemas[names[name]] = _converted(schema, names)
        _tell_merges(schemas[names[name]], merge_keys(kind))
    whole = _converted(generated, names)
    whole["x-kubernetes-group-version-kind"] = [_gvk(kind)]
    schemas[f"{prefix}.{kind.kind}"] = whole
    reference = {"$ref": f"{_REFERENCE}{prefix}.{kind.kind}"}
    schemas[f"{prefix}.{kind.kind}List"] = {
        "type": "object",
        "description": f"A list of {kind.plural}.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "items": {"type": "array", "items": reference},
        },
        "x-kubernetes-group-version-kind": [{**_gvk(kind), "kind": f"{kind.kind}List"}],
    }


def _tell_merges(schema: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Which lists merge by what: kubectl apply then compares their elements, not the whole lists."""
    for field, below in (schema.get("properties") or {}).items():
        if below.get("type") == "array" and (field in keys or field in SETS):
            below["x-kubernetes-patch-strategy"] = "merge"
            if field in keys:
                below["x-kubernetes-patch-merge-key"] = keys[field]


def _prefix(kind: Kind) -> str:
    reverse = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{reverse}.{kind.version}"


def _gvk(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _converted(schema: Any, names: Mapping[str, str]) -> Any:
    """JSON Schema 2020 as OpenAPI 3.0: references renamed, null and const gone, closed objects left open."""
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return {"$ref": _REFERENCE + names[schema["$ref"].rpartition("/")[2]]}
    choices = [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]
    if len(choices) == 1:
        return {**_described(schema), **_converted(choices[0], names)}
    found: dict[str, Any] = {}
    for name, value in schema.items():
        found |= _keyword(name, value, names)
    return found


def _keyword(name: str, value: Any, names: Mapping[str, str]) -> dict[str, Any]:
    if name == "properties":
        return {name: {field: _converted(item, names) for field, item in value.items()}}
    if name == "anyOf":
        return {name: [_converted(item, names) for item in value]}
    if name == "items" or (name == "additionalProperties" and isinstance(value, Mapping)):
        return {name: _converted(value, names)}
    if name == "const":
        return {"enum": [value]}
    return {} if name in _DROPPED or (name == "default" and value is None) else {name: value}


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": schema["description"]} if "description" in schema else {}


def _paths(kind: Kind, root: str) -> dict[str, Any]:
    scope = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    collection = f"{scope}/{kind.plural}"
    allowed = set(verbs(kind))
    found: dict[str, Any] = {
        collection: {"get": _operation(kind, "list")},
        f"{collection}/{{name}}": {"get": _operation(kind, "get")},
    }
    if "create" in allowed:
        found[collection]["post"] = _operation(kind, "post", ("application/json", "application/yaml"))
        found[f"{collection}/{{name}}"]["put"] = _operation(kind, "put", ("application/json", "application/yaml"))
        found[f"{collection}/{{name}}"]["patch"] = _operation(kind, "patch", _PATCHES)
    if "delete" in allowed:
        found[f"{collection}/{{name}}"]["delete"] = _operation(kind, "delete")
    if kind.namespaced:
        found[f"{root}/{kind.plural}"] = {"get": _operation(kind, "list")}
    if kind.kind == SCALED:
        # By its own name: kubectl takes the first PATCH of a kind that it finds for what the kind takes.
        below = {"get": _operation(kind, "get"), "patch": _operation(kind, "patch", _SCALE_PATCHES)}
        found[f"{collection}/{{name}}/scale"] = {
            method: {**operation, "x-kubernetes-group-version-kind": _SCALE} for method, operation in below.items()
        }
    return found


def _operation(kind: Kind, action: str, takes: Sequence[str] = ()) -> dict[str, Any]:
    reference = {"$ref": f"{_REFERENCE}{_prefix(kind)}.{kind.kind}"}
    found: dict[str, Any] = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
    }
    if takes:
        # A fieldValidation parameter tells kubectl that the server validates.
        found["parameters"] = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _OPTIONS]
        found["requestBody"] = {"content": {media: {"schema": reference} for media in takes}}
    return found
