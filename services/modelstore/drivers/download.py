"""One file over HTTP into a partial file, hashed as it comes, resumed from the last byte on disk.

Runs in a thread; memory stays flat whatever the size. The token goes to the first host only and never over plain http
unless that is where it was sent to begin with. Read next: disk.py.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.ports import DeliveryError
from shared.faults import point
from shared.queries import WantedFile

_CHUNK = 1 << 20
_REDIRECTS = 5
_ATTEMPTS = 4
_MID_FILE = 8 << 20
_REDIRECT = frozenset({301, 302, 303, 307, 308})


class Hash(Protocol):
    """What hashlib returns."""

    def update(self, data: Any, /) -> None: ...  # noqa: D102
    def hexdigest(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's files are."""

    endpoint: str
    repository: str
    revision: str
    token: str

    def url(self, path: str) -> str:
        """The address of one file."""
        return f"{self.endpoint}/{self.repository}/resolve/{self.revision}/{quote(path)}"


class Cancelled(Exception):  # noqa: N818 - not an error
    """The delivery was given up on purpose."""


def fetch(
    source: Source,
    file: WantedFile,
    partial: Path,
    *,
    stall: float,
    stop: threading.Event,
    arrived: Callable[[int], None],
) -> None:
    """Complete a partial file and verify all of it; `arrived` gets the bytes of each piece, negative when dropped.

    Raises:
        DeliveryError: why not; a partial that may be right stays, one that is wrong is removed.
        Cancelled: `stop` was set.
    """
    for left in range(_ATTEMPTS - 1, -1, -1):
        before = _size(partial)
        try:
            _transfer(source, file, partial, stall, stop, arrived)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in {28, 122}:  # ENOSPC, EDQUOT
                raise DeliveryError(DeliveryReason.INSUFFICIENT_CAPACITY, "the node's disk is full") from None
            if left == 0 and _size(partial) <= before:
                sentence = f"{urlsplit(source.endpoint).netloc} broke off: {type(error).__name__}"
                raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, sentence) from None
            if stop.wait(0.2 * (_ATTEMPTS - left)):
                raise Cancelled from None
        else:
            return
    raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{urlsplit(source.endpoint).netloc} keeps breaking off")


def new_hash(file: WantedFile) -> Hash:
    """The hash a file is checked with; gitsha1 is git's blob id."""
    if file.algorithm == "sha256":
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size)  # noqa: S324 - git blob id


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _transfer(
    source: Source, file: WantedFile, partial: Path, stall: float, stop: threading.Event, arrived: Callable[[int], None]
) -> None:
    hashed = new_hash(file)
    with partial.open("r+b" if partial.exists() else "w+b", buffering=0) as target:
        there = _rehash(target, hashed, file.size)
        if there < file.size:
            connection, response = _open(source, file, there, stall)
            try:
                if response.status == 200 and there:  # the server ignores ranges: from the start
                    arrived(-there)
                    target.seek(0)
                    target.truncate()
                    hashed, there = new_hash(file), 0
                _copy(response, target, hashed, file.size - there, stop, arrived)
            finally:
                connection.close()
        os.fsync(target.fileno())
    if hashed.hexdigest() != file.hash:
        arrived(-_size(partial))
        partial.unlink()
        sentence = f"{file.path} does not have the {file.algorithm} of its manifest; it was discarded"
        raise DeliveryError(DeliveryReason.INTEGRITY_MISMATCH, sentence)


def _rehash(target: Any, hashed: Hash, size: int) -> int:
    there = 0
    while chunk := target.read(_CHUNK):
        there += len(chunk)
        if there > size:  # never ours: start over
            target.seek(0)
            target.truncate()
            return 0
        hashed.update(chunk)
    return there


def _copy(
    response: http.client.HTTPResponse,
    target: Any,
    hashed: Hash,
    left: int,
    stop: threading.Event,
    arrived: Callable[[int], None],
) -> None:
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    written = 0
    while left:
        if stop.is_set():
            raise Cancelled
        count = response.readinto(view[: min(_CHUNK, left)])
        if not count:
            raise http.client.IncompleteRead(b"", left)
        piece = view[:count]
        hashed.update(piece)
        target.write(piece)
        left -= count
        written += count
        arrived(count)
        if written >= _MID_FILE:
            point("modelstore-agent.mid-file")


def _open(
    source: Source, file: WantedFile, start: int, stall: float
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    url, token = source.url(file.path), source.token
    for _ in range(_REDIRECTS + 1):
        parts = urlsplit(url)
        connection = _connect(parts, stall)
        headers = {"User-Agent": "gpubus", "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if start:
            headers["Range"] = f"bytes={start}-"
        connection.request("GET", f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", headers=headers)
        response = connection.getresponse()
        if response.status not in _REDIRECT:
            _check(response, file, start, parts.netloc)
            return connection, response
        url = urljoin(url, response.headers.get("Location", ""))
        if urlsplit(url)[:2] != parts[:2]:
            token = ""
        connection.close()
        if parts.scheme == "https" and urlsplit(url).scheme != "https":
            raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{parts.netloc} redirects to a plain connection")
    raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{urlsplit(source.endpoint).netloc} redirects in circles")


def _connect(parts: SplitResult, stall: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=stall, context=ssl.create_default_context())
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=stall)
    raise DeliveryError(DeliveryReason.INVALID_REQUEST, f"{parts.scheme or 'no scheme'} is not http or https")


def _check(response: http.client.HTTPResponse, file: WantedFile, start: int, host: str) -> None:
    if response.status in {401, 403, 404}:
        raise DeliveryError(DeliveryReason.ACCESS_DENIED, f"{host} answered {response.status} for {file.path}")
    if response.status not in {200, 206}:
        raise http.client.HTTPException(f"status {response.status}")
    length = response.headers.get("Content-Length")
    expected = file.size if response.status == 200 else file.size - start
    if response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{host} answered another range of {file.path}")
    if length is not None and int(length) != expected:
        sentence = f"{host} has {length} bytes of {file.path}, its manifest says {expected}"
        raise DeliveryError(DeliveryReason.INTEGRITY_MISMATCH, sentence)
