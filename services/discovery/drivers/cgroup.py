"""What the control groups above this process allow: cores and bytes, the least of all levels.

Versions 2 and 1. An unreadable file allows everything. Read next: host.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60
"""Version 1 writes a huge number for "no limit"."""


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """The limits of this process."""
    cpus: list[int] = []
    memories: list[int] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            _version_2(root / "sys/fs/cgroup", path, cpus, memories)
        elif "cpu" in controllers.split(","):
            _version_1_cpu(root / "sys/fs/cgroup/cpu", path, cpus)
        elif "memory" in controllers.split(","):
            _version_1_memory(root / "sys/fs/cgroup/memory", path, memories)
    return Limits(min(cpus, default=None), min(memories, default=None))


def _version_2(mount: Path, path: str, cpus: list[int], memories: list[int]) -> None:
    for level in _levels(mount, path):
        quota, _, period = _read(level / "cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            cpus.append(max(1, int(quota) * 1000 // int(period)))
        memories.extend(_bytes(level / "memory.max"))


def _version_1_cpu(mount: Path, path: str, cpus: list[int]) -> None:
    for level in _levels(mount, path):
        quota, period = _read(level / "cpu.cfs_quota_us").strip(), _read(level / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            cpus.append(max(1, int(quota) * 1000 // int(period)))


def _version_1_memory(mount: Path, path: str, memories: list[int]) -> None:
    for level in _levels(mount, path):
        memories.extend(_bytes(level / "memory.limit_in_bytes"))


def _levels(mount: Path, path: str) -> list[Path]:
    parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _bytes(path: Path) -> list[int]:
    text = _read(path).strip()
    return [int(text)] if text.isdecimal() and int(text) < _UNLIMITED else []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
