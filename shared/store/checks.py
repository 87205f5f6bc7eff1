"""What a Redis must be before anything is kept in it; start-up refuses the rest.

Pure. Read next: shared/store/client.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shared.errors import FailedPrecondition

OLDEST = (7, 0)
"""XTRIM MINID, acl_check_cmd in scripts, ACL key permissions: all since 7.0."""
OVERRIDE = "allow_unsafe_redis"


def check_server(info: Mapping[str, Any], *, allow_unsafe: bool) -> None:
    """Judge INFO's answer. The version is never overridden; the rest may be, for servers that hide it.

    Raises:
        FailedPrecondition: names what to change.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", str(info.get("redis_version", "0")))[:2])
    if version < OLDEST:
        shown = info.get("redis_version", "unknown")
        raise FailedPrecondition(f"Redis {shown} is too old: use 7.0 or newer", (), {"check": "version"})
    if allow_unsafe:
        return
    for check, right, remedy in _conditions(info):
        if not right:
            raise FailedPrecondition(
                f"{remedy} (setting {OVERRIDE} starts anyway and may lose data)", (), {"check": check}
            )


def _conditions(info: Mapping[str, Any]) -> tuple[tuple[str, bool, str], ...]:
    policy, role = info.get("maxmemory_policy", "unknown"), info.get("role", "unknown")
    return (
        ("aof", str(info.get("aof_enabled")) == "1", "Redis keeps no append-only file: start it with --appendonly yes"),
        (
            "policy",
            policy == "noeviction",
            f"Redis may evict keys ({policy}): start it with --maxmemory-policy noeviction",
        ),
        ("role", role == "master", f"this Redis is a {role}: point redis_url at the primary"),
    )
