"""One file from a source to a verified partial file: resumed from the last byte on disk, tried again while it helps.

Runs in a thread; memory stays flat whatever the size. Read next: web.py (requests), partial.py (bytes on disk).
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.drivers.partial import CHUNK, Cancelled, Partial, Writer
from services.modelstore.drivers.web import Connections, Interrupted, Reply, Resume, Source, ask
from services.modelstore.ports import DeliveryError
from shared.faults import point
from shared.queries import WantedFile

_ATTEMPTS = 5
"""Tries in a row that bring nothing new."""
_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE = 8.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """What the files of one delivery share."""

    source: Source
    connections: Connections
    stop: threading.Event
    arrived: Callable[[int], None]
    """Gets the bytes of each piece, negative when some are dropped."""


def fetch(transfer: Transfer, file: WantedFile, path: Path) -> None:
    """Complete the partial file at `path`, verify all of it, and wait until the disk has it.

    Raises:
        DeliveryError: why not; a partial that may be right stays, one that is wrong is removed.
        Cancelled: the transfer was stopped.
    """
    with Partial(path, file, transfer.stop) as partial:
        try:
            _bring(transfer, partial)
        except DeliveryError as error:
            if error.reason is DeliveryReason.INTEGRITY_MISMATCH:
                transfer.arrived(-partial.size)
                partial.discard()
            raise
        point("modelstore-agent.before-sync")
        partial.sync()


def _bring(transfer: Transfer, partial: Partial) -> None:
    inherited = partial.size > 0
    _complete(transfer, partial)
    if not partial.right() and inherited:
        # Bytes of an earlier start may be at fault (a host that crashed): once more, all of it.
        _restart(transfer, partial)
        _complete(transfer, partial)
    if not partial.right():
        file = partial.file
        sentence = f"{file.path} does not have the {file.algorithm} of its manifest; it was discarded"
        raise DeliveryError(DeliveryReason.INTEGRITY_MISMATCH, sentence)


def _complete(transfer: Transfer, partial: Partial) -> None:
    vain = 0
    while partial.size < partial.file.size:
        before = partial.size
        try:
            _continue(transfer, partial)
        except Interrupted as error:
            if transfer.stop.is_set():
                raise Cancelled from None
            vain = vain + 1 if partial.size <= before else 0
            if vain >= _ATTEMPTS:
                raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{partial.file.path}: {error}") from None
            if transfer.stop.wait(max(error.wait, min(_LONGEST_PAUSE, _PAUSE_SECONDS * 2.0**vain))):
                raise Cancelled from None


def _continue(transfer: Transfer, partial: Partial) -> None:
    file = partial.file
    resume = Resume(partial.size, *partial.came_with) if partial.size else Resume()
    reply = ask(transfer.connections, transfer.source, file.path, file.size, resume)
    whole = False
    try:
        if _another(reply, resume):
            _restart(transfer, partial)
            raise Interrupted(f"{reply.origin[1]} has another version of {file.path} now")
        if reply.start != partial.size:
            _restart(transfer, partial)
        partial.note(reply.server, reply.etag)
        (_copy_aside if Writer.worth(partial) else _copy)(transfer, reply, partial)
        whole = True
    finally:
        # Behind a chunked body lies its end mark, which was not read.
        if whole and not (reply.response.will_close or reply.response.chunked):
            reply.response.close()
            transfer.connections.give(reply.origin, reply.connection)
        else:
            transfer.connections.drop(reply.connection)


def _another(reply: Reply, resume: Resume) -> bool:
    """Whether a server that does not heed If-Range goes on with another file than it began with."""
    known = resume.etag if reply.start and resume.server == reply.server else ""
    return bool(known and reply.etag and reply.etag != known)


def _restart(transfer: Transfer, partial: Partial) -> None:
    transfer.arrived(-partial.size)
    partial.restart()


def _copy(transfer: Transfer, reply: Reply, partial: Partial) -> None:
    buffer = memoryview(bytearray(min(CHUNK, partial.file.size - partial.size)))
    while partial.size < partial.file.size:
        count = _receive(transfer, reply, buffer, partial)
        partial.append(buffer[:count])
        _told(transfer, partial, count)


def _copy_aside(transfer: Transfer, reply: Reply, partial: Partial) -> None:
    writer = Writer(partial)
    try:
        while partial.size < partial.file.size:
            buffer = writer.buffer()
            count = _receive(transfer, reply, buffer, partial)
            writer.append(buffer, count)
            _told(transfer, partial, count)
    finally:
        writer.close()


def _told(transfer: Transfer, partial: Partial, count: int) -> None:
    transfer.arrived(count)
    if partial.size - count <= partial.file.size // 2 < partial.size:
        point("modelstore-agent.mid-file")


def _receive(transfer: Transfer, reply: Reply, buffer: memoryview, partial: Partial) -> int:
    """Some bytes, as soon as there are any: what came is safe on disk even when the rest never comes."""
    if transfer.stop.is_set():
        raise Cancelled
    room = buffer[: partial.file.size - partial.size]
    try:
        response = reply.response
        count = _chunk(response, room) if response.chunked else response.fp.readinto1(room)
    except TimeoutError:
        raise Interrupted(f"{reply.origin[1]} stalled") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Interrupted(f"{reply.origin[1]} broke off ({type(error).__name__})") from None
    if not count:
        raise Interrupted(f"{reply.origin[1]} broke off after {partial.size} of {partial.file.size} bytes")
    return count


def _chunk(response: http.client.HTTPResponse, room: memoryview) -> int:
    """What is there of a chunked body; `readinto` would wait for a full buffer and lose it when the rest never comes."""
    piece = response.read1(len(room))
    room[: len(piece)] = piece
    return len(piece)
