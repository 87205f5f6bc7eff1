"""The order of an end: who stops Pods first, then the services, then the servers; Pods nobody stopped by their shims.

Used by the supervisor for its children and by `down` for processes that outlived it. Standard library only.
Read next: gpubus/down.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from typing import Protocol

from gpubus.datadir import DataDir, write
from gpubus.procs import pause
from gpubus.stack.plan import STOP_PODS
from gpubus.stack.pods import stop_pods
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


def stop_stack(where: DataDir, targets: Iterable[tuple[int, float, Target]]) -> list[str]:
    """Stop (stage, patience, process) triples stage by stage; the names of those that had to be killed."""
    write(where.stopping, "")
    late: list[str] = []
    everybody = list(targets)
    for stage in sorted({stage for stage, _, _ in everybody} | {STOP_PODS}):
        group = [(patience, target) for own, patience, target in everybody if own == stage]
        late += end(group)
        if stage == STOP_PODS:
            late += stop_pods(where)
    return late


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
