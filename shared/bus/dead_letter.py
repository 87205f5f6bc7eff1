"""Dead letters: messages one handler could not take, kept 30 days for a person, and trying them again.

The stored message is the original bytes with the original's own headers; what went wrong is in `x-gpubus-dlq-*`
headers. Nothing here runs by itself: a redrive is a person's decision.
Read next: shared/bus/delivery.py, which writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.manager import JetStreamManager

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.connection import Connection
from shared.errors import GpubusError, NotFound, TooLarge
from shared.telemetry import metrics
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

_PREFIX = "x-gpubus-dlq-"
_REDRIVEN = f"{_PREFIX}redriven"
_NEW_ID = f"{_PREFIX}new-id"
_TRUNCATED = f"{_PREFIX}truncated"
_KEPT = frozenset({wire.CONTENT, wire.TRACEPARENT, wire.VERB, wire.REPLY_TO, wire.MESSAGE_ID, jetstream.MESSAGE_ID})
_MAX_TEXT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One parked message."""

    service: str
    handler: str
    subject: str
    """Where it was published."""
    stream: str
    """Where it was stored; empty when it never was (refused by the bus)."""
    stream_sequence: int
    code: str
    """The error's canonical code."""
    reason: str
    """The error's sentence."""
    attempts: int
    first_time: str
    """When the stream got it, RFC 3339."""
    last_time: str
    """When it was given up, RFC 3339."""
    data: bytes = field(repr=False)
    """The original bytes; empty when they were too large to keep (see `truncated`)."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The original's headers that matter."""
    truncated: str = ""
    """Size and SHA-256 of bytes that were too large to keep."""
    sequence: int = 0
    """Its number; the argument of `redrive`."""
    redriven: tuple[str, ...] = ()
    """Ids under which it was tried again."""


async def bury(connection: Connection, letter: DeadLetter) -> None:
    """Store a dead letter; a repeat for the same message and handler is one letter.

    Raises:
        Unavailable, DeadlineExceeded: it may not be stored: keep the original.
    """
    subject = subjects.dead_letter(letter.service, letter.handler)
    origin = (
        f"{letter.stream}.{letter.stream_sequence}" if letter.stream else letter.headers.get(jetstream.MESSAGE_ID, "")
    )
    message_id = f"dlq.{origin}.{letter.service}.{letter.handler}"
    headers = {key: value for key, value in letter.headers.items() if key in _KEPT and key != jetstream.MESSAGE_ID}
    headers |= _described(letter) | {jetstream.MESSAGE_ID: message_id}
    try:
        await jetstream.publish(connection, subject, letter.data, headers)
    except TooLarge:
        digest = f"{len(letter.data)} bytes, sha256 {hashlib.sha256(letter.data).hexdigest()}"
        await jetstream.publish(connection, subject, b"", headers | {_TRUNCATED: digest})
    metrics.dead_letters.labels(letter.service, letter.handler, letter.code).inc()
    log.error(
        "dead_letter",
        handler=letter.handler,
        subject=letter.subject,
        code=letter.code,
        error_text=letter.reason,
        attempt=letter.attempts,
        stream=letter.stream,
        stream_sequence=letter.stream_sequence,
    )


async def letters(connection: Connection, service: str = "") -> list[DeadLetter]:
    """All dead letters, oldest first, of one service or of all; needs the right to read the stream.

    Raises:
        Unavailable, DeadlineExceeded: JetStream does not answer.
    """
    found: dict[int, DeadLetter] = {}
    marks: dict[int, tuple[str, ...]] = {}
    async for message in _stored(connection, subjects.dead_letter_filter(service or "*")):
        headers = message.headers
        if _REDRIVEN in headers:
            number = int(headers[_REDRIVEN])
            marks[number] = (*marks.get(number, ()), headers.get(_NEW_ID, ""))
        else:
            found[message.sequence] = _parsed(message)
    return [replace(letter, redriven=marks.get(number, ())) for number, letter in found.items()]


async def redrive(connection: Connection, sequence: int, new_id: str) -> DeadLetter:
    """Give one dead letter to its handler again, under a new id (the inbox must not absorb it), and mark it.

    Raises:
        NotFound: no dead letter has that number, or its bytes were too large to keep.
    """
    message = await jetstream.read_message(connection, subjects.STREAM_DEAD_LETTERS, sequence)
    if message is None or _REDRIVEN in message.headers:
        raise NotFound(f"there is no dead letter {sequence}")
    letter = _parsed(message)
    if letter.truncated:
        raise NotFound(f"dead letter {sequence} was too large to keep ({letter.truncated}); publish the original again")
    headers = {key: value for key, value in letter.headers.items() if key in _KEPT}
    headers |= {jetstream.MESSAGE_ID: new_id, wire.MESSAGE_ID: new_id, wire.ORIGINAL_SUBJECT: letter.subject}
    await jetstream.publish(connection, subjects.redrive(letter.service, letter.handler), letter.data, headers)
    mark = {jetstream.MESSAGE_ID: f"dlq.redriven.{new_id}", _REDRIVEN: str(sequence), _NEW_ID: new_id}
    await jetstream.publish(connection, subjects.dead_letter(letter.service, letter.handler), b"", mark)
    return letter


def _described(letter: DeadLetter) -> dict[str, str]:
    values: dict[str, Any] = {
        "service": letter.service,
        "handler": letter.handler,
        "subject": letter.subject,
        "stream": letter.stream,
        "stream-sequence": letter.stream_sequence,
        "code": letter.code,
        "reason": letter.reason[:_MAX_TEXT],
        "attempts": letter.attempts,
        "first-time": letter.first_time,
        "last-time": letter.last_time,
    }
    return {_PREFIX + name: str(value) for name, value in values.items()}


def _parsed(message: jetstream.StoredMessage) -> DeadLetter:
    def named(name: str) -> str:
        return message.headers.get(_PREFIX + name, "")

    return DeadLetter(
        service=named("service"),
        handler=named("handler"),
        subject=named("subject"),
        stream=named("stream"),
        stream_sequence=int(named("stream-sequence") or 0),
        code=named("code"),
        reason=named("reason"),
        attempts=int(named("attempts") or 0),
        first_time=named("first-time"),
        last_time=named("last-time"),
        data=message.data,
        headers={key: value for key, value in message.headers.items() if key in _KEPT and key != jetstream.MESSAGE_ID},
        truncated=named("truncated"),
        sequence=message.sequence,
    )


async def _stored(connection: Connection, subject: str) -> AsyncIterator[jetstream.StoredMessage]:
    manager = JetStreamManager(connection, timeout=2.0)
    sequence = 1
    while True:
        try:
            raw = await manager.get_msg(subjects.STREAM_DEAD_LETTERS, seq=sequence, subject=subject, next=True)
        except nats.js.errors.NotFoundError:
            return
        except (nats.errors.Error, TimeoutError) as error:
            failed: GpubusError = jetstream.api_error(error)
            raise failed from None
        sequence = (raw.seq or sequence) + 1
        moment: datetime | None = raw.time
        assert moment is not None, "the server dates every message"
        yield jetstream.StoredMessage(raw.subject or "", sequence - 1, raw.data or b"", dict(raw.headers or {}), moment)
