"""What kubectl asks first: /version, /api, /apis and their resource lists, aggregated and plain.

Generated from the kind registry. Must not list what is not served. Read next: openapi.py, shared/resources/kinds.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from services.gateway.routes.api import below
from services.gateway.routes.http import Request, Response, accepts, json_response
from shared.errors import NotFound
from shared.resources.kinds import KINDS, Kind

VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+gpubus",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "any",
}
"""The Kubernetes version whose clients this API is tried with."""
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")


def groups() -> dict[str, list[Kind]]:
    """Kinds by group/version, in order of registration."""
    found: dict[str, list[Kind]] = {}
    for kind in KINDS.values():
        found.setdefault(kind.api_version, []).append(kind)
    return found


def verbs(kind: Kind) -> list[str]:
    """What may be asked of a kind."""
    if kind.kind == "Event":
        return list(_READ)
    return [*_READ, "delete", "deletecollection"] if kind.read_only else [*_READ, *_WRITE]


def discovery(request: Request) -> Response:
    """/api, /apis and below.

    Raises:
        NotFound: no such group or version; names those that are served.
    """
    root, rest = request.segments[0], request.segments[1:]
    if not rest:
        return _aggregated(root) if _wants_aggregated(request) else json_response(_plain_root(root))
    api_version = "/".join(rest)
    if root == "api" and rest == ("v1",):
        return json_response(_resource_list("v1"))
    if root == "apis" and len(rest) == 2 and api_version in groups():
        return json_response(_resource_list(api_version))
    if root == "apis" and len(rest) == 1 and any(version.startswith(f"{rest[0]}/") for version in groups()):
        return json_response({"kind": "APIGroup", "apiVersion": "v1", **_group(rest[0])})
    raise NotFound(f"{api_version} is not served here; served are {', '.join(groups())}")


def _wants_aggregated(request: Request) -> bool:
    for kind, parameters in accepts(request.header(b"accept")):
        if kind == "application/json":
            return parameters.get("g") == "apidiscovery.k8s.io" and parameters.get("v") == "v2"
    return False


@cache
def _aggregated(root: str) -> Response:
    versions = [name for name in groups() if (name == "v1") is (root == "api")]
    items = [_group_discovery(name) for name in versions]
    body = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    return json_response(body, content_type=_AGGREGATED)


def _group_discovery(api_version: str) -> dict[str, Any]:
    group, _, version = api_version.rpartition("/")
    resources = [_resource_discovery(kind) for kind in groups()[api_version]]
    return {
        "metadata": {"name": group, "creationTimestamp": None},
        "versions": [{"version": version, "resources": resources, "freshness": "Current"}],
    }


def _resource_discovery(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    }
    if kind.short:
        found["shortNames"] = list(kind.short)
    if kind.categories:
        found["categories"] = list(kind.categories)
    found["subresources"] = [
        {"subresource": name, "responseKind": _subresource_kind(kind, name), "verbs": _subresource_verbs(name)}
        for name in below(kind)
    ]
    return found


def _subresource_kind(kind: Kind, name: str) -> dict[str, str]:
    if name == "scale":
        return {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _subresource_verbs(name: str) -> list[str]:
    return ["get", "patch", "update"] if name == "scale" else ["get"]


def _plain_root(root: str) -> dict[str, Any]:
    if root == "api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    names = list(dict.fromkeys(name.rpartition("/")[0] for name in groups() if name != "v1"))
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def _group(name: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": version, "version": version.rpartition("/")[2]}
        for version in groups()
        if version.startswith(f"{name}/")
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(api_version: str) -> dict[str, Any]:
    resources: list[dict[str, Any]] = []
    for kind in groups()[api_version]:
        entry: dict[str, Any] = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs(kind),
        }
        resources += [_with_names(entry, "shortNames", kind.short, kind.categories), *_plain_subresources(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def _with_names(entry: dict[str, Any], field: str, short: Sequence[str], categories: Sequence[str]) -> dict[str, Any]:
    named = {field: list(short)} if short else {}
    return {**entry, **named, **({"categories": list(categories)} if categories else {})}


def _plain_subresources(kind: Kind) -> list[dict[str, Any]]:
    found = []
    for name in below(kind):
        entry = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        where = _subresource_kind(kind, name)
        scaled = {"group": where["group"], "version": where["version"]} if name == "scale" else {}
        found.append({**entry, **scaled, "kind": where["kind"], "verbs": _subresource_verbs(name)})
    return found
