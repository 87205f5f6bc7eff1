"""The shape of every resource: metadata, conditions, strict at the edge and tolerant when read from the store.

Must not hold any kind's business. Read next: shared/resources/kinds.py.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.alias_generators import to_camel

from shared.clock import rfc3339
from shared.errors import Cause, GpubusError, InvalidArgument, Malformed
from shared.units import QuantityError, parse_quantity

Timestamp = Annotated[datetime, PlainSerializer(rfc3339, return_type=str, when_used="json-unless-none")]
"""Aware UTC; whole seconds on the wire, as Kubernetes writes them."""


def _quantity_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value)


def _check_quantity(value: str) -> str:
    try:
        parsed = parse_quantity(value)
    except QuantityError as error:
        raise ValueError(f"{'malformed: ' if error.malformed else ''}{error}") from error
    if parsed < 0:
        raise ValueError(f"{value} is negative")
    return value


Quantity = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_check_quantity)]
"""A Kubernetes quantity, kept as the text that was sent (numbers become text); never negative."""


class Model(BaseModel):
    """Base of every part of a resource: camelCase JSON, unknown fields refused unless the caller reads tolerantly."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, defer_build=True)


class OpenModel(Model):
    """A part whose other fields we keep without knowing them (Pod templates)."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True, defer_build=True)


class OwnerReference(Model):
    """Who owns this object; it goes when the owner goes."""

    api_version: str = ""
    kind: str
    name: str
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Model):
    """Kubernetes object metadata."""

    name: str = ""
    generate_name: str | None = None
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[OwnerReference] = Field(default_factory=list)
    managed_fields: list[dict[str, Any]] | None = None
    self_link: str | None = None


class Status3(StrEnum):
    """A condition's three values."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One observed aspect of an object."""

    type: str = Field(description="An adjective or participle: Ready, Admitted.")
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(default="", description="One CamelCase word, stable.")
    message: str = Field(default="", description="A sentence for people.")
    last_transition_time: Timestamp | None = None
    observed_generation: int | None = None


class Status(Model):
    """Base of every status. `phase` is computed for readers and never stored."""

    observed_generation: int | None = None
    conditions: list[Condition] = Field(default_factory=list)


class Resource(Model):
    """Base of every kind; a kind adds `spec` and `status` (or its own top-level fields)."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Field(default_factory=Metadata)

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace; empty for cluster-wide kinds."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """metadata.uid: identity; names are reused, uids never."""
        return self.metadata.uid

    @property
    def revision(self) -> int:
        """metadata.resourceVersion as a number; 0 when it is new."""
        return int(self.metadata.resource_version or 0)

    @property
    def deleting(self) -> bool:
        """A deletion was asked for and finalizers still hold it."""
        return self.metadata.deletion_timestamp is not None

    def to_json(self) -> dict[str, Any]:
        """The JSON form, absent optional fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


R = TypeVar("R", bound=BaseModel)


def read_tolerant(model: type[R], body: Mapping[str, Any]) -> R:
    """Read a stored document: fields this version does not know are ignored, open parts keep all of theirs.

    pydantic's `extra="ignore"` argument would empty the open parts too, so unknown fields are cut out by their path.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors(include_url=False) if item["type"] == "extra_forbidden"]
        if not unknown:
            raise
        known = copy.deepcopy(dict(body))
        for loc in unknown:
            _cut(known, loc)
        return model.model_validate(known)


def _cut(body: Any, loc: Sequence[int | str]) -> None:
    for part in loc[:-1]:
        body = body[part]
    body.pop(loc[-1], None)


_SHOULD = re.compile(r"^(Input|String|List|Dictionary|Value|Data) should\b")
_SHAPE_ERRORS = ("extra_forbidden", "json_", "int_from_float", "finite_number", "date_from", "datetime_")


def _is_shape(kind: str, message: str) -> bool:
    return kind.endswith(("_type", "_parsing")) or kind.startswith(_SHAPE_ERRORS) or "malformed: " in message


def _path(loc: Iterable[int | str]) -> str:
    out = ""
    for part in loc:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def from_validation(error: ValidationError, prefix: str = "") -> GpubusError:
    """Our error for pydantic's: wrong shapes (types, unknown fields) are Malformed, wrong values InvalidArgument."""
    causes, shape = [], False
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        message = item["msg"].removeprefix("Value error, ")
        shape = shape or _is_shape(item["type"], message)
        message = _SHOULD.sub("must", message.replace("malformed: ", "")).replace("Field required", "is required")
        if item["type"] == "extra_forbidden":
            message = "unknown field; remove it or check its spelling"
        reason = "FieldValueRequired" if item["type"] == "missing" else "FieldValueInvalid"
        causes.append(Cause(".".join(filter(None, (prefix, _path(item["loc"])))), message, reason))
    text = "; ".join(f"{c.field}: {c.message}" for c in causes[:5])
    return (Malformed if shape else InvalidArgument)(text, tuple(causes))


def get_condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """The condition of that type, if present."""
    return next((c for c in conditions if c.type == kind), None)


def is_true(conditions: Sequence[Condition], kind: str) -> bool:
    """Whether the condition is present and True."""
    found = get_condition(conditions, kind)
    return found is not None and found.status == "True"


def set_condition(conditions: Sequence[Condition], new: Condition, now: datetime) -> list[Condition]:
    """The list with `new` in place of its type; lastTransitionTime moves only when the status does."""
    old = get_condition(conditions, new.type)
    moved = old is None or old.status != new.status
    stamped = new.model_copy(update={"last_transition_time": now if moved or old is None else old.last_transition_time})
    return [*(c for c in conditions if c.type != new.type), stamped]
