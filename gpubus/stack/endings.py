"""How one process, or a group of them, is ended: asked, waited for, killed.

Standard library only. Must not know which processes there are. Read next: gpubus/stack/shutdown.py.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Protocol

from gpubus.procs import pause
from shared.clock import SystemClock


class Target(Protocol):
    """Something that runs and can be told to end."""

    @property
    def name(self) -> str:
        """As in pids.json."""
        ...

    def alive(self) -> bool:
        """Whether it still runs."""
        ...

    def send(self, number: signal.Signals) -> None:
        """Signal it."""
        ...


def end(group: Sequence[tuple[float, Target]]) -> list[str]:
    """SIGTERM all (and SIGCONT: a frozen one must hear it), wait each one's patience, SIGKILL the rest."""
    clock = SystemClock()
    began = clock.monotonic()
    for _, target in group:
        target.send(signal.SIGTERM)
        target.send(signal.SIGCONT)
    late: list[str] = []
    left = list(group)
    while left:
        left = [(patience, target) for patience, target in left if target.alive()]
        for patience, target in left:
            if target.name not in late and clock.monotonic() - began > patience:
                target.send(signal.SIGKILL)
                late.append(target.name)
        if left:
            pause(0.02)
    return late
