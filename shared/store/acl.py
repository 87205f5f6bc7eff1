"""Redis ACL users, one per service, from the ownership table: everyone reads, only the owner writes.

Pure. The scripts ask the server for each key before they write, so a commit that reaches too far is refused whole.
Read next: shared/resources/kinds.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from shared.resources.kinds import owned_by
from shared.store import keys
from shared.subjects import SERVICES

ADMIN = "admin"
"""May do everything; the supervisor and the operator's tools."""

_EXTRA_KINDS: Mapping[str, tuple[str, ...]] = {"scheduler": ("Devices",)}
"""Kinds of which a service writes a part that is not the owner's: the scheduler writes Devices.status (allocation)."""
_EXTRA_KEYS: Mapping[str, tuple[str, ...]] = {"scheduler": (keys.ledger("*"),), "modelstore": (keys.manifest("*"),)}

_COMMANDS = (
    "ping", "hello", "select", "client|setname", "info", "time", "wait", "type", "exists", "ttl",
    "eval", "eval_ro", "evalsha", "evalsha_ro", "script|load", "multi", "exec",
    "hget", "hmget", "hgetall", "hset", "hdel", "del", "expire",
    "zadd", "zrem", "zrange", "zrevrange", "zremrangebyscore",
    "xadd", "xtrim", "xrange", "xread", "xlen", "xinfo|stream",
)  # fmt: skip
"""What shared/store sends, and nothing that could change the server."""


_DEFAULT = "user default off resetpass ~* &* +@all"
"""Nobody can be the default user (off, no password), but Redis itself loads its append-only file as that one: without
these rights it leaves out every transaction in the file, which is all that was ever committed, and starts empty."""


def acl_file(passwords: Mapping[str, str], admin_password: str) -> str:
    """The content of Redis' aclfile: one user per service, the admin, and a default user nobody can be. Only digests."""
    users = [user_line(service, passwords[service]) for service in SERVICES if service in passwords]
    return "\n".join((_DEFAULT, _admin_line(admin_password), *users, ""))


def user_line(service: str, password: str) -> str:
    """One service's user."""
    rights = " ".join((f"%R~{keys.PREFIX}*", *(f"~{pattern}" for pattern in writable(service))))
    commands = " ".join(f"+{command}" for command in _COMMANDS)
    return f"user {service} on #{_digest(password)} resetchannels {rights} -@all {commands}"


def writable(service: str) -> Iterator[str]:
    """Patterns of the keys that one service may write."""
    yield keys.META
    yield keys.LOG
    yield keys.outbox(service)
    yield keys.outbox_account(service)
    yield keys.outbox_checkpoints(service)
    yield keys.inbox_prefix(service, "*") + "*"
    yield keys.recent(service, "*")
    yield keys.lease(service, "*")
    yield keys.table(service, "*")
    for kind in (*(owned.kind for owned in owned_by(service)), *_EXTRA_KINDS.get(service, ())):
        yield keys.doc(kind, "*", "*")
        yield keys.index(kind)
    yield from _EXTRA_KEYS.get(service, ())


def _admin_line(password: str) -> str:
    return f"user {ADMIN} on #{_digest(password)} ~* &* +@all"


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()
