"""A service writes what it owns and nothing else, says the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shared.errors import PermissionDenied, Unauthenticated
from shared.store import keys
from shared.store.acl import acl_file
from shared.store.client import Store
from shared.store.documents import Assign, Commit, Counter, Delete, InboxMark, Put
from shared.store.leases import Lease
from shared.store.outbox import Checkpoint, Outbox
from shared.subjects import SERVICES
from tests.integration.store.bodies import body, fact
from tests.support.servers import RedisServer

PASSWORDS = {service: f"{service}-secret" for service in SERVICES}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    path = tmp_path_factory.mktemp("acl") / "users.acl"
    path.write_text(acl_file(PASSWORDS, "admin-secret"))
    server = GuardedRedis("--aclfile", str(path))
    server.start()
    yield server
    server.close()


class GuardedRedis(RedisServer):
    """The default user is off, so readiness is any answer at all."""

    def answers(self) -> bool:
        return self.ask("PING").startswith((b"+PONG", b"-NOAUTH", b"-NOPERM"))


async def as_service(connect: Any, server: RedisServer, service: str) -> Store:
    store: Store = await connect(server, service=service, url=server.url_for(service, PASSWORDS[service]))
    return store


def node(name: str) -> Put:
    return Put("Node", "", name, body(), None)


async def test_an_owner_does_everything_a_controller_does(guarded: RedisServer, connect) -> None:
    for service, kind in (("discovery", "Node"), ("scheduler", "Workload"), ("deployer", "Pod"), ("gateway", "Secret")):
        store = await as_service(connect, guarded, service)
        lease: Lease = store.lease("relay")
        assert await lease.acquire()
        assert await lease.renew()
        done = await store.commit(
            Commit(
                puts=[Put(kind, "x", service, body(), None)],
                facts=[fact("f")],
                mark=InboxMark("h", service),
                lease=lease,
            )
        )
        outbox = Outbox(store)
        entry = (await outbox.read("0-0", 1, 0))[0]
        await outbox.checkpoint(entry.id, "c", 1, lease)
        await outbox.rewind(Checkpoint(), lease)
        assert await store.inbox_answer("h", service) == {}
        assert len((await store.snapshot([kind, "ModelArtifact"])).documents) == 1
        assert (await store.log_since(done.revisions[0] - 1, [kind]))[0].name == service
        await store.commit(Commit(deletes=[Delete(kind, "x", service)]))
        await lease.release()


async def test_nobody_writes_anothers_document(guarded: RedisServer, connect) -> None:
    discovery = await as_service(connect, guarded, "discovery")
    await discovery.commit(Commit(puts=[node("mine")]))

    for service in sorted(set(SERVICES) - {"discovery"}):
        store = await as_service(connect, guarded, service)
        for commit in (Commit(puts=[node(service)]), Commit(deletes=[Delete("Node", "", "mine")])):
            with pytest.raises(PermissionDenied):
                await store.commit(commit)
        assert await store.get("Node", "", "mine") is not None
        assert await store.get("Node", "", service) is None


async def test_the_scheduler_alone_writes_ledgers_and_shares_devices(guarded: RedisServer, connect) -> None:
    scheduler, deployer = (
        await as_service(connect, guarded, "scheduler"),
        await as_service(connect, guarded, "deployer"),
    )
    counted = Commit(counters=[Counter(keys.ledger("n1"), "cpu", 1)])

    await scheduler.commit(counted)
    await scheduler.commit(Commit(puts=[Put("Devices", "", "n1", body(), None)]))
    with pytest.raises(PermissionDenied):
        await deployer.commit(counted)
    assert await deployer.read_hash(keys.ledger("n1")) == {"cpu": "1"}


async def test_nobody_reaches_into_anothers_outbox_lease_or_table(guarded: RedisServer, connect) -> None:
    scheduler, deployer = (
        await as_service(connect, guarded, "scheduler"),
        await as_service(connect, guarded, "deployer"),
    )
    lease = deployer.lease("x")
    assert await lease.acquire()
    stranger = Lease(deployer, "y")
    stranger.key = scheduler.lease("y").key

    with pytest.raises(PermissionDenied):
        await stranger.acquire()
    with pytest.raises(PermissionDenied):
        await deployer.connection.call("XADD", keys.outbox("scheduler"), "*", "a", "b")
    with pytest.raises(PermissionDenied):
        await deployer.commit(Commit(assigns=[Assign(keys.table("scheduler", "t"), "f", "v")], lease=lease))
    await deployer.commit(Commit(assigns=[Assign(keys.table("deployer", "t"), "f", "v")], lease=lease))


@pytest.mark.parametrize(
    "command",
    [("FLUSHALL",), ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("KEYS", "*"), ("SHUTDOWN",), ("DEBUG", "SLEEP", "0")],
)
async def test_no_service_runs_the_server(guarded: RedisServer, connect, command: tuple[str, ...]) -> None:
    store = await as_service(connect, guarded, "gateway")

    with pytest.raises(PermissionDenied):
        await store.connection.call(*command)


async def test_strangers_and_wrong_passwords_stay_out(guarded: RedisServer, connect) -> None:
    with pytest.raises(Unauthenticated):
        await connect(guarded, url=guarded.url_for("scheduler", "wrong"))
    with pytest.raises((Unauthenticated, PermissionDenied)):
        await connect(guarded)


async def test_what_was_committed_is_there_after_a_restart(guarded: RedisServer, connect) -> None:
    store = await as_service(connect, guarded, "discovery")
    await store.commit(Commit(puts=[node("kept")], facts=[fact("f")]))

    for clean in (True, False):
        guarded.restart(clean=clean)
        again = await as_service(connect, guarded, "discovery")
        assert await again.get("Node", "", "kept") is not None


async def test_nobody_is_the_default_user(guarded: RedisServer) -> None:
    assert guarded.ask("PING").startswith(b"-NOAUTH")
    assert guarded.ask("AUTH", "").startswith(b"-WRONGPASS")
    assert guarded.ask("AUTH", "default", "").startswith(b"-WRONGPASS")
