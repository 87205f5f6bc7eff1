"""Merge patches (RFC 7396) and JSON patches (RFC 6902) on JSON values.

Must not know kinds. Results share nothing mutable with their input. Read next: strategic.py, field_sets.py.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from shared.errors import Cause, InvalidArgument, Malformed
from shared.manifest_text import MAX_DEPTH

MAX_OPERATIONS = 1000
MAX_COPIED = 100_000
"""Values that `copy` operations of one patch may add: doubling thirty times must not fill the memory."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "add": ("path", "value"), "replace": ("path", "value"), "test": ("path", "value"),
    "remove": ("path",), "move": ("path", "from"), "copy": ("path", "from"),
}  # fmt: skip


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch's fields set, and those that it nulls removed."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """The target after the operations, in order.

    Raises:
        Malformed: the patch is none. InvalidArgument: an operation does not apply; nothing of it does then.
    """
    if not isinstance(operations, Sequence) or isinstance(operations, str):
        raise Malformed("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise Malformed(f"a JSON patch has at most {MAX_OPERATIONS} operations; found {len(operations)}")
    result, copied = copy.deepcopy(target), 0
    for position, operation in enumerate(operations):
        checked = _checked(operation, position)
        if checked["op"] == "copy":
            copied += _extent(_at(result, _pointer(checked["from"], position), position))[0]
            if copied > MAX_COPIED:
                raise Malformed("the patch copies too much")
        result = _apply(result, checked, position)
    return result


def _checked(operation: Any, position: int) -> Mapping[str, Any]:
    needs = _NEEDS.get(operation.get("op", "")) if isinstance(operation, Mapping) else None
    if needs is None:
        raise Malformed(f"[{position}]: op must be one of {', '.join(_NEEDS)}")
    missing = [name for name in needs if name not in operation]
    if missing:
        raise Malformed(f"[{position}]: {', '.join(missing)} is required")
    assert isinstance(operation, Mapping)
    return operation


def _apply(document: Any, operation: Mapping[str, Any], position: int) -> Any:
    path = _pointer(operation["path"], position)
    kind = operation["op"]
    if kind == "test":
        if not _same(_at(document, path, position), operation["value"]):
            raise _refused(position, "the test failed: the value is another one")
        return document
    if kind == "remove":
        return _removed(document, path, position)
    if kind == "replace":
        _at(document, path, position)
        return _set(document, path, copy.deepcopy(operation["value"]), position, insert=False)
    if kind == "add":
        return _set(document, path, copy.deepcopy(operation["value"]), position, insert=True)
    source = _pointer(operation["from"], position)
    value = copy.deepcopy(_at(document, source, position))
    if kind == "move":
        if path[: len(source)] == source and path != source:
            raise _refused(position, "a value cannot be moved into itself")
        document = _removed(document, source, position)
    return _set(document, path, value, position, insert=True)


def _pointer(text: Any, position: int) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise Malformed(f"[{position}]: a path is empty or begins with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(document: Any, path: Sequence[str], position: int) -> Any:
    for part in path:
        if isinstance(document, Mapping) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1, position)]
        else:
            raise _refused(position, "there is nothing at the path")
    return document


def _removed(document: Any, path: Sequence[str], position: int) -> Any:
    _at(document, path, position)
    if not path:
        return None
    parent = _at(document, path[:-1], position)
    if isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        del parent[path[-1]]
    return document


def _set(document: Any, path: Sequence[str], value: Any, position: int, *, insert: bool) -> Any:
    if len(path) + _extent(value)[1] > MAX_DEPTH:
        raise Malformed(f"the patch nests deeper than {MAX_DEPTH}")
    if not path:
        return value
    parent, last = _at(document, path[:-1], position), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and insert:
        parent.insert(len(parent) if last == "-" else _index(last, len(parent), position), value)
    elif isinstance(parent, list):
        parent[_index(last, len(parent) - 1, position)] = value
    else:
        raise _refused(position, "the path's parent is no mapping or list")
    return document


def _index(part: str, highest: int, position: int) -> int:
    plain = part.isascii() and part.isdigit() and (part == "0" or not part.startswith("0")) and len(part) < 8
    if not plain or int(part) > highest:
        raise _refused(position, "there is nothing at the path")
    return int(part)


def _same(one: Any, other: Any) -> bool:
    # In JSON true is not 1; in Python it is.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _extent(value: Any) -> tuple[int, int]:
    """(values in it, levels of it)."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    extents = [_extent(item) for item in inner]
    return 1 + sum(count for count, _ in extents), 1 + max((levels for _, levels in extents), default=0)


def _refused(position: int, sentence: str) -> InvalidArgument:
    field = f"[{position}].path"
    return InvalidArgument(f"the patch does not apply: {field}: {sentence}", (Cause(field, sentence),))
