"""What the agent does next with one Pod, and how long it waits after a failure.

Pure. Read next: ../agent/keeper.py, which does it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from services.deployer.domain.running import Ended, Observation

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 60.0
FORGIVEN_AFTER_SECONDS = 600.0
"""A start that ran this long counts as a success: the next failure begins with the first delay again."""
UNKNOWN_EXIT = 137
"""Exit code of a process whose end nobody saw (Kubernetes says the same)."""

RestartPolicy = Literal["Always", "OnFailure", "Never"]
Finished = Literal["", "Succeeded", "Failed"]


class Act(StrEnum):
    """The next thing to do."""

    WAIT = "Wait"
    START = "Start"
    TAKE_END = "TakeEnd"
    """Note how it ended, then decide again."""
    STOP = "Stop"
    CONFIRM = "Confirm"
    """Nothing of it runs, and nothing will be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the controller wants of one Pod."""

    run: bool
    hold: str = ""
    """Why it must not be started yet."""
    policy: RestartPolicy = "Always"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What has happened to it on this node."""

    starts: int = 0
    failures: int = 0
    """In a row."""
    not_before: float = 0.0
    """Monotonic seconds before which it is not started again."""
    last: Ended | None = None
    taken: int = 0
    """The start whose end is in here already."""
    finished: Finished = ""

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(0, self.starts - 1)


def decide(order: Order, seen: Observation, history: History, now: float) -> Act:
    """The next act; WAIT when there is nothing to do now."""
    if not order.run:
        return Act.STOP if seen.running else Act.CONFIRM
    if seen.running:
        return Act.WAIT
    if history.starts > history.taken:
        return Act.TAKE_END
    if history.finished or order.hold or now < history.not_before:
        return Act.WAIT
    return Act.START


def started(history: History) -> History:
    """After a start was begun."""
    return replace(history, starts=history.starts + 1)


def ended(history: History, end: Ended, ran_seconds: float, policy: RestartPolicy, now: float) -> History:
    """After a start ended: finished for good, or when the next one may be."""
    well = end.exit_code == 0 and not end.signal
    noted = replace(history, last=end, taken=history.starts)
    if policy == "Never" or (well and policy == "OnFailure"):
        return replace(noted, finished="Succeeded" if well else "Failed")
    failures = 1 if ran_seconds >= FORGIVEN_AFTER_SECONDS else history.failures + 1
    return replace(noted, failures=failures, not_before=now + delay(failures))


def delay(failures: int) -> float:
    """Seconds until the next start after so many failures in a row."""
    if failures <= 0:
        return 0.0
    return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 20))


def sentence(end: Ended, failures: int) -> str:
    """How it ended, for people: the code first, then the end of its log."""
    if end.signal:
        how = f"ended by signal {end.signal}"
    elif end.exit_code is None:
        how = "ended; nobody saw how (its shim was killed)"
    else:
        how = f"exit code {end.exit_code}"
    again = f", next start after {delay(failures):g} s" if failures else ""
    return "\n".join((f"{how}{again}", *end.lines))
