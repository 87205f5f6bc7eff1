"""Who is silent: receive times on one process's own monotonic clock, and when silence means loss.

Pure: every call is given the time. The rules:

* Nothing is judged before one full time-out of listening. Listening starts anew after the process was frozen and
  after the bus was away: what was not heard then proves nothing.
* A node that was silent for the time-out is lost, except when it is one of too many: when at least two nodes, and
  strictly more than a third of those not lost before, fell silent within one time-out, none of them is declared lost.
  They are held until enough of them are heard again, or until somebody deletes their Nodes. So a single silent node
  is always lost, in a fleet of one, two or three too; two of five are held, two of six are lost.
* Nodes fall silent one beat apart although they died together: while others are about to complete such a crowd, the
  first ones wait for them, for one beat at most.

Read next: services/discovery/loops.py, which asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

BEAT_SECONDS = 1.0
"""Agents beat this often."""
TIMEOUT_SECONDS = 3.0
_FORGET_SECONDS = 60.0


class Hearing(StrEnum):
    """What one process has heard of one incarnation."""

    ALIVE = "Alive"
    SILENT = "Silent"
    UNJUDGED = "Unjudged"
    """Not heard, but not listened for long enough."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One node as the store has it."""

    name: str
    incarnation: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who changed, by name."""

    lost: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """Silent, too many to be declared lost."""
    crowd: int = 0
    """How many fell silent together."""
    of: int = 0
    """Nodes that were not lost before."""


class Liveness:
    """One process's receive times."""

    def __init__(self, now: float, timeout: float = TIMEOUT_SECONDS) -> None:
        self.timeout = timeout
        self._since = now
        self._heard: dict[tuple[str, str], float] = {}
        self._declared: dict[str, float] = {}

    def listen_anew(self, now: float) -> None:
        """What was missed until now proves nothing."""
        self._since = now

    def heard(self, node: str, incarnation: str, now: float) -> None:
        """A beat arrived."""
        self._heard[node, incarnation] = now

    def hearing(self, node: str, incarnation: str, now: float) -> Hearing:
        """Whether one incarnation lives, as far as this process can tell."""
        last = self._heard.get((node, incarnation))
        if last is not None and now - last < self.timeout:
            return Hearing.ALIVE
        return Hearing.SILENT if now - self._since >= self.timeout else Hearing.UNJUDGED

    def judge(self, seats: Collection[Seat], now: float) -> Verdict:
        """Judge all nodes at once; ones declared lost are remembered for the crowd rule."""
        self._forget(now)
        returned = tuple(seat.name for seat in seats if seat.lost and self._alive(seat, now))
        if now - self._since < self.timeout:
            return Verdict(returned=returned)
        standing = [seat for seat in seats if not seat.lost]
        silent = [seat.name for seat in standing if self._silence(seat, now) >= self.timeout]
        late = [seat.name for seat in standing if self._silence(seat, now) > self.timeout - BEAT_SECONDS]
        fallen = {seat.name for seat in seats if seat.lost and seat.name in self._declared}
        of = len(standing) + len(fallen)
        if not silent:
            return Verdict(returned=returned, of=of)
        if _crowd(len(silent) + len(fallen), of):
            return Verdict(returned=returned, held=tuple(silent), crowd=len(silent) + len(fallen), of=of)
        if _crowd(len(late) + len(fallen), of):
            return Verdict(returned=returned, of=of)
        self._declared.update(dict.fromkeys(silent, now))
        return Verdict(lost=tuple(silent), returned=returned, of=of)

    def due(self, seats: Iterable[Seat], now: float) -> float:
        """Seconds until a node may complete its time-out; the time-out when nobody is near."""
        left = [self.timeout - self._silence(seat, now) for seat in seats if not seat.lost]
        return max(0.0, min(left, default=self.timeout))

    def _alive(self, seat: Seat, now: float) -> bool:
        last = self._heard.get((seat.name, seat.incarnation))
        return last is not None and now - last < self.timeout - BEAT_SECONDS

    def _silence(self, seat: Seat, now: float) -> float:
        return now - max(self._heard.get((seat.name, seat.incarnation), self._since), self._since)

    def _forget(self, now: float) -> None:
        self._declared = {name: at for name, at in self._declared.items() if now - at <= self.timeout}
        if any(now - at > _FORGET_SECONDS for at in self._heard.values()):
            self._heard = {key: at for key, at in self._heard.items() if now - at <= _FORGET_SECONDS}


def _crowd(count: int, of: int) -> bool:
    return count >= 2 and 3 * count > of
