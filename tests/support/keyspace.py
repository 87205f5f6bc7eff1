"""Everything that a Redis holds, for tests that demand that nothing changed.

Read next: tests/integration/store/test_refusals.py.
"""

from __future__ import annotations

import redis

from tests.support.servers import RedisServer


def client(server: RedisServer) -> redis.Redis:
    """A plain client with all rights; close it."""
    return redis.Redis(port=server.port)


def dump(server: RedisServer) -> dict[bytes, bytes]:
    """Each key with its serialised value."""
    with client(server) as plain:
        return {key: plain.dump(key) for key in plain.scan_iter(count=1000)}
