"""Generated secrets: NKey seeds, Redis passwords, the admin's API key. Made once, 0600, kept for the data dir's life.

Owns their files under `run/`. Must not print or log them. Read next: gpubus/stack/nats.py, gpubus/stack/redis.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gpubus.datadir import DataDir, write
from gpubus.refusal import Refusal
from shared.subjects import SERVICES

ADMIN = "admin"
FLEET = "fleet"
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_STACK_USERS = (*SERVICES, ADMIN)


def node_user(node: str) -> str:
    """The NATS user of one node's agents.

    Raises:
        Refusal: not a node name.
    """
    if node == FLEET or not _NODE_NAME.fullmatch(node):
        raise Refusal(
            f"{node!r} cannot name a node: use lower-case letters, digits, '-' and '.', as a host name has them."
        )
    return f"node-{node}"


def seed_file(where: DataDir, user: str) -> Path:
    """Where a NATS user's NKey seed lies."""
    return where.run / "nats" / f"{user}.seed"


def password_file(where: DataDir, user: str) -> Path:
    """Where a Redis user's password lies."""
    return where.run / "redis" / f"{user}.password"


def ensure(where: DataDir, users: tuple[str, ...]) -> None:
    """Make what is missing: the stack's own users, `users` besides, Redis passwords, the admin's key."""
    for user in dict.fromkeys((*_STACK_USERS, *users)):
        _once(seed_file(where, user), new_seed)
    for user in (*SERVICES, ADMIN):
        _once(password_file(where, user), lambda: os.urandom(24).hex())
    _once(where.admin_token, lambda: f"gpubus_{os.urandom(16).hex()}")


def _once(path: Path, make: object) -> None:
    if not (path.exists() and path.stat().st_size) and callable(make):
        write(path, make(), durable=True)


def nats_users(where: DataDir) -> dict[str, str]:
    """Every NATS user that has a seed, with its public key."""
    return {path.stem: public_key(path.read_text().strip()) for path in sorted((where.run / "nats").glob("*.seed"))}


def redis_passwords(where: DataDir) -> dict[str, str]:
    """Every Redis user's password."""
    folder = where.run / "redis"
    return {path.stem: path.read_text().strip() for path in sorted(folder.glob("*.password"))}


def new_seed() -> str:
    """A fresh NKey seed of a user."""
    import nkeys

    return bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)).decode()


def public_key(seed: str) -> str:
    """The public half, which the server knows."""
    import nkeys

    return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()
