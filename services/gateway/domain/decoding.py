"""The strict edge: a sent object is checked against its kind before its owner sees it.

Owns what null means (absent), which unknown fields are forgiven, and that `status` is not the sender's to write.
Must not apply defaults or business rules; the kind's owner does. Read next: shared/resources/base.py.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

import orjson
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shared.errors import Cause, GpubusError, InvalidArgument, Malformed
from shared.resources.base import from_validation
from shared.resources.kinds import KINDS, Kind

FieldValidation = Literal["Strict", "Warn", "Ignore"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object that fits its kind, and what was forgiven."""

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()


def decode(kind: Kind, sent: Mapping[str, Any], validation: FieldValidation = "Strict") -> Decoded:
    """The object without status and nulls, checked strictly: no text for numbers, no unknown fields.

    Raises:
        Malformed: a wrong type or an unknown field. InvalidArgument: a wrong value, or null in a list or map.
    """
    body = {name: value for name, value in sent.items() if name != "status"}
    causes: list[Cause] = []
    cleaned = _model_without_nulls(kind.model, body, "", causes)
    if causes:
        text = "; ".join(f"{c.field}: {c.message}" for c in causes[:5])
        raise _named(InvalidArgument(text, tuple(causes)), kind, sent)
    assert isinstance(cleaned, dict)
    error = _problem(kind, cleaned)
    if error is None:
        return Decoded(cleaned)
    unknown = _unknown_fields(error)
    if validation == "Strict" or not unknown:
        raise _named(from_validation(error), kind, sent) from None
    for location in unknown:
        _remove(cleaned, location)
    error = _problem(kind, cleaned)
    if error is not None:
        raise _named(from_validation(error), kind, sent) from None
    shown = tuple(f'unknown field "{_path(location)}"' for location in unknown)
    return Decoded(cleaned, shown if validation == "Warn" else ())


def address(kind: Kind, body: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """The body with what the URL says filled in.

    Raises:
        Malformed: the body says otherwise, or its metadata is no mapping.
    """
    metadata = body.get("metadata", {})
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, Mapping):
        raise Malformed("metadata must be a mapping", (Cause("metadata", "must be a mapping"),))
    checks = (
        ("apiVersion", body.get("apiVersion"), kind.api_version),
        ("kind", body.get("kind"), kind.kind),
        ("metadata.namespace", metadata.get("namespace"), namespace),
        ("metadata.name", metadata.get("name"), name),
    )
    for field, sent, wanted in checks:
        # A new object's address does not say its name.
        open_name = field == "metadata.name" and not wanted and isinstance(sent, str)
        if not open_name and (sent not in {None, "", wanted} if isinstance(sent, str | None) else True):
            raise _mismatch(field, sent, wanted, kind)
    filled = {**metadata, **({"namespace": namespace} if namespace else {}), **({"name": name} if name else {})}
    return {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": filled}


def kind_of(body: Mapping[str, Any]) -> Kind:
    """The kind that a bare manifest names.

    Raises:
        Malformed: it names none, or one that is not served; says what is.
    """
    sent, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(sent, str) or not isinstance(version, str) or not sent or not version:
        raise Malformed("a manifest needs apiVersion and kind", (Cause("kind", "is required", "FieldValueRequired"),))
    found = KINDS.get(sent)
    if found is None:
        near = next((known for known in KINDS if known.lower() == sent.lower()), None)
        hint = f"; did you mean {near}?" if near else ""
        raise Malformed(f"no kind {sent[:63]!r} is served{hint}", (Cause("kind", "is not served"),))
    if found.api_version != version:
        message = f"{found.kind} is served as {found.api_version}, not {version[:127]!r}"
        raise Malformed(message, (Cause("apiVersion", message),))
    return found


def _mismatch(field: str, sent: Any, wanted: str, kind: Kind) -> Malformed:
    if not isinstance(sent, str):
        return Malformed(f"{field} must be text", (Cause(field, "must be text"),))
    if field in {"apiVersion", "kind"}:
        message = f"{field} is {sent[:127]!r}, but this address serves {kind.api_version} {kind.kind}"
    elif not wanted:
        message = f"{field} is {sent[:127]!r}, but {kind.kind} is cluster-wide"
    else:
        message = f"{field} is {sent[:253]!r}, but the address says {wanted!r}"
    return Malformed(message, (Cause(field, message),))


def _problem(kind: Kind, body: dict[str, Any]) -> ValidationError | None:
    try:
        # JSON mode: strict, yet times may be text.
        kind.model.model_validate_json(orjson.dumps(body), strict=True)
    except ValidationError as error:
        return error
    except (TypeError, ValueError):  # orjson: nested over its limit
        raise Malformed("nested too deeply") from None
    return None


def _named(error: GpubusError, kind: Kind, sent: Mapping[str, Any]) -> GpubusError:
    """The error with the object's name: kubectl writes `The <kind> "<name>" is invalid`."""
    metadata = sent.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    named = {"name": name} if isinstance(name, str) and name else {}
    error.fields = {**error.fields, "kind": kind.kind, "group": kind.group, **named}
    return error


def _unknown_fields(error: ValidationError) -> list[tuple[int | str, ...]]:
    return [
        item["loc"]
        for item in error.errors(include_url=False, include_context=False, include_input=False)
        if item["type"] == "extra_forbidden"
    ]


def _remove(body: Any, location: tuple[int | str, ...]) -> None:
    for part in location[:-1]:
        body = body[part]
    body.pop(location[-1], None)


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


# Null is "absent" where a field has a name, and an error where it would be an element.


def _model_without_nulls(
    model: type[BaseModel], body: Mapping[str, Any], path: str, causes: list[Cause]
) -> dict[str, Any]:
    known = {_alias(name, info): info for name, info in model.model_fields.items()}
    cleaned: dict[str, Any] = {}
    for name, value in body.items():
        if value is None:
            continue
        info = known.get(name)
        below = f"{path}.{name}" if path else name
        cleaned[name] = _without_nulls(info.annotation if info else Any, value, below, causes)
    return cleaned


def _alias(name: str, info: FieldInfo) -> str:
    return info.alias or name


def _without_nulls(annotation: Any, value: Any, path: str, causes: list[Cause]) -> Any:
    if isinstance(value, list):
        item_type = _argument(annotation, list, 0)
        for position, item in enumerate(value):
            if item is None:
                causes.append(_null(f"{path}[{position}]"))
        return [_without_nulls(item_type, item, f"{path}[{position}]", causes) for position, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    model = _model_in(annotation)
    if model is not None:
        return _model_without_nulls(model, value, path, causes)
    value_type = _argument(annotation, dict, 1)
    if value_type is Any:
        return {
            key: _without_nulls(Any, item, f"{path}.{key}", causes) for key, item in value.items() if item is not None
        }
    causes.extend(_null(f"{path}[{key}]") for key, item in value.items() if item is None)
    return {key: _without_nulls(value_type, item, f"{path}[{key}]", causes) for key, item in value.items()}


def _null(path: str) -> Cause:
    return Cause(path, "must not be null", "FieldValueRequired")


def _options(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in {Union, types.UnionType}:
        return tuple(option for part in get_args(annotation) for option in _options(part))
    return (annotation,)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    return next((o for o in _options(annotation) if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _argument(annotation: Any, container: type, position: int) -> Any:
    for option in _options(annotation):
        if get_origin(option) is container:
            return get_args(option)[position]
    return Any
