"""Servers the user runs himself: reachable at all, and as whom the services log in.

Must not change anything on them: `gpubus credentials export` prints what an operator installs there.
Read next: gpubus/up.py.
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from gpubus.datadir import DataDir
from gpubus.refusal import Refusal
from gpubus.stack.credentials import ADMIN, password_file

_PATIENCE = 3.0


def require_nats(url: str) -> None:
    """Refuse a NATS that nobody can connect to.

    Raises:
        Refusal: with the address.
    """
    for one in url.split(","):
        parts = urlsplit(one if "://" in one else f"nats://{one}")
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 4222), _PATIENCE):
                return
        except OSError:
            continue
    raise Refusal(f"No NATS server answers at {url}: start it or correct --nats.")


def redis_has_users(where: DataDir, url: str) -> bool:
    """Whether our ACL users are installed there; False: it takes the URL as given.

    Raises:
        Refusal: it does not answer, or takes neither.
    """
    import redis

    parts = urlsplit(url)
    if parts.username or parts.password:
        return False
    try:
        if redis.Redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE).ping():
            return False
    except redis.AuthenticationError:
        return _accepts_admin(where, url)
    except (redis.RedisError, ValueError) as error:
        raise Refusal(f"No Redis server answers at {parts.hostname}:{parts.port or 6379}: {error}.") from error
    return False


def _accepts_admin(where: DataDir, url: str) -> bool:
    import redis

    try:
        password = password_file(where, ADMIN).read_text().strip()
        redis.Redis.from_url(url, username=ADMIN, password=password, socket_timeout=_PATIENCE).ping()
    except (OSError, redis.RedisError) as error:
        raise Refusal(
            f"The Redis at {url} wants a user: put one into --redis redis://USER:PASSWORD@HOST, or install the users that "
            f"`gpubus credentials export --data-dir {where.root}` prints."
        ) from error
    return True
