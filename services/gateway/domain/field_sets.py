"""Sets of fields of an object, as Kubernetes' managedFields write them (FieldsV1).

A field is a path of steps: `f:<name>`, `k:{"name":"x"}` for a list element with a name, `v:<json>` for an element of a
set; `.` at the end means the element itself. Must not know who owns what. Read next: ownership.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

Path = tuple[str, ...]
FieldSet = frozenset[Path]

SELF = "."
_SYSTEM_METADATA = frozenset({
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink", "generateName",
})  # fmt: skip
_NOT_OWNED = frozenset({"apiVersion", "kind", "status"})
_SETS = frozenset({("f:metadata", "f:finalizers")})
_MISSING = object()


def fields_of(body: Mapping[str, Any]) -> FieldSet:
    """Every field that a writer of this object sets; identity, status and what the system fills in are nobody's."""
    owned = {name: value for name, value in body.items() if name not in _NOT_OWNED}
    metadata = owned.get("metadata")
    if isinstance(metadata, Mapping):
        owned["metadata"] = {name: value for name, value in metadata.items() if name not in _SYSTEM_METADATA}
    found: set[Path] = set()
    for name, value in owned.items():
        if name != "metadata" or value:
            _collect(value, (f"f:{name}",), found)
    return frozenset(found)


def list_key(items: Any) -> str | None:
    """What tells the elements of a list apart: uid or name when every element has its own; None for a list that is one value."""
    if not isinstance(items, list) or not items or not all(isinstance(item, Mapping) for item in items):
        return None
    for key in ("uid", "name"):
        marks = [item.get(key) for item in items]
        if all(isinstance(mark, str) and mark for mark in marks) and len(set(marks)) == len(marks):
            return key
    return None


def key_fields(step: str) -> tuple[str, ...]:
    """The fields that an element's step names: without them the element has no key."""
    key = _loads(step[2:])
    return tuple(f"f:{name}" for name in key) if isinstance(key, dict) else ()


def value_at(body: Any, path: Path) -> Any:
    """The value of a field; `missing(value)` tells when there is none."""
    for step in path:
        body = _step(body, step)
        if body is _MISSING:
            return _MISSING
    return body


def missing(value: Any) -> bool:
    """Whether `value_at` found nothing."""
    return value is _MISSING


def without(body: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """A copy without some fields, and without the mappings that became empty by it."""
    # Leaves first, but an element before its key: without the key it would not be found any more.
    for path in sorted(paths, key=lambda path: (-len(path), path[-1] != SELF)):
        body = _without(body, path)
    return body


def to_fields_v1(paths: Iterable[Path]) -> dict[str, Any]:
    """The nested form of managedFields."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def from_fields_v1(tree: Any) -> FieldSet:
    """The reverse; what is not in that form is left out."""
    found: set[Path] = set()
    _walk(tree, (), found)
    return frozenset(found)


def shown(path: Path) -> str:
    """A path for people: `.spec.roles[name="server"].replicas`."""
    out = ""
    for step in path:
        if step.startswith("f:"):
            out += f".{step[2:]}"
        elif step != SELF:
            key = _loads(step[2:])
            inside = (
                ",".join(f'{name}="{value}"' for name, value in key.items()) if isinstance(key, dict) else repr(key)
            )
            out += f"[{inside}]"
    return out


def _collect(value: Any, path: Path, found: set[Path]) -> None:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            _collect(item, (*path, f"f:{name}"), found)
        return
    key = list_key(value)
    if key is not None:
        for item in value:
            element = (*path, _key_step(key, item[key]))
            found.add((*element, SELF))
            for name, inner in item.items():
                _collect(inner, (*element, f"f:{name}"), found)
    elif path in _SETS and isinstance(value, list):
        found.update((*path, f"v:{orjson.dumps(item).decode()}") for item in value)
    else:
        found.add(path)


def _key_step(key: str, mark: str) -> str:
    return f"k:{orjson.dumps({key: mark}).decode()}"


def _step(body: Any, step: str) -> Any:
    if step == SELF:
        return True
    kind, rest = step[:2], step[2:]
    if kind == "f:":
        return body[rest] if isinstance(body, Mapping) and rest in body else _MISSING
    if not isinstance(body, list):
        return _MISSING
    wanted = _loads(rest)
    if kind == "v:":
        return True if wanted in body else _MISSING
    return next((item for item in body if _matches(item, wanted)), _MISSING)


def _matches(item: Any, key: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and isinstance(key, Mapping)
        and all(item.get(name) == mark for name, mark in key.items())
    )


def _without(body: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(body, Mapping) or name not in body:
            return body
        inner = _without(body[name], rest) if rest else None
        return {
            key: (inner if key == name else value)
            for key, value in body.items()
            if key != name or inner not in (None, {}, [])
        }
    if not isinstance(body, list):
        return body
    wanted = _loads(step[2:])
    if step.startswith("v:"):
        return [item for item in body if item != wanted]
    if rest in {(), (SELF,)}:
        return [item for item in body if not _matches(item, wanted)]
    return [_without(item, rest) if _matches(item, wanted) else item for item in body]


def _walk(tree: Any, path: Path, found: set[Path]) -> None:
    if not isinstance(tree, Mapping) or not tree:
        if path:
            found.add(path)
        return
    for step, below in tree.items():
        if step == SELF:
            found.add((*path, SELF))
        elif step[:2] in {"f:", "k:", "v:"}:
            _walk(below, (*path, step), found)


def _loads(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _MISSING
