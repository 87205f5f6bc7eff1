"""A server that is another one, or lost writes, starts a new epoch: no revision, fact or fencing number comes twice."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import FailedPrecondition
from shared.store import keys, log
from shared.store.client import EPOCH_JUMP_US, Store
from shared.store.documents import Commit, Counter, LeaseLost, StaleEpoch, TooOld
from shared.store.outbox import Outbox
from tests.integration.store.bodies import fact, new
from tests.support.aof import cut_last_transactions
from tests.support.servers import RedisServer


async def rejoin(store: Store) -> None:
    """What any service does when it meets the new server."""
    with pytest.raises(StaleEpoch):
        await store.commit(Commit(facts=[fact("probe")]))


async def test_a_killed_server_keeps_every_commit_and_starts_an_epoch(own_server: RedisServer, connect) -> None:
    store = await connect(own_server)
    before = store.epoch
    done = await store.commit(Commit(puts=[new("a")], counters=[Counter(keys.ledger("n"), "cpu", 1)]))

    own_server.restart(clean=False)
    await rejoin(store)

    assert store.epoch > before
    found = await store.get("Workload", "default", "a")
    assert found is not None
    assert found.revision == done.revisions[0]
    later = await store.commit(Commit(puts=[new("b")]))
    assert later.revisions[0] >= done.revisions[0] + EPOCH_JUMP_US


async def test_lost_writes_never_bring_a_number_twice(own_server: RedisServer, connect) -> None:
    store = await connect(own_server)
    await store.commit(Commit(puts=[new("kept")], facts=[fact("kept")]))
    lease = store.lease("cycle")
    assert await lease.acquire()
    revisions, facts = [lease.fencing], set()
    for number in range(5):
        done = await store.commit(Commit(puts=[new(f"lost-{number}")], facts=[fact(f"lost-{number}")]))
        revisions += done.revisions
    facts = {entry.message_id for entry in await Outbox(store).read("0-0", 100, 0)}

    own_server.kill()
    cut_last_transactions(own_server, 5)
    own_server.start()
    await rejoin(store)

    names = [document.name for document in (await store.snapshot(["Workload"])).documents]
    assert names == ["kept"]
    new_lease = store.lease("cycle")
    assert await new_lease.acquire()
    again = [new_lease.fencing]
    for number in range(5):
        done = await store.commit(Commit(puts=[new(f"lost-{number}")], facts=[fact(f"lost-{number}")]))
        again += done.revisions
    assert min(again) > max(revisions)
    new_facts = {entry.message_id for entry in await Outbox(store).read("0-0", 100, 0)} - facts
    assert len(new_facts) == 5


async def test_a_process_that_saw_nothing_recovers_past_the_clock(own_server: RedisServer, connect) -> None:
    store = await connect(own_server)
    done = await store.commit(Commit(puts=[new("a")]))
    await store.commit(Commit(puts=[new("b")]))
    own_server.kill()
    cut_last_transactions(own_server, 1)
    own_server.start()

    stranger = await connect(own_server, instance="two")
    later = await stranger.commit(Commit(puts=[new("b")]))

    assert later.revisions[0] > store.seen
    assert later.revisions[0] > done.revisions[0] + EPOCH_JUMP_US


async def test_many_processes_meet_a_new_server_and_agree(own_server: RedisServer, connect) -> None:
    stores = [await connect(own_server, instance=str(number)) for number in range(6)]
    own_server.restart(clean=False)

    await asyncio.gather(*(rejoin(store) for store in stores))

    assert len({store.epoch for store in stores}) == 1
    with_epochs = await stores[0].connection.read("XRANGE", keys.LOG, "-", "+")
    assert [log.type_of(item) for item in with_epochs].count("EPOCH") == 2


async def test_flushed_scripts_alone_start_no_epoch(server: RedisServer, connect) -> None:
    store = await connect(server)
    before = store.epoch
    server.ask("SCRIPT", "FLUSH")

    await store.commit(Commit(puts=[new("a")]))

    assert store.epoch == before


async def test_a_restored_older_state_starts_an_epoch_although_the_process_is_the_same(
    server: RedisServer, connect
) -> None:
    store = await connect(server)
    before = store.epoch
    await store.commit(Commit(puts=[new("a")]))
    server.ask("FLUSHALL")

    await rejoin(store)

    assert store.epoch > before
    assert await store.get("Workload", "default", "a") is None


async def test_leases_of_an_older_epoch_are_void(own_server: RedisServer, connect) -> None:
    store = await connect(own_server)
    other = await connect(own_server, instance="two")
    lease = store.lease("cycle")
    assert await lease.acquire()
    own_server.restart(clean=False)
    await rejoin(other)

    assert await other.lease("cycle").acquire()

    assert not await lease.renew()
    with pytest.raises((LeaseLost, StaleEpoch)):
        await store.commit(Commit(puts=[new("a")], lease=lease))


async def test_a_watch_resumes_after_a_clean_restart_and_is_too_old_inside_the_gap(
    own_server: RedisServer, connect
) -> None:
    store = await connect(own_server)
    kept = await store.commit(Commit(puts=[new("kept")]))
    lost = await store.commit(Commit(puts=[new("lost")]))
    own_server.kill()
    cut_last_transactions(own_server, 1)
    own_server.start()
    await rejoin(store)
    after = await store.commit(Commit(puts=[new("after")]))

    with pytest.raises(TooOld):
        await store.log_since(lost.revisions[0], ["Workload"])
    entries = await store.log_since(kept.revisions[0], ["Workload"])
    assert [(entry.name, entry.revision) for entry in entries] == [("after", after.revisions[0])]


async def test_a_revision_from_the_future_is_too_old(store: Store) -> None:
    with pytest.raises(TooOld):
        await store.log_since(store.seen + 10**9, ["Workload"])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--appendonly", "no"), "appendonly"),
        (("--maxmemory-policy", "allkeys-lru"), "noeviction"),
        (("--replicaof", "127.0.0.1 1"), "primary"),
    ],
)
async def test_an_unfit_server_is_refused_with_the_remedy(connect, options, names: str) -> None:
    server = RedisServer(*options)
    server.start()
    try:
        with pytest.raises(FailedPrecondition, match=names):
            await connect(server)
        if "replicaof" not in options[0]:
            store = await connect(server, allow_unsafe_redis=True)
            await store.commit(Commit(puts=[new("a")]))
    finally:
        server.close()
