"""What `up` refuses, each in one sentence, before it has changed anything.

Must not write. Read next: gpubus/up.py.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path

from gpubus.datadir import DataDir, read_json
from gpubus.procs import Process, holders
from gpubus.refusal import Refusal

OLDEST_PYTHON = (3, 11)
LEAST_FREE_BYTES = 64 * 1024 * 1024


def check_host(where: DataDir) -> None:
    """Refuse a host or data dir on which a stack cannot start.

    Raises:
        Refusal: the first thing found.
    """
    if sys.version_info < OLDEST_PYTHON:
        raise Refusal(f"Python {sys.version.split()[0]} is too old: gpubus needs 3.11, 3.12 or 3.13.")
    if any(ch.isspace() or ch in "\"'\\" for ch in str(where.root)):
        raise Refusal(
            f"The data dir {str(where.root)!r} has white space or quotes in its name: choose another with --data-dir."
        )
    _check_writable(where.root)
    check_space(where.root)


def _nearest(path: Path) -> Path:
    return path if path.exists() else _nearest(path.parent)


def _check_writable(root: Path) -> None:
    nearest = _nearest(root)
    if not nearest.is_dir():
        raise Refusal(f"{nearest} is not a directory: choose another data dir with --data-dir.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise Refusal(
            f"The data dir {root} cannot be written by this user: choose another with --data-dir or change its owner."
        )


def check_space(root: Path, least: int = LEAST_FREE_BYTES) -> None:
    """Refuse a disk with less than `least` bytes free.

    Raises:
        Refusal: it is full.
    """
    free = shutil.disk_usage(_nearest(root)).free
    if free < least:
        raise Refusal(
            f"The disk of {root} is full: {free // 2**20} MiB are free, {least // 2**20} are needed; "
            "free some or choose another data dir with --data-dir."
        )


def lock(where: DataDir) -> int:
    """Take the stack's lock; the descriptor goes to every process of the stack, so it is held while any lives.

    Raises:
        Refusal: a stack runs in this data dir, or processes of one whose supervisor is gone.
    """
    check_free(where)
    where.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(where.lock, os.O_RDWR | os.O_CREAT, 0o600)
    if not _locked(descriptor):
        os.close(descriptor)
        raise Refusal(_belongs(where))
    return descriptor


def check_free(where: DataDir) -> None:
    """The same question without taking or creating anything.

    Raises:
        Refusal: as `lock`.
    """
    if is_held(where):
        raise Refusal(_belongs(where))


def is_held(where: DataDir) -> bool:
    """Whether any process of a stack lives in this data dir."""
    try:
        descriptor = os.open(where.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise Refusal(f"{where.lock} belongs to another user: run as that one or choose another data dir.") from error
    try:
        return not _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _belongs(where: DataDir) -> str:
    supervisor = supervisor_of(where)
    stop = f"`gpubus down --data-dir {where.root}`"
    if supervisor is not None and supervisor.alive():
        return (
            f"The data dir {where.root} belongs to a running stack (supervisor pid {supervisor.pid}): {stop} stops it."
        )
    pids = ", ".join(str(pid) for pid in holders(where.lock))
    return f"The data dir {where.root} belongs to a stack whose supervisor is gone but whose processes go on (pids {pids}): {stop} stops them."


def supervisor_of(where: DataDir) -> Process | None:
    """The supervisor that wrote state.json."""
    told = read_json(where.state).get("supervisor") or {}
    return Process("supervisor", int(told["pid"]), str(told["identity"])) if "pid" in told else None


def recorded(where: DataDir) -> list[tuple[int, Process]]:
    """(stop stage, process) of everything that state.json names as running."""
    told = read_json(where.state).get("processes") or {}
    return [
        (int(entry.get("stage", 1)), Process(name, int(entry["pid"]), str(entry["identity"])))
        for name, entry in told.items()
        if entry.get("pid")
    ]
