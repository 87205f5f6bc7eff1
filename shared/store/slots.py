"""Where a process keeps the result of its latest commits, so that one whose answer was lost is not made twice.

Each running commit owns a field of one small hash; the number of fields is the number of commits at once.
Must not talk to Redis. Read next: scripts/commit.lua (`repeated`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shared.clock import Clock

QUARANTINE_SECONDS = 60.0
"""A lost attempt may still lie in a frozen server's socket; its field is not given to another commit so long."""


@dataclass(slots=True)
class Slot:
    """One field and the id of the commit that holds it."""

    number: int
    commit_id: str
    spoiled: bool = field(default=False)

    @property
    def names(self) -> tuple[str, str]:
        """(hash field, commit id)."""
        return str(self.number), self.commit_id

    def spoil(self) -> None:
        """An attempt may have run, or run later, without our knowing."""
        self.spoiled = True


class Slots:
    """Gives out fields; single-threaded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: list[int] = []
        self._resting: deque[tuple[float, int]] = deque()
        self._made = 0
        self._commits = 0

    def take(self) -> Slot:
        """A field that no attempt of another commit can still reach."""
        now = self._clock.monotonic()
        while self._resting and self._resting[0][0] <= now:
            self._free.append(self._resting.popleft()[1])
        if not self._free:
            self._free.append(self._made)
            self._made += 1
        self._commits += 1
        return Slot(self._free.pop(), str(self._commits))

    def give(self, slot: Slot) -> None:
        """Back, at once or after its quarantine."""
        if slot.spoiled:
            self._resting.append((self._clock.monotonic() + QUARANTINE_SECONDS, slot.number))
        else:
            self._free.append(slot.number)
