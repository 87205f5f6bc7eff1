"""Strategic merge patches, as kubectl sends them for the core kinds it knows by heart, and for ours as OpenAPI tells it.

Lists merge by their key (containers and roles by name) instead of being replaced. Directives: `$patch`, `$retainKeys`,
`$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`. Read next: merging.py (which lists), patches.py.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from shared.errors import Cause, Malformed

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name", "volumes": "name",
    "imagePullSecrets": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath",
    "hostAliases": "ip", "topologySpreadConstraints": "topologyKey", "taints": "key", "conditions": "type",
    "addresses": "type", "ownerReferences": "uid", "resourceClaims": "name", "readinessGates": "conditionType",
    "schedulingGates": "name", "containerStatuses": "name",
}  # fmt: skip
"""Kubernetes' patchMergeKey by field name; names mean the same in every core kind we serve."""
SETS = frozenset({"finalizers"})
"""Lists of plain values that merge."""
_ORDER, _DELETE, _PATCH, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$patch", "$retainKeys"


def strategic_merge(target: Any, patch: Any, keys: Mapping[str, str] = MERGE_KEYS) -> Any:
    """The target with the patch merged in; `keys` says which lists merge by what.

    Raises:
        Malformed: a directive that is none, or a list element without its key.
    """
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {name: copy.deepcopy(value) for name, value in patch.items() if name != _PATCH}
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise _malformed(_PATCH, "is replace, delete or merge")
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(merged, name, value, keys)
    _delete_plain(merged, patch)
    _order(merged, patch, keys)
    return _retained(merged, patch)


def _merge_field(merged: dict[str, Any], name: str, value: Any, keys: Mapping[str, str]) -> None:
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, list) and name in keys:
        merged[name] = _merge_keyed(merged.get(name), value, name, keys)
    elif isinstance(value, list) and name in SETS:
        old = merged.get(name) or []
        merged[name] = [*old, *(item for item in value if item not in old)]
    else:
        merged[name] = strategic_merge(merged.get(name), value, keys)


def _merge_keyed(old: Any, patch: list[Any], name: str, keys: Mapping[str, str]) -> list[Any]:
    key = keys[name]
    merged = list(old) if isinstance(old, list) else []
    if any(isinstance(item, Mapping) and item.get(_PATCH) == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if not (isinstance(item, Mapping) and _PATCH in item)]
    for item in patch:
        if not isinstance(item, Mapping) or key not in item:
            raise _malformed(name, f"each element needs {key}")
        position = next((n for n, known in enumerate(merged) if known.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            merged = [known for known in merged if known.get(key) != item[key]]
        elif position is None:
            merged.append(strategic_merge({}, item, keys))
        else:
            merged[position] = strategic_merge(merged[position], item, keys)
    return merged


def _delete_plain(merged: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for name, values in patch.items():
        if name.startswith(_DELETE) and isinstance(values, list):
            field = name.removeprefix(_DELETE)
            merged[field] = [item for item in merged.get(field) or [] if item not in values]


def _order(merged: dict[str, Any], patch: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    for name, wanted in patch.items():
        field = name.removeprefix(_ORDER)
        if not name.startswith(_ORDER) or not isinstance(wanted, list) or not isinstance(merged.get(field), list):
            continue
        key = keys.get(field)
        places = [item.get(key) if key and isinstance(item, Mapping) else item for item in wanted]

        def rank(item: Any, key: str | None = key, places: list[Any] = places) -> int:
            mark = item.get(key) if key and isinstance(item, Mapping) else item
            return places.index(mark) if mark in places else len(places)

        merged[field] = sorted(merged[field], key=rank)


def _retained(merged: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    kept = patch.get(_RETAIN)
    return {name: value for name, value in merged.items() if name in kept} if isinstance(kept, list) else merged


def _malformed(field: str, sentence: str) -> Malformed:
    return Malformed(f"the patch cannot be read: {field} {sentence}", (Cause(field, sentence),))
