"""The latest changes of one kind, for watches that are a little behind.

Owns when a position is too old. Must not do I/O. Read next: watch.py.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.gateway.domain.status import expired
from shared.store.documents import Document

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one object."""

    revision: int
    type: str
    """ADDED, MODIFIED or DELETED."""
    document: Document
    """The new state; of a deleted object the last one, with the deletion's revision."""
    old: Document | None = None
    """The state before, when it is known."""
    old_labels: Mapping[str, str] = field(default_factory=dict)


class Ring:
    """At most twice `size` steps in order of revision, and the event that wakes who waits for more."""

    def __init__(self, size: int = 1000) -> None:
        self.floor = 0
        """Everything after this revision is here."""
        self.generation = 0
        """Rises when what was here no longer leads to what comes: whoever follows must list again."""
        self._size = size
        self._steps: list[Step] = []
        self._revisions: list[int] = []
        self._grown = asyncio.Event()

    def append(self, step: Step) -> None:
        """One more step."""
        self._steps.append(step)
        self._revisions.append(step.revision)
        if len(self._steps) > 2 * self._size:
            self.floor = self._revisions[self._size - 1]
            del self._steps[: self._size]
            del self._revisions[: self._size]
        self.wake()

    def after(self, revision: int) -> list[Step]:
        """The steps after a revision.

        Raises:
            GpubusError: answered 410; it is before the floor.
        """
        if revision < self.floor:
            raise expired(f"too old resource version: {revision} ({self.floor})")
        return self._steps[bisect_right(self._revisions, revision) :]

    def reset(self, floor: int) -> None:
        """Forget everything; positions before `floor` are too old from now on."""
        self._steps.clear()
        self._revisions.clear()
        self.floor = floor
        self.generation += 1
        self.wake()

    def wake(self) -> None:
        """Wake everybody who waits."""
        self._grown.set()
        self._grown = asyncio.Event()

    async def grown(self, timeout: float) -> bool:
        """Wait for the next step; False after `timeout` seconds without one."""
        try:
            async with asyncio.timeout(timeout):
                await self._grown.wait()
        except TimeoutError:
            return False
        return True
