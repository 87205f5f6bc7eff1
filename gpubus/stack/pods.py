"""Pods that no agent stopped: whoever still holds `pods/<uid>/lock` when the stack ends.

A shim holds that lock and its engine inherits it, so its holders are exactly what must end. Standard library only.
Must not start anything. Read next: services/deployer, whose shim takes the lock.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from gpubus.datadir import DataDir
from gpubus.procs import Process, holders, identity
from gpubus.stack.endings import end

PATIENCE = 10.0


def running_pods(where: DataDir) -> list[Path]:
    """The folders of Pods that still run."""
    return [lock.parent for lock in sorted(where.pods.glob("*/lock")) if _held(lock)]


def stop_pods(where: DataDir) -> list[str]:
    """Stop every Pod that still runs, all at once; the names of processes that had to be killed."""
    locks = [folder / "lock" for folder in running_pods(where)]
    return end([(PATIENCE, Process(f"Pod process {pid}", pid, identity(pid))) for pid in holders(*locks)])


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
