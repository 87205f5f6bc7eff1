"""Kubernetes' protobuf, just enough of it: bodies that kubectl sends in no other form (`create namespace`, `create secret`).

Reads Namespace, Secret, ConfigMap and DeleteOptions into the JSON they mean. Answers stay JSON, which those clients take.
Must not be used for anything else. Read next: decoding.py.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared.clock import rfc3339
from shared.errors import Malformed

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message."""

    name: str
    form: str = "text"
    """text, bytes, int, bool, time, message, texts, messages, text-map, bytes-map."""
    message: Mapping[int, _Field] | None = None


_OWNER = {
    1: _Field("kind"), 3: _Field("name"), 4: _Field("uid"), 5: _Field("apiVersion"), 6: _Field("controller", "bool"),
    7: _Field("blockOwnerDeletion", "bool"),
}  # fmt: skip
_METADATA = {
    1: _Field("name"), 2: _Field("generateName"), 3: _Field("namespace"), 5: _Field("uid"), 6: _Field("resourceVersion"),
    7: _Field("generation", "int"), 8: _Field("creationTimestamp", "time"), 9: _Field("deletionTimestamp", "time"),
    11: _Field("labels", "text-map"), 12: _Field("annotations", "text-map"),
    13: _Field("ownerReferences", "messages", _OWNER), 14: _Field("finalizers", "texts"),
}  # fmt: skip
_META = _Field("metadata", "message", _METADATA)
_PRECONDITIONS = {1: _Field("uid"), 2: _Field("resourceVersion")}
_TYPE_META = {1: _Field("apiVersion"), 2: _Field("kind")}
_UNKNOWN = {
    1: _Field("typeMeta", "message", _TYPE_META),
    2: _Field("raw", "bytes"),
    3: _Field("contentEncoding"),
    4: _Field("contentType"),
}
_KINDS: Mapping[str, Mapping[int, _Field]] = {
    "Namespace": {1: _META, 2: _Field("spec", "message", {1: _Field("finalizers", "texts")})},
    "Secret": {
        1: _META, 2: _Field("data", "bytes-map"), 3: _Field("type"), 4: _Field("stringData", "text-map"),
        5: _Field("immutable", "bool"),
    },
    "ConfigMap": {
        1: _META, 2: _Field("data", "text-map"), 3: _Field("binaryData", "bytes-map"), 4: _Field("immutable", "bool"),
    },
    "DeleteOptions": {
        1: _Field("gracePeriodSeconds", "int"), 2: _Field("preconditions", "message", _PRECONDITIONS),
        4: _Field("propagationPolicy"), 5: _Field("dryRun", "texts"),
    },
}  # fmt: skip


def readable(kind: str) -> bool:
    """Whether bodies of a kind are read in this form."""
    return kind in _KINDS


def load_protobuf(raw: bytes) -> dict[str, Any]:
    """The JSON that a body means.

    Raises:
        Malformed: it is none, is cut short, or is of another kind.
    """
    if not raw.startswith(_MAGIC):
        raise Malformed("the body is not Kubernetes protobuf")
    envelope = _message(raw[len(_MAGIC) :], _UNKNOWN, 0)
    named = envelope.get("typeMeta") or {}
    fields = _KINDS.get(named.get("kind", ""))
    if fields is None or envelope.get("contentEncoding"):
        raise Malformed(f"protobuf is read for {', '.join(_KINDS)} alone; send JSON")
    inner = base64.b64decode(envelope.get("raw", ""))
    return {**named, **_message(inner, fields, 0)}


def _message(data: bytes, fields: Mapping[int, _Field], depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise Malformed("the body is nested too deeply")
    found: dict[str, Any] = {}
    for number, value in _wire(data):
        field = fields.get(number)
        if field is not None:
            _take(found, field, value, depth)
    return found


def _take(found: dict[str, Any], field: _Field, value: int | bytes, depth: int) -> None:
    if field.form in {"int", "bool"}:
        found[field.name] = _number(value, field)
        return
    if not isinstance(value, bytes):
        raise Malformed(f"{field.name} has the wrong type")
    if field.form.endswith("-map"):
        inner = "bytes" if field.form == "bytes-map" else "text"
        entry = _message(value, {1: _Field("key"), 2: _Field("value", inner)}, depth + 1)
        found.setdefault(field.name, {})[entry.get("key", "")] = entry.get("value", "")
    elif field.form == "texts":
        found.setdefault(field.name, []).append(_text(value))
    elif field.form == "messages":
        found.setdefault(field.name, []).append(_message(value, field.message or {}, depth + 1))
    elif field.form == "time":
        moment = _moment(value, depth)
        if moment:
            found[field.name] = moment
    else:
        found[field.name] = _plain(field, value, depth)


def _plain(field: _Field, value: bytes, depth: int) -> Any:
    if field.form == "message":
        return _message(value, field.message or {}, depth + 1)
    return base64.b64encode(value).decode() if field.form == "bytes" else _text(value)


def _number(value: int | bytes, field: _Field) -> int | bool:
    if not isinstance(value, int):
        raise Malformed(f"{field.name} has the wrong type")
    if field.form == "bool":
        return bool(value)
    return value - (1 << 64) if value >= 1 << 63 else value


def _moment(value: bytes, depth: int) -> str:
    seconds = _message(value, {1: _Field("seconds", "int")}, depth + 1).get("seconds", 0)
    try:
        return rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else ""
    except (OverflowError, ValueError, OSError):
        raise Malformed("a time is out of range") from None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not valid UTF-8") from None


def _wire(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, form = key >> 3, key & 7
        if form == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if form == 2:
            length, position = _varint(data, position)
        else:
            length = {1: 8, 5: 4}.get(form, -1)
        if length < 0 or position + length > len(data):
            raise Malformed("the body is cut short or not protobuf")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), position
        shift += 7
    raise Malformed("the body is cut short or not protobuf")
