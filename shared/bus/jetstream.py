"""JetStream in our words: publish with an acknowledgement, look at a stream, read one stored message.

Owns the error codes of the JetStream API. Must not declare anything (shared/bus/streams.py does).
Read next: shared/bus/relay.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import nats.errors
import nats.js.errors
import orjson
from nats.js.manager import JetStreamManager

from shared.bus.connection import Connection, Request, ask, translated
from shared.errors import DeadlineExceeded, FailedPrecondition, GpubusError, NotFound, TooLarge, Transient, Unavailable

EXPECTED_SEQUENCE = "Nats-Expected-Last-Sequence"
EXPECTED_STREAM = "Nats-Expected-Stream"
MESSAGE_ID = "Nats-Msg-Id"

_WRONG_SEQUENCE = 10071
_WRONG_STREAM = 10060
_TOO_LARGE = 10054
_STREAM_NOT_FOUND = 10059
_REFUSED = frozenset({_TOO_LARGE, _WRONG_STREAM})


class WrongSequence(Transient):
    """The stream's last sequence is not the expected one: somebody else wrote, or the stream changed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An acknowledged publication."""

    stream: str
    sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream says about itself."""

    created: str
    """Creation time, RFC 3339; a re-created stream has another one."""
    last_sequence: int
    messages: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as a stream keeps it."""

    subject: str
    sequence: int
    data: bytes
    headers: Mapping[str, str]
    time: datetime


async def publish(
    connection: Connection, subject: str, data: bytes, headers: dict[str, str], *, timeout: float = 2.0
) -> Stored:
    """Store one message.

    Raises:
        Unavailable: not connected, or no stream takes the subject now.
        DeadlineExceeded: no acknowledgement in time; it may be stored.
        WrongSequence: `Nats-Expected-Last-Sequence` did not hold.
        TooLarge, PermissionDenied, FailedPrecondition: refused for good.
    """
    message = await ask(connection, Request(subject, data, timeout, headers))
    body = orjson.loads(message.data)
    if "error" in body:
        raise _refused(body["error"])
    return Stored(body["stream"], int(body["seq"]), bool(body.get("duplicate", False)))


async def stream_state(connection: Connection, stream: str) -> StreamState | None:
    """What a stream says about itself; None when it does not exist.

    Raises:
        Unavailable, DeadlineExceeded: JetStream does not answer.
    """
    try:
        info = await _manager(connection).stream_info(stream)
    except nats.js.errors.NotFoundError:
        return None
    except (nats.errors.Error, TimeoutError) as error:
        raise api_error(error) from None
    created = info.created.isoformat() if info.created else ""
    return StreamState(created, info.state.last_seq, info.state.messages)


async def read_message(connection: Connection, stream: str, sequence: int) -> StoredMessage | None:
    """One stored message; None when it is gone.

    Raises:
        Unavailable, DeadlineExceeded: JetStream does not answer.
    """
    try:
        raw = await _manager(connection).get_msg(stream, seq=sequence)
    except nats.js.errors.NotFoundError:
        return None
    except (nats.errors.Error, TimeoutError) as error:
        raise api_error(error) from None
    assert raw.time is not None, "the server dates every message"
    return StoredMessage(raw.subject or "", raw.seq or sequence, raw.data or b"", dict(raw.headers or {}), raw.time)


def api_error(error: BaseException) -> GpubusError:
    """A failed JetStream API call in our taxonomy."""
    if isinstance(error, nats.js.errors.NotFoundError):
        return NotFound(f"JetStream: {error.description}")
    if isinstance(error, (nats.errors.NoRespondersError, nats.js.errors.ServiceUnavailableError)):
        return Unavailable("JetStream does not answer (off, starting, or not permitted)")
    if isinstance(error, nats.js.errors.APIError):
        return FailedPrecondition(f"JetStream: {error.description} ({error.err_code})")
    if isinstance(error, TimeoutError):
        return DeadlineExceeded("JetStream did not answer in time")
    if isinstance(error, nats.errors.Error):
        return translated(error, "$JS.API")
    return Unavailable(f"JetStream: {error}")


def _manager(connection: Connection) -> JetStreamManager:
    return JetStreamManager(connection, timeout=2.0)


def _refused(error: Mapping[str, object]) -> GpubusError:
    code, text = error.get("err_code"), str(error.get("description", ""))
    if code == _WRONG_SEQUENCE:
        return WrongSequence(text)
    if code == _TOO_LARGE:
        return TooLarge(text)
    if code in _REFUSED:
        return FailedPrecondition(text, fields={"err_code": code})
    # Storage full, no leader, sealed for maintenance: the server's state, not the message's fault.
    return Unavailable(f"JetStream: {text}", fields={"err_code": code})
