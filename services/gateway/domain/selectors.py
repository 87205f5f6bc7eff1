"""Label and field selectors, as `kubectl -l` and `--field-selector` send them.

Pure. Read next: shared/resources/kinds.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shared.errors import Cause, Malformed

LabelSelector = Callable[[Mapping[str, str]], bool]
FieldSelector = Callable[[Mapping[str, Any]], bool]

_KEY = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_EQUALS = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})", re.ASCII)
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)", re.ASCII)
_EXISTS = re.compile(rf"(!?)\s*({_KEY})", re.ASCII)
_VALUE_RE = re.compile(_VALUE, re.ASCII)
_MAX_LENGTH = 4096

_COMMON = ("metadata.name", "metadata.namespace")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Pod": ("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "Secret": ("type",),
    "Event": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "source", "type",
    ),
    "Workload": ("spec.queueName",),
}  # fmt: skip
"""Which fields of which kind may be selected by; any other is refused rather than ignored."""


def label_selector(text: str) -> LabelSelector | None:
    """The selector; None when the text is empty and everything matches.

    Raises:
        Malformed: it cannot be read.
    """
    if not text.strip():
        return None
    requirements = [_requirement(part.strip()) for part in _split(text)]
    return lambda labels: all(requirement(labels) for requirement in requirements)


def field_selector(text: str, kind: str) -> FieldSelector | None:
    """The selector; None when the text is empty and everything matches. It takes an object as clients see it.

    Raises:
        Malformed: it cannot be read, or names a field that cannot be selected by.
    """
    if not text.strip():
        return None
    requirements = [_field_requirement(part.strip(), kind) for part in text.split(",") if part.strip()]
    return lambda body: all(requirement(body) for requirement in requirements)


def selected_name(text: str) -> str | None:
    """The one name that a field selector asks for, when it does: the object is then looked up, not searched."""
    for part in text.split(","):
        field, mark, value = part.strip().partition("=")
        if field == "metadata.name" and mark and not value.startswith("!"):
            return value.removeprefix("=")
    return None


def _split(text: str) -> list[str]:
    if len(text) > _MAX_LENGTH:
        raise _malformed("labelSelector", "is too long")
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def _requirement(text: str) -> LabelSelector:
    if found := _EQUALS.fullmatch(text):
        key, operator, value = found.group(1), found.group(3), found.group(4)
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _SET.fullmatch(text):
        return _membership(found.group(1), found.group(3), found.group(4))
    if found := _EXISTS.fullmatch(text):
        absent, key = bool(found.group(1)), found.group(2)
        return lambda labels: (key in labels) is not absent
    raise _malformed("labelSelector", f"cannot be read at {text[:80]!r}")


def _membership(key: str, operator: str, inside: str) -> LabelSelector:
    values = {value.strip() for value in inside.split(",")}
    if not all(_VALUE_RE.fullmatch(value) for value in values):
        raise _malformed("labelSelector", f"has a value that no label can have, for {key}")
    if operator == "notin":
        return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values


def _field_requirement(text: str, kind: str) -> FieldSelector:
    field, operator, value = _field_parts(text)
    known = (*_COMMON, *_FIELDS.get(kind, ()))
    if field not in known:
        raise _malformed("fieldSelector", f"cannot select {kind} by {field[:80]!r}; it can by {', '.join(known)}")
    path = field.split(".")
    wanted = operator != "!="

    def matches(body: Mapping[str, Any]) -> bool:
        found: Any = body
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        return (_text(found) == value) is wanted

    return matches


def _field_parts(text: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        field, mark, value = text.partition(operator)
        if mark:
            return field.strip(), operator, value.strip().replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\")
    raise _malformed("fieldSelector", f"cannot be read at {text[:80]!r}")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):  # source: {component: x}
        return str(value.get("component", ""))
    return "" if value is None else str(value)


def _malformed(field: str, sentence: str) -> Malformed:
    return Malformed(f"{field} {sentence}", (Cause(field, sentence),))
