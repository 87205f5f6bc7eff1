"""Copies on this node's disk: blobs by hash, trees of hard links by manifest digest, markers written last.

    <root>/blobs/<algorithm>-<hash>     verified files, shared by every manifest that lists them
    <root>/partial/<algorithm>-<hash>   bytes that are on their way; resumed, never read by anybody else
    <root>/trees/<digest>/<path>        what engines read
    <root>/ready/<digest>               the manifest, written after everything in the tree is on disk: the copy is whole

One process at a time works below a root. Must not trust a path of a manifest before it was checked.
Read next: download.py.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.drivers import download
from services.modelstore.drivers.download import Transfer
from services.modelstore.drivers.partial import Cancelled, disk_error
from services.modelstore.drivers.trees import Trees, blob_name, checked
from services.modelstore.drivers.web import Connections, Source
from services.modelstore.ports import DeliveryError, HeldCopy
from shared.queries import WantedFile, WantedModel
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

_LOCK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Piece:
    """One blob of a delivery."""

    name: str
    file: WantedFile
    counted: int
    """Bytes that were there when the delivery began."""


class DiskVault:
    """One node's copies below one folder."""

    def __init__(self, root: Path, *, concurrency: int, keep_free: int, stall: float) -> None:
        """`concurrency` files at once, `keep_free` bytes left to others, `stall` seconds without a byte at most."""
        self._root = root
        self._keep_free = keep_free
        self._stall = stall
        self._threads = ThreadPoolExecutor(concurrency + 1, thread_name_prefix="modelstore")
        self._turns = asyncio.Semaphore(concurrency)
        self._trees = Trees(root)
        self._missing: dict[object, int] = {}
        """Bytes that running deliveries still have to bring, each under its own ticket: one digest may be given up and
        asked for again before its first delivery has ended."""
        self._counting = threading.Lock()
        self._flights: dict[str, tuple[asyncio.Lock, int]] = {}
        self._locked = -1

    async def held(self) -> Sequence[HeldCopy]:
        """Copies whose marker and every file (by size) are there; waits while another process works here."""
        self._trees.prepare()
        while not self._lock():
            log.info("store_in_use", root=str(self._root))
            await asyncio.sleep(_LOCK_SECONDS)
        return await asyncio.to_thread(self._trees.scan)

    def space(self) -> tuple[int, int, int]:
        """(bytes of the file system, bytes of published copies, percent used)."""
        usage = shutil.disk_usage(self._root)
        return usage.total, self._trees.stored(), usage.used * 100 // max(1, usage.total)

    async def fetch(self, model: WantedModel, progress: Callable[[int], None]) -> HeldCopy:
        """Bring what is missing, publish atomically."""
        if model.simulated:
            sentence = "the simulated hub has no bytes; admit the workload to a simulated node"
            raise DeliveryError(DeliveryReason.INVALID_REQUEST, sentence)
        checked(model)
        loop = asyncio.get_running_loop()
        ticket = object()
        try:
            pieces = await loop.run_in_executor(self._threads, self._pieces, model)
            there = sum(piece.counted for piece in pieces)
            self._reserve(ticket, sum(piece.file.size for piece in pieces) - there)

            def arrived(count: int) -> None:
                nonlocal there
                with self._counting:
                    there += count
                    self._missing[ticket] = self._missing.get(ticket, 0) - count
                progress(there)

            progress(there)
            await self._bring(model, pieces, arrived)
            return await loop.run_in_executor(self._threads, self._trees.publish, model)
        except OSError as error:
            raise disk_error(error) from None
        finally:
            self._missing.pop(ticket, None)

    def _pieces(self, model: WantedModel) -> list[_Piece]:
        files = {blob_name(file): file for file in model.files}
        return [_Piece(name, file, self._trees.there(name, file)) for name, file in files.items()]

    async def _bring(self, model: WantedModel, pieces: Sequence[_Piece], arrived: Callable[[int], None]) -> None:
        source = Source(model.endpoint, model.repository, model.revision, model.token)
        transfer = Transfer(source, Connections(self._stall), threading.Event(), arrived)
        try:
            async with asyncio.TaskGroup() as tasks:
                for piece in pieces:
                    tasks.create_task(self._file(transfer, piece))
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            transfer.stop.set()
            transfer.connections.abort()

    async def _file(self, transfer: Transfer, piece: _Piece) -> None:
        # Two manifests that share a file wait for one transfer of it.
        lock, waiting = self._flights.get(piece.name, (asyncio.Lock(), 0))
        self._flights[piece.name] = (lock, waiting + 1)
        try:
            async with lock, self._turns:
                await self._in_thread(transfer, piece)
        finally:
            lock, waiting = self._flights[piece.name]
            if waiting == 1:
                del self._flights[piece.name]
            else:
                self._flights[piece.name] = (lock, waiting - 1)

    async def _in_thread(self, transfer: Transfer, piece: _Piece) -> None:
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._take, transfer, piece)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread still writes the partial: nobody else may until it ended.
            transfer.stop.set()
            transfer.connections.abort()
            await asyncio.wait([work])
            work.exception()
            raise

    def _take(self, transfer: Transfer, piece: _Piece) -> None:
        try:
            held = self._trees.has(piece.name, piece.file, transfer.stop)
            # Another delivery may have brought some of it meanwhile, and a blob that was wrong is gone.
            transfer.arrived(self._trees.there(piece.name, piece.file) - piece.counted)
            if held:
                return
            download.fetch(transfer, piece.file, self._trees.partial(piece.name))
        except Cancelled:
            return
        self._trees.keep(piece.name)

    def _reserve(self, ticket: object, missing: int) -> None:
        """Refuse before the first byte what would not fit beside the deliveries that run."""
        free = shutil.disk_usage(self._root).free - self._keep_free - sum(self._missing.values())
        if missing > max(0, free):
            sentence = f"{missing} bytes are missing and {max(0, free)} are free on the node; free disk space there"
            raise DeliveryError(DeliveryReason.INSUFFICIENT_CAPACITY, sentence)
        self._missing[ticket] = missing

    def _lock(self) -> bool:
        """Lock the folder itself, so that no file is left that could be taken for a lock; the kernel gives it back."""
        if self._locked < 0:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return False
            self._locked = descriptor
        return True


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What several files failed of, as one: a reason of the disk before one of the source."""
    found = [error for error in _flat(group) if isinstance(error, DeliveryError)]
    found.sort(key=lambda error: error.reason is not DeliveryReason.INSUFFICIENT_CAPACITY)
    others = [error for error in _flat(group) if not isinstance(error, DeliveryError)]
    return next(iter((*others, *found)))


def _flat(group: BaseExceptionGroup[BaseException]) -> Sequence[BaseException]:
    flat: list[BaseException] = []
    for error in group.exceptions:
        flat.extend(_flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    return flat
