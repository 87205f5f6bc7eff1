"""The order of an end: who stops Pods first, then the services, then the servers; Pods nobody stopped by their locks.

Used by the supervisor for its children and by `down` for processes that outlived it. Standard library only.
Read next: gpubus/down.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpubus.datadir import DataDir, write
from gpubus.stack.endings import Target, end
from gpubus.stack.plan import STOP_PODS
from gpubus.stack.pods import stop_pods


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
