"""Bytes and headers: how messages, answers and errors look on the wire.

Owns the header names. Every decode validates; what cannot be decoded is Malformed and never shows its input.
Read next: shared/bus/context.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from shared import subjects
from shared.envelope import CONTENT_TYPE, Envelope
from shared.errors import Cause as FieldCause
from shared.errors import GpubusError, Malformed, PermissionDenied, from_dict
from shared.messages.base import Message, Query, Report, Telemetry
from shared.telemetry.tracing import Cause, current_cause

MESSAGE_ID = "x-gpubus-id"
"""Identity of a message that has no envelope of its own, or (redrives) another one than its envelope says."""
CORRELATION = "x-gpubus-correlation-id"
CAUSATION = "x-gpubus-causation-id"
TRACEPARENT = "traceparent"
ERROR = "x-gpubus-error"
"""On an answer: the code; the body is then GpubusError.to_dict()."""
TIMEOUT_MS = "x-gpubus-timeout-ms"
"""On a request: how long the caller will wait."""
REPLY_TO = "x-gpubus-reply-to"
"""On a stored command: the inbox for the answer."""
ORIGINAL_SUBJECT = "x-gpubus-subject"
"""On a redrive: the subject the message was first published on."""
VERB = "x-gpubus-verb"
CONTENT = "content-type"
JSON_TYPE = "application/json"

M = TypeVar("M", bound=Message)
B = TypeVar("B", bound=BaseModel)

_MAX_CAUSES = 16


def encode(message: Message) -> bytes:
    """A message's JSON, camelCase."""
    return message.model_dump_json(by_alias=True).encode()


def decode(cls: type[B], data: bytes) -> B:
    """The reverse.

    Raises:
        Malformed: not JSON, or not this shape.
    """
    try:
        return cls.model_validate_json(data)
    except ValidationError as error:
        raise _malformed(cls, error) from None


def decode_batch(cls: type[M], data: bytes) -> list[M]:
    """One telemetry message or a JSON array of them."""
    if data[:1] != b"[":
        return [decode(cls, data)]
    try:
        items = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise Malformed(f"{cls.__name__}: not JSON") from None
    return [from_json(cls, item) for item in items]


def from_json(cls: type[M], body: Any) -> M:
    """A message from decoded JSON.

    Raises:
        Malformed: not this shape.
    """
    try:
        return cls.model_validate(body)
    except ValidationError as error:
        raise _malformed(cls, error) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What the envelope says around a message; the fields of shared/envelope.py."""

    id: str
    source: str
    type: str
    about: str
    time: datetime
    cause: Cause
    resource_version: int = 0
    epoch: str = ""


def seal(data: bytes, around: Seal) -> bytes:
    """A message's JSON in its envelope."""
    return orjson.dumps(
        {
            "specversion": "1.0",
            "id": around.id,
            "source": around.source,
            "type": around.type,
            "subject": around.about,
            "time": around.time,
            "datacontenttype": JSON_TYPE,
            "correlationid": around.cause.correlation_id,
            "causationid": around.cause.causation_id,
            "resourceversion": str(around.resource_version) if around.resource_version else "",
            "epoch": around.epoch,
            "traceparent": around.cause.traceparent,
            "data": orjson.Fragment(data),
        }
    )


def unseal(cls: type[M], data: bytes) -> tuple[Envelope, M]:
    """An envelope and the message in it.

    Raises:
        Malformed: either of them has another shape.
    """
    envelope = decode(Envelope, data)
    return envelope, from_json(cls, envelope.data)


def check_sender(message: Message, subject: str) -> None:
    """A node or service may only speak for itself: the body must name the one that its subject (and so NATS) allowed.

    Raises:
        PermissionDenied: it names another.
    """
    if isinstance(message, Report):
        claimed, allowed = message.node, subjects.tail(subject)[0]
    elif isinstance(message, Telemetry):
        claimed, allowed = message.source, subjects.decode(subject.rpartition(".")[2])
    elif isinstance(message, Query) and message.PER_NODE != "no":
        claimed, allowed = message.key, subjects.tail(subject)[0]
    else:
        return
    if claimed != allowed:
        raise PermissionDenied(
            f"{type(message).__name__} speaks for another than {allowed!r}, whose subject it came on"
        )


def request_headers(timeout: float) -> dict[str, str]:
    """Correlation, trace and patience of a request."""
    cause = current_cause()
    named = {CORRELATION: cause.correlation_id, CAUSATION: cause.causation_id, TRACEPARENT: cause.traceparent}
    return {TIMEOUT_MS: str(int(timeout * 1000)), **{key: value for key, value in named.items() if value}}


def envelope_headers(cause: Cause, message_id: str) -> dict[str, str]:
    """Headers of a stored message: deduplication, content type and the trace for tools that read headers only."""
    headers = {"Nats-Msg-Id": message_id, CONTENT: CONTENT_TYPE}
    return {**headers, TRACEPARENT: cause.traceparent} if cause.traceparent else headers


def answer(result: Message | Mapping[str, Any] | None) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a successful answer; None is an empty object."""
    if isinstance(result, Message):
        return encode(result), {CONTENT: JSON_TYPE}
    return orjson.dumps(dict(result or {})), {CONTENT: JSON_TYPE}


def error_answer(error: GpubusError) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a refusal or failure."""
    return orjson.dumps(error.to_dict(), default=str), {CONTENT: JSON_TYPE, ERROR: error.code.value}


def raise_answered(headers: Mapping[str, str] | None, data: bytes) -> None:
    """Raise the error that an answer carries, if it does.

    Raises:
        GpubusError: what the other side answered.
    """
    if headers is None or ERROR not in headers:
        return
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = {"code": headers[ERROR], "message": "the answer's body is not JSON"}
    raise from_dict(body)


def _malformed(cls: type[BaseModel], error: ValidationError) -> Malformed:
    found = error.errors(include_input=False, include_url=False, include_context=False)[:_MAX_CAUSES]
    causes = tuple(FieldCause(".".join(str(part) for part in item["loc"]), item["msg"]) for item in found)
    first = ": ".join(filter(None, (causes[0].field, causes[0].message))) if causes else "unknown"
    return Malformed(f"{cls.__name__} expected: {first}", causes)
