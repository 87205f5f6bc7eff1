"""The workers' side of the gateway process: their tables kept fresh, their usage committed, their metrics merged.

Must not decide who may do what: that is in the tables. Read next: projections/endpoints.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Gauge

from services.gateway.domain import tables
from services.gateway.projections import endpoints
from services.gateway.projections.line import frame, read_frame
from services.gateway.settings import GatewaySettings
from shared.errors import GpubusError
from shared.events.usage import RequestMetered, UsageRow
from shared.store.cache import Change, DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit, InboxMark
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

Loop = Callable[[], Awaitable[None]]

SNAPSHOT_SECONDS = 1.0
PULSE_SECONDS = 1.0
CONFIRM_SECONDS = 2.0
_LONGEST_BACKLOG = 1 << 20
_TOGETHER_SECONDS = 0.002
"""Changes this close together are one table."""
USAGE_HANDLER = "usage"

registry = CollectorRegistry()
requests = Gauge(
    "gpubus_requests_total", "Requests to /v1 by worker.", ["worker", "model", "outcome"], registry=registry
)
tokens = Gauge(
    "gpubus_tokens_total", "Tokens by worker.", ["worker", "model", "outcome", "direction"], registry=registry
)
seconds = Gauge(
    "gpubus_request_seconds_total", "Seconds in requests.", ["worker", "model", "outcome"], registry=registry
)


class Door(Protocol):
    """A name in the file system that one of several copies is found under."""

    own: Path

    async def keep(self) -> None:
        """Take the name whenever nobody answers behind it; for ever."""

    def leave(self) -> None:
        """Give it up."""


class _Worker:
    """The line to one worker: one that does not read is not written to for ever."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.took = 0
        """The version of the tables that it serves by."""
        self._writer = writer
        self._told = b""

    def tell(self, raw: bytes, version: int, *, fresh: bool) -> None:
        """The tables, when it has others; and whether they are what the store has."""
        if self._writer.transport.get_write_buffer_size() > _LONGEST_BACKLOG:
            return  # it is told when it reads again
        if raw != self._told:
            self._told = raw
            self._writer.write(frame("tables", raw, version))
        if fresh:
            self._writer.write(frame("fresh"))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class Feeder:
    """Serves the workers of this host; `door` is that of `feed_path`."""

    def __init__(self, settings: GatewaySettings, cache: DocumentCache, store: Store, door: Door) -> None:
        self._settings = settings
        self._cache = cache
        self._store = store
        self._door = door
        self._raw = b""
        self._kept = b""
        self._version = 0
        """Of `_raw`; rises with each."""
        self._seen = self._through = 0
        """Changes that the cache told, and how many of them `_raw` has."""
        self._moved = asyncio.Event()
        self._changed = asyncio.Event()
        self._built = asyncio.Event()
        self._workers: set[_Worker] = set()
        self.loops: dict[str, Loop] = {
            "feed": self.serve,
            "tables": self.keep_fresh,
            "pulse": self.keep_telling,
            "snapshot": self.keep_snapshot,
        }
        cache.listen(self._note)

    def _note(self, change: Change) -> None:
        if change.kind in endpoints.KINDS:
            self._seen += 1
            self._changed.set()

    async def confirmed(self) -> None:
        """Return when the workers of this host serve by what the cache has now; a silent one is waited for CONFIRM_SECONDS."""
        wanted = self._seen
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_SECONDS):
                while self._through < wanted:
                    await self._moved.wait()
                version = self._version
                while any(worker.took < version for worker in self._workers):
                    await self._moved.wait()
        self._save()  # nor does a worker that starts without this process know better

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def keep_fresh(self) -> None:
        """Build the tables after every change that counts, and send them; for ever."""
        await self._cache.synced()
        while True:
            self._changed.clear()
            seen = self._seen
            raw = tables.encode(endpoints.build(self._cache))
            if raw != self._raw:
                self._raw = raw
                self._version += 1
                self._built.set()
                self._tell()
            self._through = seen
            self._move()
            await self._changed.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)

    async def keep_telling(self) -> None:
        """Tell the workers that their tables are what the store has, while it answers; for ever."""
        while True:
            self._tell()
            await asyncio.sleep(PULSE_SECONDS)

    def _tell(self) -> None:
        for worker in self._workers:
            worker.tell(self._raw, self._version, fresh=self._store.reachable)

    async def keep_snapshot(self) -> None:
        """Keep the tables on disk for workers that start while this process is away; for ever."""
        while True:
            self._save()
            await asyncio.sleep(SNAPSHOT_SECONDS)

    def _save(self) -> None:
        if self._raw and self._raw != self._kept:
            with contextlib.suppress(OSError):
                _write(snapshot_path(self._settings.data_dir), self._raw)
                self._kept = self._raw

    async def serve(self) -> None:
        """Listen for workers; for ever."""
        await self._built.wait()
        self._door.own.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._talk, str(self._door.own), limit=1 << 20)
        self._door.own.chmod(0o600)
        try:
            async with server:
                await self._door.keep()
        finally:
            self._door.leave()
            for worker in list(self._workers):
                worker.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = _Worker(writer)
        self._workers.add(worker)
        try:
            worker.tell(self._raw, self._version, fresh=self._store.reachable)
            while True:
                kind, *rest = await read_frame(reader)
                if kind == "usage" and await self._store_usage(*rest):
                    writer.write(frame("ack", rest[0], rest[1]))
                elif kind == "took":
                    worker.took = rest[0]
                    self._move()
                elif kind == "metrics":
                    _export(*rest)
                await writer.drain()
        except OSError:
            return  # the worker went
        finally:
            self._workers.discard(worker)
            self._move()
            worker.close()

    async def _store_usage(self, boot: str, number: int, rows: list[Any]) -> bool:
        try:
            fact = RequestMetered(name=boot, batch=number, rows=[_row(*row) for row in rows])
        except (ValueError, TypeError) as error:
            # Sent for ever it would hold up every batch behind it.
            log.warning("usage_not_understood", boot=boot, batch=number, rows=len(rows), reason=str(error))
            return True
        try:
            await self._store.commit(Commit(facts=(fact,), mark=InboxMark(USAGE_HANDLER, f"{boot}-{number}")))
        except GpubusError as error:
            log.warning("usage_not_stored", boot=boot, batch=number, reason=str(error))
            return False
        return True


def snapshot_path(data_dir: Path) -> Path:
    """Where the tables are kept on disk."""
    return data_dir / "run" / "tables.snapshot"


def _write(path: Path, raw: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    temporary.replace(path)


def _row(*values: Any) -> UsageRow:
    key, namespace, model, minute, outcome, count, read, cached, written, spent = values
    return UsageRow(
        key_uid=key,
        namespace=namespace,
        model=model,
        minute=minute,
        outcome=outcome,
        requests=count,
        input_tokens=read,
        cached_input_tokens=cached,
        output_tokens=written,
        duration_ms=spent,
    )


def _export(worker: str, totals: list[Any]) -> None:
    for model, outcome, count, read, _, written, spent in totals:
        requests.labels(worker, model, outcome).set(count)
        tokens.labels(worker, model, outcome, "input").set(read)
        tokens.labels(worker, model, outcome, "output").set(written)
        seconds.labels(worker, model, outcome).set(spent / 1000)
