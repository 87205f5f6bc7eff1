"""A replicated Redis confirms a commit before it is answered."""

from __future__ import annotations

import pytest

from shared.errors import DeadlineExceeded, FailedPrecondition
from shared.store.documents import Commit
from tests.integration.store.bodies import new
from tests.support.keyspace import dump
from tests.support.servers import RedisServer
from tests.support.wait import eventually


async def test_an_answered_commit_is_on_the_replica(own_server: RedisServer, connect) -> None:
    replica = RedisServer("--replicaof", f"127.0.0.1 {own_server.port}")
    replica.start()
    try:
        await eventually(lambda: b"master_link_status:up" in replica.ask("INFO", "replication"))
        store = await connect(own_server, wait_replicas=1)

        for number in range(20):
            await store.commit(Commit(puts=[new(f"w-{number}")]))
            assert any(key.endswith(f"/w-{number}".encode()) for key in dump(replica))

        with pytest.raises(FailedPrecondition, match="primary"):
            await connect(replica)
        replica.kill()
        with pytest.raises(DeadlineExceeded, match="replicas"):
            await store.commit(Commit(puts=[new("alone")]))
    finally:
        replica.close()
