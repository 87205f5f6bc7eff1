"""Processes by pid: which one it is, whether it lives, what it holds, how it is stopped.

A pid alone is never trusted: the kernel reuses it, so its start time goes with it. Must not know our processes.
Read next: gpubus/supervisor.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)  # noqa: TID251 - the command and the supervisor have no event loop to block


def identity(pid: int) -> str:
    """Boot and start time of a living process; empty when it is gone or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return "" if _PROC.joinpath("self").exists() else _identity_by_ps(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else f"{boot_id()}.{fields[19]}"


def _identity_by_ps(pid: int) -> str:
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip()


def boot_id() -> str:
    """The kernel's id of this boot: start times count from it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def memory_kib(pid: int) -> int:
    """Proportional set size, 0 when unknown."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def command_line(pid: int) -> str:
    """What a process was started as, for a person to recognise."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def holders(*paths: Path) -> list[int]:
    """The processes (of this user) that have one of the files open: who still belongs to what the files stand for."""
    wanted = set()
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        wanted.add((found.st_dev, found.st_ino))
    return [pid for pid in _pids() if pid != os.getpid() and _holds(pid, wanted)] if wanted else []


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()] if _PROC.exists() else []


def _holds(pid: int, wanted: set[tuple[int, int]]) -> bool:
    try:
        with os.scandir(_PROC / str(pid) / "fd") as open_files:
            return any(_file(entry) in wanted for entry in open_files)
    except OSError:
        return False


def _file(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        found = entry.stat()
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)


@dataclass(frozen=True, slots=True)
class Process:
    """One process that was seen alive."""

    name: str
    pid: int
    identity: str

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return bool(self.identity) and identity(self.pid) == self.identity

    def send(self, number: signal.Signals) -> None:
        """Signal it if it is still the same one."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass
