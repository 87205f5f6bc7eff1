"""The worker's line to the gateway process: tables come in, usage and metrics go out.

Without it the worker serves from what it has: the last tables, or the snapshot on disk. Read next: ../loops.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from services.gateway.dataplane.meter import Meter
from services.gateway.domain import tables
from services.gateway.domain.tables import Index, Tables
from services.gateway.projections.line import frame, read_frame
from shared.clock import Clock
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

FLUSH_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_SILENCE_SECONDS = 5.0
"""The gateway process speaks every second; one that hangs is as good as gone."""


class Feed:
    """What the worker knows, and the loop that keeps it fresh."""

    def __init__(self, *, socket: Path, snapshot: Path, admin_hash: str, meter: Meter, name: str, clock: Clock) -> None:
        self._socket = socket
        self._snapshot = snapshot
        self._admin_hash = admin_hash
        self._meter = meter
        self._name = name
        self._clock = clock
        self.index = Index(Tables(), admin_hash)
        self.version = 0
        """Rises with each new table; caches of look-ups belong to one version."""
        self.loaded = False
        self.heard = clock.monotonic()
        self.connected = False

    def load_snapshot(self) -> None:
        """Start from what the gateway process wrote last."""
        with contextlib.suppress(OSError, ValueError):
            self._take(self._snapshot.read_bytes())
            # Its time is that of the last moment at which it was what the store had.
            age = self._clock.now().timestamp() - self._snapshot.stat().st_mtime
            self.heard = self._clock.monotonic() - max(0.0, age)

    @property
    def stale_seconds(self) -> float:
        """How long the tables may have been out of date: 0 while the gateway process says that they are not."""
        silent = self._clock.monotonic() - self.heard
        return 0.0 if self.connected and silent < _SILENCE_SECONDS else silent

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=1 << 20)
            except OSError:
                self._meter.flush()
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await self._talk(reader, writer)
            except OSError:
                pass  # a gone gateway process is not an error: traffic goes on
            except (ValueError, TypeError, LookupError) as error:
                log.warning("feed_not_understood", reason=str(error))  # another version of the gateway process
            finally:
                self.connected = False
                writer.close()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listening = asyncio.ensure_future(self._listen(reader, writer))
        try:
            while not listening.done():
                self._meter.flush()
                for boot, number, rows in self._meter.next_batches():
                    writer.write(frame("usage", boot, number, rows))
                totals = [[*place, *counts] for place, counts in self._meter.totals.items()]
                writer.write(frame("metrics", self._name, totals))
                await writer.drain()
                await asyncio.wait([listening], timeout=FLUSH_SECONDS)
            listening.result()
        finally:
            listening.cancel()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            kind, *rest = await read_frame(reader)
            if kind == "tables":
                self._take(rest[0])
                writer.write(frame("took", *rest[1:]))
            elif kind == "fresh":
                self.heard, self.connected = self._clock.monotonic(), True
            elif kind == "ack":
                self._meter.acknowledged(rest[0], rest[1])

    def _take(self, raw: bytes) -> None:
        self.index = Index(tables.decode(raw), self._admin_hash)
        self.version += 1
        self.loaded = True
