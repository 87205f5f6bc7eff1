"""Which lists of a kind merge by which key: for strategic patches, and for the schemas that tell kubectl to send them.

A second apply of a manifest then changes nothing where defaults were filled into a list's elements, and a removed
element goes. Must say the same to both sides. Read next: strategic.py, ../routes/openapi.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from services.gateway.domain.strategic import MERGE_KEYS
from shared.resources.kinds import KINDS, Kind

_OWN: Mapping[str, tuple[str, ...]] = {
    "roles": ("name",), "env": ("name",), "containers": ("name",), "initContainers": ("name",),
    "ports": ("containerPort", "port"), "conditions": ("type",), "ownerReferences": ("uid",),
}  # fmt: skip
"""Lists of our own kinds whose elements have a key, the first of these that they must have: kubectl warns of one without."""


def merge_keys(kind: Kind) -> Mapping[str, str]:
    """List field to merge key. A list that is not in it is one value."""
    return MERGE_KEYS if not kind.group else _own_keys(kind.kind)


@cache
def _own_keys(kind: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    without: set[str] = set()
    for field, element in _lists(KINDS[kind].model.model_json_schema(by_alias=True)):
        key = next((name for name in _OWN.get(field, ()) if name in element), "")
        if not key or found.setdefault(field, key) != key:
            without.add(field)
    # Patches name fields, not paths: a name that means two lists in one kind merges in neither.
    return {field: key for field, key in found.items() if field not in without}


def _lists(schema: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """(field, what its elements must have) of every list; nothing where elements are no objects with fields of their own."""
    models = schema.get("$defs", {})
    for model in (schema, *models.values()):
        for field, below in (model.get("properties") or {}).items():
            array = next((s for s in (below, *below.get("anyOf", ())) if s.get("type") == "array"), None)
            if array is not None:
                element = models.get(str(array.get("items", {}).get("$ref", "")).rpartition("/")[2], {})
                yield field, element.get("required") or []
