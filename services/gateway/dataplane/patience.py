"""Deadlines of all waiting exchanges, looked at together: a timer for each would cost more than most exchanges take.

Read next: upstream.py, watching.py.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

TICK_SECONDS = 0.05
"""How late a deadline may be noticed."""


class Waiting(Protocol):
    """Whoever has a deadline."""

    def late(self) -> None:
        """It has passed."""


class Patience:
    """One event loop's deadlines; asleep while nobody waits."""

    def __init__(self) -> None:
        self._until: dict[Waiting, float] = {}
        self._ticking = False

    def begin(self, waiting: Waiting, seconds: float) -> None:
        """Call `late` unless `end` comes first."""
        loop = asyncio.get_running_loop()
        self._until[waiting] = loop.time() + seconds
        if not self._ticking:
            self._ticking = True
            loop.call_later(TICK_SECONDS, self._tick)

    def end(self, waiting: Waiting) -> None:
        """It no longer waits."""
        self._until.pop(waiting, None)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for waiting in [waiting for waiting, until in self._until.items() if until <= now]:
            del self._until[waiting]
            waiting.late()
        self._ticking = bool(self._until)
        if self._ticking:
            loop.call_later(TICK_SECONDS, self._tick)
