"""Numbers of reports that rise across restarts of the agent, so that a late one of an earlier start is never believed.

Standard library only. Read next: pods.py.
"""

from __future__ import annotations

import os
from pathlib import Path

_REPORTS = 1 << 20
"""Numbers kept for one start; more of them run into the next start's, which still is higher."""


class Sequence:
    """Counts up from the start's own base: wall seconds, but never below what an earlier start used."""

    def __init__(self, path: Path | None, unix: int) -> None:
        """`path` remembers the base; None keeps it in memory only (simulated nodes)."""
        base = max(unix, _read(path) + 1) if path is not None else unix
        if path is not None:
            _write(path, base)
        self._value = base * _REPORTS

    def next(self) -> int:
        """The next number."""
        self._value += 1
        return self._value


def _read(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _write(path: Path, base: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(str(base))
    temporary.replace(path)
