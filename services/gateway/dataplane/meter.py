"""What was used, summed by key, model, minute and outcome; batches wait on disk until they are acknowledged.

Read next: feed.py, which sends them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from services.gateway.domain.streaming import Usage
from services.gateway.domain.tables import Key, Model
from shared.clock import Clock

_ROWS_PER_BATCH = 2000
"""Well below half a mebibyte."""
_WAITING_BATCHES = 10_000
_TOGETHER_BATCHES = 16
"""Sent before the first of them is acknowledged."""

Place = tuple[str, str, str, int, str]
Batch = tuple[str, int, list[Any]]
"""(boot id, number, rows)."""


class Meter:
    """One worker's counts."""

    def __init__(self, spool: Path, clock: Clock) -> None:
        self._spool = spool
        self._clock = clock
        self.boot = secrets.token_hex(8)
        self._number = 0
        self._fewer = False
        self._rows: dict[Place, list[int]] = {}
        self.waiting: deque[Batch] = deque(_load(spool), maxlen=_WAITING_BATCHES)
        self.totals: dict[tuple[str, str], list[int]] = {}
        """(model, outcome) to requests, input and output tokens, milliseconds: for metrics."""

    def add(self, key: Key, model: Model, outcome: str, usage: Usage | None, seconds: float) -> None:
        """One request ended."""
        place = (key.uid, model.namespace, model.name, int(self._clock.now().timestamp()) // 60, outcome)
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = [0, 0, 0, 0, 0]
        total = self.totals.get((model.name, outcome))
        if total is None:
            total = self.totals[model.name, outcome] = [0, 0, 0, 0, 0]
        told = usage or _NOTHING
        counted = (1, told.input_tokens, told.cached_input_tokens, told.output_tokens, int(seconds * 1000))
        for index, count in enumerate(counted):
            row[index] += count
            total[index] += count

    def flush(self) -> bool:
        """Close the running rows into batches on disk; whether there were any."""
        closed = bool(self._rows)
        rows = [[*place, *counts] for place, counts in self._rows.items()]
        self._rows = {}
        for start in range(0, len(rows), _ROWS_PER_BATCH):
            self._number += 1
            self.waiting.append((self.boot, self._number, rows[start : start + _ROWS_PER_BATCH]))
        if closed or self._fewer:
            self._fewer = False
            self._keep()
        return closed

    def next_batches(self) -> list[Batch]:
        """The oldest ones that nobody has acknowledged."""
        return list(islice(self.waiting, _TOGETHER_BATCHES))

    def acknowledged(self, boot: str, number: int) -> None:
        """A batch is stored; the disk follows with the next flush (one that is sent again is recognised)."""
        kept = [batch for batch in self.waiting if batch[:2] != (boot, number)]
        self._fewer = self._fewer or len(kept) < len(self.waiting)
        self.waiting.clear()
        self.waiting.extend(kept)

    def _keep(self) -> None:
        # A full disk loses no request, only the spool: the batches are still in memory.
        with contextlib.suppress(OSError):
            temporary = self._spool.with_name(f"{self._spool.name}.new")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.msgpack.encode(list(self.waiting)))
            temporary.replace(self._spool)


_NOTHING = Usage()


def _load(spool: Path) -> list[Batch]:
    try:
        found: list[Batch] = msgspec.msgpack.decode(spool.read_bytes(), type=list[tuple[str, int, list[Any]]])
    except (OSError, ValueError):
        return []
    return found
