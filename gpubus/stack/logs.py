"""Log files of supervised processes: where they append, how they are kept from growing for ever, how a tail is read.

Standard library only. Read next: gpubus/supervisor.py.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpubus.datadir import DataDir

CAP_BYTES = 16 * 1024 * 1024


def rotate(where: DataDir, cap: int = CAP_BYTES) -> list[str]:
    """Copy a log over its cap to `NAME.log.1` and empty it; the writers append, so they go on at the new start.

    Lines written between the copy and the cut are lost: the price of not asking a server to reopen its file.
    """
    cut = []
    for path in where.logs.glob("*.log"):
        if path.stat().st_size > cap:
            shutil.copyfile(path, path.with_suffix(".log.1"))
            os.truncate(path, 0)
            cut.append(path.name)
    return cut


def tail(path: Path, lines: int = 10, limit: int = 64 * 1024) -> list[str]:
    """The last lines of a log; none when there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]
