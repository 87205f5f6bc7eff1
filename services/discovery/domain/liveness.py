"""Who is silent: receive times on one process's own monotonic clock, and when silence means loss.

Pure: every call is given the time. The rules:

* Nothing is judged before one full time-out of listening, nor an incarnation before one full time-out of knowing it.
  Listening starts anew after the process was frozen and after the bus was away: what was not heard then proves nothing.
* A node that was silent for the time-out is lost, except when it is one of too many: when at least two nodes, and
  strictly more than a third of those not lost before, fell silent within one time-out, none of them is declared lost.
  They are held until enough of them are heard again (and one time-out more, for the rest to follow), or until
  somebody deletes their Nodes. So a single silent node is always lost, in a fleet of one, two or three too; two of
  five are held, two of six are lost.
* Nodes fall silent one beat apart although they died together: while others are about to complete such a crowd, the
  first ones wait for them, for one beat at most.

Read next: services/discovery/loops.py, which asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

BEAT_SECONDS = 1.0
"""Agents beat this often."""
TIMEOUT_SECONDS = 3.0
FROZEN_SECONDS = 2.0
"""Whoever calls `awake` every second and comes this late was stopped, not waiting."""
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
    held: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who changed, by name."""

    lost: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    """Silent, too many to be declared lost."""
    relieved: tuple[str, ...] = ()
    """Held before and heard again."""
    crowd: int = 0
    """How many fell silent together."""
    of: int = 0
    """Nodes that were not lost before."""


class Liveness:
    """One process's receive times."""

    def __init__(self, now: float, timeout: float = TIMEOUT_SECONDS) -> None:
        self.timeout = timeout
        self._since = now
        self._awake = now
        self._heard: dict[tuple[str, str], float] = {}
        self._met: dict[tuple[str, str], float] = {}
        self._declared: dict[str, float] = {}
        self._hold_until = now

    def listen_anew(self, now: float) -> None:
        """What was missed until now proves nothing."""
        self._since = now

    def awake(self, now: float) -> None:
        """Called every second; a gap means that this process was frozen and heard nothing."""
        if now - self._awake > FROZEN_SECONDS:
            self.listen_anew(now)
        self._awake = now

    def heard(self, node: str, incarnation: str, now: float) -> None:
        """A beat arrived."""
        self._heard[node, incarnation] = now

    def hearing(self, node: str, incarnation: str, now: float) -> Hearing:
        """Whether one incarnation lives, as far as this process can tell."""
        self.awake(now)
        last = self._heard.get((node, incarnation))
        if last is not None and now - last < self.timeout:
            return Hearing.ALIVE
        silence = self._silence((node, incarnation), now)
        return Hearing.SILENT if silence >= self.timeout else Hearing.UNJUDGED

    def judge(self, seats: Collection[Seat], now: float) -> Verdict:
        """Judge all nodes at once; ones declared lost are remembered for the crowd rule."""
        self.awake(now)
        self._forget(seats, now)
        for seat in seats:
            self._met.setdefault((seat.name, seat.incarnation), now)
        alive = [seat for seat in seats if (seat.lost or seat.held) and self._alive(seat, now)]
        back = Verdict(
            returned=tuple(seat.name for seat in alive if seat.lost),
            relieved=tuple(seat.name for seat in alive if not seat.lost),
        )
        return back if now - self._since < self.timeout else self._judged(back, seats, now)

    def _judged(self, back: Verdict, seats: Collection[Seat], now: float) -> Verdict:
        standing = [seat for seat in seats if not seat.lost]
        silent = [seat.name for seat in standing if self._silence((seat.name, seat.incarnation), now) >= self.timeout]
        late = [
            seat.name
            for seat in standing
            if self._silence((seat.name, seat.incarnation), now) > self.timeout - BEAT_SECONDS
        ]
        fallen = {seat.name for seat in seats if seat.lost and seat.name in self._declared}
        of = len(standing) + len(fallen)
        crowd = len(silent) + len(fallen)
        if not silent:
            return replace(back, of=of)
        if _crowd(crowd, of):
            self._hold_until = now + self.timeout
        if now < self._hold_until:
            return replace(back, held=tuple(silent), crowd=crowd, of=of)
        if _crowd(len(late) + len(fallen), of):
            return replace(back, of=of)
        self._declared.update(dict.fromkeys(silent, now))
        return replace(back, lost=tuple(silent), of=of)

    def due(self, seats: Iterable[Seat], now: float) -> float:
        """Seconds until a node may complete its time-out; the time-out when nobody is near."""
        left = [self.timeout - self._silence((seat.name, seat.incarnation), now) for seat in seats if not seat.lost]
        return max(0.0, min(left, default=self.timeout))

    def _alive(self, seat: Seat, now: float) -> bool:
        last = self._heard.get((seat.name, seat.incarnation))
        return last is not None and now - last < self.timeout - BEAT_SECONDS

    def _silence(self, key: tuple[str, str], now: float) -> float:
        return now - max(self._heard.get(key, 0.0), self._met.setdefault(key, now), self._since)

    def _forget(self, seats: Iterable[Seat], now: float) -> None:
        if now >= self._hold_until:  # whoever fell with those that are held counts as long as they are
            self._declared = {name: at for name, at in self._declared.items() if now - at <= self.timeout}
        if any(now - at > _FORGET_SECONDS for times in (self._heard, self._met) for at in times.values()):
            current = {(seat.name, seat.incarnation) for seat in seats}
            self._heard = _recent(self._heard, current, now)
            self._met = _recent(self._met, current, now)


def _recent(
    times: dict[tuple[str, str], float], current: set[tuple[str, str]], now: float
) -> dict[tuple[str, str], float]:
    return {key: at for key, at in times.items() if key in current or now - at <= _FORGET_SECONDS}


def _crowd(count: int, of: int) -> bool:
    return count >= 2 and 3 * count > of
