"""One file on its way: bytes appended to a partial file, hashed in order, checked when all are there.

A kill at any instruction leaves a prefix of the file; the next start hashes it again and goes on behind it. Beside it
lies a note of the ETag it came with. Must not know HTTP. Read next: download.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.ports import DeliveryError
from shared.queries import WantedFile

CHUNK = 1 << 20
_BUFFERS = 4
_ASIDE_BYTES = 8 << 20
"""From here on writing has a thread of its own: hashing and copying to the disk's cache take about as long each."""
_FULL = frozenset({27, 28, 122})
"""EFBIG, ENOSPC, EDQUOT."""


class Cancelled(Exception):  # noqa: N818 - not an error
    """The delivery was given up on purpose."""


class Hash(Protocol):
    """What hashlib returns."""

    def update(self, data: Any, /) -> None: ...  # noqa: D102
    def hexdigest(self) -> str: ...  # noqa: D102


def new_hash(file: WantedFile) -> Hash:
    """The hash a file is checked with; gitsha1 is git's blob id."""
    if file.algorithm == "sha256":
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size)  # noqa: S324 - git blob id


def disk_error(error: OSError) -> DeliveryError:
    """What an error of the node's disk means."""
    full = error.errno in _FULL
    sentence = (
        "the node's disk is full" if full else f"the node's disk failed: {error.strerror or type(error).__name__}"
    )
    return DeliveryError(DeliveryReason.INSUFFICIENT_CAPACITY, sentence)


def right_on_disk(path: Path, file: WantedFile, stop: threading.Event) -> bool:
    """Whether a file has the content that the manifest says; reads all of it.

    Raises:
        Cancelled: it was told to stop.
    """
    digest = new_hash(file)
    with path.open("rb", buffering=0) as content:
        size = _hashed(content.fileno(), file, digest, stop)
    return size == file.size and digest.hexdigest() == file.hash


def _hashed(descriptor: int, file: WantedFile, digest: Hash, stop: threading.Event) -> int:
    """Hash from where the descriptor is to the end; the bytes there were."""
    buffer, size = memoryview(bytearray(min(CHUNK, max(1, file.size)))), 0
    while count := os.readv(descriptor, [buffer]):
        if stop.is_set():
            raise Cancelled
        digest.update(buffer[:count])
        size += count
    return size


class Partial:
    """Open it, `append` what comes, `complete` it; `size` is what is on disk and hashed."""

    def __init__(self, path: Path, file: WantedFile, stop: threading.Event) -> None:
        """`stop` ends the hashing of what is there with Cancelled."""
        self.path = path
        self.file = file
        self.size = 0
        self._stop = stop
        self._hash = new_hash(file)
        self._descriptor = -1

    def __enter__(self) -> Self:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            self._rehash()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def append(self, piece: memoryview) -> None:
        """Put bytes behind what is there."""
        self._hash.update(piece)
        self.write(piece)
        self.size += len(piece)

    def hash(self, piece: memoryview) -> None:
        """Take bytes into the hash that `write` gets from another thread."""
        self._hash.update(piece)

    def write(self, piece: memoryview) -> None:
        """Append bytes to the file alone."""
        try:
            while piece:
                piece = piece[os.write(self._descriptor, piece) :]
        except OSError as error:
            raise disk_error(error) from None

    def restart(self) -> None:
        """Drop all bytes: what comes is the file from its beginning."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.ftruncate(self._descriptor, 0)
        self._hash, self.size = new_hash(self.file), 0

    def right(self) -> bool:
        """Whether what was hashed is the file of the manifest."""
        return self.size == self.file.size and self._hash.hexdigest() == self.file.hash

    def sync(self) -> None:
        """Wait for the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise disk_error(error) from None

    def discard(self) -> None:
        """Remove the file and its note."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    @property
    def came_with(self) -> tuple[str, str]:
        """(server, ETag) of the bytes on disk; empty when unknown."""
        try:
            told = json.loads(self._note.read_text())
            return str(told["server"]), str(told["etag"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", ""

    def note(self, server: str, etag: str) -> None:
        """Remember which server and ETag the bytes come with."""
        try:
            if etag and (server, etag) != self.came_with:
                self._note.write_text(json.dumps({"server": server, "etag": etag}))
        except OSError as error:
            raise disk_error(error) from None

    @property
    def _note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def _rehash(self) -> None:
        if os.fstat(self._descriptor).st_size > self.file.size:
            self.restart()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = _hashed(self._descriptor, self.file, self._hash, self._stop)


class Writer:
    """Appends in a thread of its own, a few buffers behind; for large files."""

    @staticmethod
    def worth(partial: Partial) -> bool:
        """Whether enough is missing to pay for a thread."""
        return partial.file.size - partial.size >= _ASIDE_BYTES

    def __init__(self, partial: Partial) -> None:
        self._partial = partial
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview, int] | None] = queue.SimpleQueue()
        self._failed: DeliveryError | None = None
        for _ in range(_BUFFERS):
            self._free.put(memoryview(bytearray(CHUNK)))
        self._thread = threading.Thread(target=self._run, name="modelstore-writer", daemon=True)
        self._thread.start()

    def buffer(self) -> memoryview:
        """An empty buffer; waits while all are on their way to disk."""
        if self._failed is not None:
            raise self._failed
        return self._free.get()

    def append(self, buffer: memoryview, count: int) -> None:
        """Hash the first bytes of a buffer here and write them there."""
        self._full.put((buffer, count))
        self._partial.hash(buffer[:count])
        self._partial.size += count

    def close(self) -> None:
        """Wait until everything is written.

        Raises:
            DeliveryError: the disk failed; the partial is to be opened anew before it is used again.
        """
        self._full.put(None)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        while (item := self._full.get()) is not None:
            buffer, count = item
            if self._failed is None:
                try:
                    self._partial.write(buffer[:count])
                except DeliveryError as error:
                    self._failed = error
            self._free.put(buffer)
