"""Cutting a stopped Redis' append-only file back, as a host crash or a lost second does.

Read next: tests/integration/store/test_epoch.py.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.servers import RedisServer

_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


def cut_last_transactions(server: RedisServer, count: int) -> None:
    """Drop everything after the last transaction but `count`; single commands after it go as well."""
    cut_file(server.aof_increment, count)


def cut_file(path: Path, count: int) -> None:
    """The same for the file of a server that somebody else runs, and that is down."""
    data = path.read_bytes()
    end = len(data)
    for _ in range(count):
        found = data.rfind(_EXEC, 0, end)
        assert found >= 0, "not that many transactions in the file"
        end = found
    kept = data.rfind(_EXEC, 0, end)
    path.write_bytes(data[: kept + len(_EXEC)] if kept >= 0 else b"")
