"""An object as its reader may see it: computed fields in, secrets out.

Must not change what is stored. Read next: phase.py, columns.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.gateway.domain.phase import phase
from shared.resources.access import SETTINGS
from shared.resources.kinds import Kind


def shown(kind: Kind, body: Mapping[str, Any], *, secrets: bool = True) -> dict[str, Any]:
    """The object with its phase and without empty metadata; without the hash of a key, and secrets only if `secrets`."""
    view = dict(body)
    metadata = view.get("metadata") or {}
    if any(metadata.get(field) in _EMPTY for field in _LEFT_OUT):
        kept = {name: value for name, value in metadata.items() if name not in _LEFT_OUT or value not in _EMPTY}
        view["metadata"] = kept
    view.setdefault("apiVersion", kind.api_version)
    view.setdefault("kind", kind.kind)
    word = phase(kind.kind, body)
    if word:
        view["status"] = {**(view.get("status") or {}), "phase": word}
    special = _SPECIAL.get(kind.kind)
    return special(view, secrets=secrets) if special is not None else view


def metadata_only(body: Mapping[str, Any]) -> dict[str, Any]:
    """PartialObjectMetadata: what controllers and tables need of an object they do not know."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": body.get("metadata") or {}}


def _secret(view: dict[str, Any], *, secrets: bool) -> dict[str, Any]:
    if secrets:
        return view
    # The keys are no secret, and `describe` counts them. An annotation may hold a copy of the values (kubectl apply).
    metadata = dict(view.get("metadata") or {})
    metadata.pop("annotations", None)
    return {**view, "metadata": metadata, "data": dict.fromkeys(view.get("data") or {}, "")}


def _api_key(view: dict[str, Any], *, secrets: bool) -> dict[str, Any]:  # noqa: ARG001 - the shape of every special view
    spec = {name: value for name, value in (view.get("spec") or {}).items() if name != "hash"}
    return {**view, "spec": spec}


def _setting(view: dict[str, Any], *, secrets: bool) -> dict[str, Any]:  # noqa: ARG001
    name = (view.get("metadata") or {}).get("name", "")
    value = (view.get("spec") or {}).get("value", "")
    return {**view, "status": {**(view.get("status") or {}), "value": value, "default": SETTINGS.get(name, "")}}


def _pull_secret(view: dict[str, Any], *, secrets: bool) -> dict[str, Any]:
    if secrets:
        return view
    metadata = dict(view.get("metadata") or {})
    metadata.pop("annotations", None)
    return {**view, "metadata": metadata, "spec": {**(view.get("spec") or {}), "password": ""}}


_SPECIAL = {"Secret": _secret, "InstanceImagePullSecret": _pull_secret, "ApiKey": _api_key, "Setting": _setting}
_LEFT_OUT = frozenset({"namespace", "generateName", "labels", "annotations", "finalizers", "ownerReferences"})
"""Metadata that readers do not see while it is empty."""
_EMPTY: tuple[Any, ...] = ("", {}, [])
