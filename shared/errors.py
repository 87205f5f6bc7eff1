"""The error taxonomy: canonical codes, whether a retry helps, and how each looks over HTTP.

Owns the one table from code to both HTTP faces (Kubernetes Status and OpenAI body). Must not know any transport.
Read next: shared/bus/settle.py, which turns these into ack, nak or dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar


class Code(StrEnum):
    """Canonical gRPC names, plus two that only an edge produces (Malformed, TooLarge)."""

    MALFORMED = "Malformed"
    TOO_LARGE = "TooLarge"
    INVALID_ARGUMENT = "InvalidArgument"
    UNAUTHENTICATED = "Unauthenticated"
    PERMISSION_DENIED = "PermissionDenied"
    NOT_FOUND = "NotFound"
    ALREADY_EXISTS = "AlreadyExists"
    ABORTED = "Aborted"
    FAILED_PRECONDITION = "FailedPrecondition"
    UNIMPLEMENTED = "Unimplemented"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    UNAVAILABLE = "Unavailable"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    RACED = "Raced"
    INTERNAL = "Internal"


@dataclass(frozen=True, slots=True)
class Face:
    """How one code looks over HTTP: status, Kubernetes reason, OpenAI error type and code."""

    status: int
    reason: str
    openai_type: str
    openai_code: str | None = None


FACES: Mapping[Code, Face] = {
    Code.MALFORMED: Face(400, "BadRequest", "invalid_request_error"),
    Code.TOO_LARGE: Face(413, "RequestEntityTooLarge", "invalid_request_error", "request_too_large"),
    Code.INVALID_ARGUMENT: Face(422, "Invalid", "invalid_request_error"),
    Code.UNAUTHENTICATED: Face(401, "Unauthorized", "invalid_request_error", "invalid_api_key"),
    Code.PERMISSION_DENIED: Face(403, "Forbidden", "invalid_request_error", "permission_denied"),
    Code.NOT_FOUND: Face(404, "NotFound", "invalid_request_error", "model_not_found"),
    Code.ALREADY_EXISTS: Face(409, "AlreadyExists", "invalid_request_error"),
    Code.ABORTED: Face(409, "Conflict", "invalid_request_error"),
    Code.FAILED_PRECONDITION: Face(409, "Conflict", "invalid_request_error"),
    Code.UNIMPLEMENTED: Face(405, "MethodNotAllowed", "invalid_request_error"),
    Code.RESOURCE_EXHAUSTED: Face(429, "TooManyRequests", "rate_limit_error", "rate_limit_exceeded"),
    Code.UNAVAILABLE: Face(503, "ServiceUnavailable", "server_error", "unavailable"),
    Code.DEADLINE_EXCEEDED: Face(504, "Timeout", "server_error", "timeout"),
    Code.RACED: Face(409, "Conflict", "invalid_request_error"),
    Code.INTERNAL: Face(500, "InternalError", "server_error", "internal"),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with an input: the field path (`spec.roles[0].replicas`) and a sentence with the way out."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


@dataclass(eq=False)
class GpubusError(Exception):
    """Base of every error that crosses a port. `fields` carries structured context that may be shown and logged."""

    message: str
    causes: Sequence[Cause] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    code: ClassVar[Code] = Code.INTERNAL

    def __post_init__(self) -> None:
        Exception.__init__(self, self.message)

    def __str__(self) -> str:
        return self.message

    def to_dict(self) -> dict[str, Any]:
        """The JSON form that answers carry over the bus."""
        return {
            "code": self.code.value,
            "message": self.message,
            "causes": [{"field": c.field, "message": c.message, "reason": c.reason} for c in self.causes],
            "fields": dict(self.fields),
        }


class Transient(GpubusError):  # noqa: N818 - the house taxonomy names the class by what it is
    """A retry will help; `retry_after` is seconds, None leaves it to the settle schedule."""

    @property
    def retry_after(self) -> float | None:
        """Seconds the thrower asks to wait."""
        value = self.fields.get("retry_after")
        return float(value) if value is not None else None


class Permanent(GpubusError):  # noqa: N818
    """A retry will not help; a caller is answered, a fact becomes a dead letter."""


class Unavailable(Transient):
    """The other side is not there."""

    code = Code.UNAVAILABLE


class DeadlineExceeded(Transient):
    """No answer in time; the outcome is unknown."""

    code = Code.DEADLINE_EXCEEDED


class Raced(Transient):
    """An internal compare-and-set lost; reload and decide again."""

    code = Code.RACED


class ResourceExhausted(Transient):
    """A limit is reached; `fields['retry_after']` says when to come back."""

    code = Code.RESOURCE_EXHAUSTED


class Malformed(Permanent):
    """The bytes cannot be decoded into the expected shape."""

    code = Code.MALFORMED


class TooLarge(Permanent):
    """A body over its limit."""

    code = Code.TOO_LARGE


class InvalidArgument(Permanent):
    """The shape is right, a value is not; `causes` names each field."""

    code = Code.INVALID_ARGUMENT


class NotFound(Permanent):
    """The named thing does not exist."""

    code = Code.NOT_FOUND


class AlreadyExists(Permanent):
    """The name is taken."""

    code = Code.ALREADY_EXISTS


class Aborted(Permanent):
    """The caller's revision is stale: a refusal, never retried for them."""

    code = Code.ABORTED


class PermissionDenied(Permanent):
    """Known caller, not allowed."""

    code = Code.PERMISSION_DENIED


class Unauthenticated(Permanent):
    """Unknown caller."""

    code = Code.UNAUTHENTICATED


class FailedPrecondition(Permanent):
    """The system is not in a state in which this may happen."""

    code = Code.FAILED_PRECONDITION


class Unimplemented(Permanent):
    """The verb does not exist for this thing."""

    code = Code.UNIMPLEMENTED


_BY_CODE: Mapping[str, type[GpubusError]] = {
    cls.code.value: cls
    for cls in (
        Unavailable, DeadlineExceeded, Raced, ResourceExhausted, Malformed, TooLarge, InvalidArgument, NotFound,
        AlreadyExists, Aborted, PermissionDenied, Unauthenticated, FailedPrecondition, Unimplemented,
    )
}  # fmt: skip


def from_dict(body: Mapping[str, Any]) -> GpubusError:
    """Rebuild an error that travelled in an answer; an unknown code becomes a plain GpubusError."""
    causes = tuple(
        Cause(str(c.get("field", "")), str(c.get("message", "")), str(c.get("reason", "FieldValueInvalid")))
        for c in body.get("causes") or ()
    )
    cls = _BY_CODE.get(str(body.get("code")), GpubusError)
    return cls(str(body.get("message", "unknown error")), causes, dict(body.get("fields") or {}))


def invalid(field_path: str, message: str, reason: str = "FieldValueInvalid") -> InvalidArgument:
    """The common case: one field, one sentence."""
    return InvalidArgument(f"{field_path}: {message}", (Cause(field_path, message, reason),))
