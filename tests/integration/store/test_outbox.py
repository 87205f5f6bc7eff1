"""The outbox as the relay uses it."""

from __future__ import annotations

import asyncio

import pytest

from shared.store import keys
from shared.store.client import Store
from shared.store.documents import Commit, LeaseLost
from shared.store.leases import Lease
from shared.store.outbox import Checkpoint, Outbox
from tests.integration.store.bodies import fact
from tests.support.keyspace import client
from tests.support.wait import eventually


async def leased(store: Store) -> Lease:
    lease = store.lease("relay")
    assert await lease.acquire()
    return lease


async def filled(store: Store, count: int) -> tuple[Outbox, list[str]]:
    for number in range(count):
        await store.commit(Commit(facts=[fact(f"f-{number}")]))
    outbox = Outbox(store)
    return outbox, [entry.id for entry in await outbox.read("0-0", 100, 0)]


async def test_entries_come_in_order_and_a_reader_wakes_at_once(store: Store) -> None:
    outbox, ids = await filled(store, 3)
    assert ids == sorted(ids)
    assert [entry.id for entry in await outbox.read(ids[0], 1, 0)] == [ids[1]]

    reading = asyncio.ensure_future(outbox.read(ids[-1], 10, 5000))
    await asyncio.sleep(0.05)
    await store.commit(Commit(facts=[fact("next"), fact("more")]))

    assert [entry.about for entry in await reading] == [
        "object-scheduler/default/workload-next",
        "object-scheduler/default/workload-more",
    ]
    assert await outbox.read((await outbox.read(ids[-1], 10, 0))[-1].id, 10, 1) == []


async def test_a_checkpoint_frees_what_is_acknowledged(store: Store) -> None:
    outbox, ids = await filled(store, 4)
    lease = await leased(store)
    full = await outbox.waiting()

    left = await outbox.checkpoint(ids[2], "created-1", 3, lease)

    assert full.entries == 4
    assert left.entries == await outbox.depth() == 1
    assert left.bytes < full.bytes / 3
    assert await outbox.position() == Checkpoint(ids[2], "created-1", 3)
    done = await outbox.checkpoint(ids[3], "created-1", 4, lease)
    assert (done.entries, done.bytes) == (0, 0)


async def test_an_acknowledged_outbox_takes_new_commits(server, connect) -> None:
    store = await connect(server, outbox_limit=3000)
    outbox, ids = await filled(store, 4)
    lease = await leased(store)

    for number in range(20):
        await outbox.checkpoint(ids[-1], "c", number, lease)
        await store.commit(Commit(facts=[fact(f"g-{number}")]))
        ids += [entry.id for entry in await outbox.read(ids[-1], 10, 0)]

    assert len(ids) == 24


async def test_a_relay_without_its_lease_moves_nothing(store: Store, server, connect) -> None:
    outbox, ids = await filled(store, 1)
    lease = await leased(store)
    fencing = lease.fencing
    await lease.release()
    lease.fencing = fencing

    with pytest.raises(LeaseLost):
        await outbox.checkpoint(ids[0], "c", 1, lease)

    assert await outbox.position() == Checkpoint()


async def test_a_younger_stream_gets_everything_that_is_kept_again(store: Store) -> None:
    outbox, ids = await filled(store, 3)
    lease = await leased(store)
    await outbox.checkpoint(ids[-1], "created-1", 3, lease)

    assert await outbox.survivor("created-1", 3) == Checkpoint(ids[-1], "created-1", 3)
    assert await outbox.survivor("created-2", 0) is None
    left = await outbox.rewind(Checkpoint(), lease)

    assert left.entries == 3
    assert await outbox.position() == Checkpoint()
    assert len(await outbox.read((await outbox.position()).entry_id, 10, 0)) == 3


async def test_a_shorter_stream_is_filled_from_the_newest_checkpoint_it_still_holds(store: Store, server) -> None:
    outbox, ids = await filled(store, 5)
    lease = await leased(store)
    with client(server) as plain:
        for position, sequence in ((0, 1), (2, 3), (4, 5)):
            await outbox.checkpoint(ids[position], "created-1", sequence, lease)
            # As if the checkpoints lay further apart than a second.
            mark = f"{ids[position]} created-1 {sequence} {await store.time_us() - 2_000_000}"
            plain.zremrangebyscore(keys.outbox_checkpoints("scheduler"), ids[position].split("-")[0], "+inf")
            plain.zadd(keys.outbox_checkpoints("scheduler"), {mark: ids[position].split("-")[0]})

        survivor = await outbox.survivor("created-1", 4)
        assert survivor == Checkpoint(ids[2], "created-1", 3)
        left = await outbox.rewind(survivor, lease)

        assert left.entries == 2
        assert plain.zcard(keys.outbox_checkpoints("scheduler")) == 2
    assert [entry.id for entry in await outbox.read((await outbox.position()).entry_id, 10, 0)] == ids[3:]


async def test_entries_acknowledged_long_ago_are_trimmed_and_the_account_stays_right(store: Store, server) -> None:
    outbox, ids = await filled(store, 6)
    lease = await leased(store)
    with client(server) as plain:
        await outbox.checkpoint(ids[2], "c", 3, lease)
        marks = keys.outbox_checkpoints("scheduler")
        plain.delete(marks)
        plain.zadd(marks, {f"{ids[2]} c 3 1000": ids[2].split("-")[0]})

        await outbox.checkpoint(ids[4], "c", 5, lease)

        assert [entry.id for entry in await outbox.read("0-0", 10, 0)] == ids[2:]
        assert plain.zcard(marks) == 2
    assert await outbox.depth() == 1
    assert (await outbox.rewind(Checkpoint(), lease)).entries == 4


async def test_checkpoints_kept_are_a_second_apart(store: Store, server) -> None:
    outbox, ids = await filled(store, 20)
    lease = await leased(store)
    for number, entry in enumerate(ids):
        await outbox.checkpoint(entry, "c", number, lease)

    with client(server) as plain:
        assert plain.zcard(keys.outbox_checkpoints("scheduler")) <= 2
    assert await outbox.depth() == 0


async def test_the_oldest_waiting_entry_ages(store: Store) -> None:
    outbox, ids = await filled(store, 2)
    lease = await leased(store)

    async def aged() -> bool:
        return await outbox.oldest_seconds() > 0.01

    await eventually(aged)
    await outbox.checkpoint(ids[-1], "c", 2, lease)
    assert await outbox.oldest_seconds() == 0.0
