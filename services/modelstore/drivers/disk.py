"""Copies on this node's disk: blobs by hash, trees of hard links by manifest digest, markers written last.

    <root>/blobs/<algorithm>-<hash>     verified files, shared by every manifest that lists them
    <root>/partial/<algorithm>-<hash>   bytes that are on their way; resumed, never read by anybody else
    <root>/trees/<digest>/<path>        what engines read
    <root>/ready/<digest>.json          written after everything in the tree is on disk: the copy is whole

Must not trust a path of a manifest before it was checked. Read next: download.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.drivers import download
from services.modelstore.drivers.download import Cancelled, Source
from services.modelstore.ports import DeliveryError, HeldCopy
from shared.faults import point
from shared.manifest import ManifestError, ManifestFile, build
from shared.queries import WantedFile, WantedModel


class DiskVault:
    """One node's copies below one folder."""

    def __init__(self, root: Path, *, concurrency: int, keep_free: int, stall: float) -> None:
        self._root = root
        self._keep_free = keep_free
        self._stall = stall
        self._turns = asyncio.Semaphore(concurrency)
        self._reserved: dict[str, int] = {}
        self._flights: dict[str, asyncio.Lock] = {}
        for name in ("blobs", "partial", "trees", "ready"):
            (root / name).mkdir(parents=True, exist_ok=True)

    async def held(self) -> Sequence[HeldCopy]:
        """Copies whose marker and every file (by size) are there."""
        return await asyncio.to_thread(self._scan)

    def space(self) -> tuple[int, int, int]:
        """(bytes of the file system, bytes of published copies, percent used)."""
        usage = shutil.disk_usage(self._root)
        stored = sum(path.stat().st_size for path in (self._root / "blobs").iterdir())
        return usage.total, stored, usage.used * 100 // max(1, usage.total)

    async def fetch(self, model: WantedModel, progress: Callable[[int], None]) -> HeldCopy:
        """Bring what is missing, publish atomically."""
        _checked(model)
        there = await asyncio.to_thread(self._there, model)
        self._reserve(model, there)
        stop = threading.Event()
        lock = threading.Lock()

        def arrived(count: int) -> None:
            nonlocal there
            with lock:
                there += count
            progress(there)

        progress(there)
        try:
            async with asyncio.TaskGroup() as tasks:
                source = Source(model.endpoint, model.repository, model.revision, model.token)
                for file in {_blob(file): file for file in model.files}.values():
                    tasks.create_task(self._file(source, file, stop, arrived))
            return await asyncio.to_thread(self._publish, model)
        except* DeliveryError as group:
            raise group.exceptions[0] from None
        except* OSError as group:
            raise _disk_error(group.exceptions[0]) from None
        finally:
            stop.set()
            self._reserved.pop(model.digest, None)

    async def _file(
        self, source: Source, file: WantedFile, stop: threading.Event, arrived: Callable[[int], None]
    ) -> None:
        # Two manifests that share a file wait for one transfer of it.
        async with self._flights.setdefault(_blob(file), asyncio.Lock()), self._turns:
            work = asyncio.ensure_future(asyncio.to_thread(self._bring, source, file, stop, arrived))
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                stop.set()  # the thread still writes the partial: nobody else may until it ended
                await asyncio.wait([work])
                raise

    def _bring(self, source: Source, file: WantedFile, stop: threading.Event, arrived: Callable[[int], None]) -> None:
        blob = self._root / "blobs" / _blob(file)
        if blob.exists():
            return
        partial = self._root / "partial" / _blob(file)
        try:
            download.fetch(source, file, partial, stall=self._stall, stop=stop, arrived=arrived)
        except Cancelled:
            return
        partial.chmod(0o444)
        partial.replace(blob)

    def _publish(self, model: WantedModel) -> HeldCopy:
        point("modelstore-agent.before-publish")
        name = _name(model.digest)
        tree, staging = self._root / "trees" / name, self._root / "trees" / f".{name}"
        if not tree.exists():
            shutil.rmtree(staging, ignore_errors=True)
            for file in model.files:
                place = staging / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._root / "blobs" / _blob(file), place)
            _sync_tree(staging)
            staging.rename(tree)
            _sync(tree.parent)
        marker = self._root / "ready" / f"{name}.json"
        temporary = marker.with_name(f".{marker.name}")
        listed = {"digest": model.digest, "files": [[file.path, file.size] for file in model.files]}
        temporary.write_text(json.dumps(listed))
        _sync(temporary)
        temporary.replace(marker)
        _sync(marker.parent)
        point("modelstore-agent.after-publish")
        return HeldCopy(model.digest, sum(file.size for file in model.files), str(tree))

    def _scan(self) -> list[HeldCopy]:
        found = []
        for marker in sorted((self._root / "ready").glob("[!.]*.json")):
            try:
                told = json.loads(marker.read_text())
                tree = self._root / "trees" / _name(told["digest"])
                whole = all((tree / path).stat().st_size == size for path, size in told["files"])
            except (OSError, ValueError, KeyError):
                whole = False
            if whole:
                found.append(HeldCopy(told["digest"], sum(size for _, size in told["files"]), str(tree)))
            else:
                marker.unlink(missing_ok=True)
        return found

    def _there(self, model: WantedModel) -> int:
        return sum(self._of(file) for file in {_blob(file): file for file in model.files}.values())

    def _of(self, file: WantedFile) -> int:
        for folder in ("blobs", "partial"):
            try:
                return min(file.size, (self._root / folder / _blob(file)).stat().st_size)
            except FileNotFoundError:
                continue
        return 0

    def _reserve(self, model: WantedModel, there: int) -> None:
        """Refuse before the first byte what would not fit beside the deliveries that run."""
        missing = max(0, sum({_blob(file): file.size for file in model.files}.values()) - there)
        free = shutil.disk_usage(self._root).free - self._keep_free - sum(self._reserved.values())
        if missing > max(0, free):
            sentence = f"{missing} bytes are missing and {max(0, free)} are free on the node; free disk space there"
            raise DeliveryError(DeliveryReason.INSUFFICIENT_CAPACITY, sentence)
        # Running deliveries are counted with all that they miss at their start: on the safe side.
        self._reserved[model.digest] = missing


def _checked(model: WantedModel) -> None:
    """The manifest must be the one that its digest names, and every path must stay below the tree."""
    try:
        manifest = build(ManifestFile(f.path, f.size, f.algorithm, f.hash) for f in model.files)
    except ManifestError as error:
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, str(error)) from error
    if manifest.digest != model.digest:
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, f"the file list has digest {manifest.digest}")


def _blob(file: WantedFile) -> str:
    return f"{file.algorithm}-{file.hash}"


def _name(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _disk_error(error: BaseException) -> DeliveryError:
    full = isinstance(error, OSError) and error.errno in {28, 122}  # ENOSPC, EDQUOT
    reason = DeliveryReason.INSUFFICIENT_CAPACITY if full else DeliveryReason.SOURCE_UNAVAILABLE
    return DeliveryError(reason, "the node's disk is full" if full else f"the node's disk failed: {error}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        _sync(Path(folder))
