"""The cache and the log it follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.resources.core import Namespace
from shared.store import keys
from shared.store.cache import Change, DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit, Delete, Put, StaleEpoch, TooOld
from tests.integration.store.bodies import body, fact, new
from tests.support.aof import cut_last_transactions
from tests.support.keyspace import client
from tests.support.wait import eventually


@asynccontextmanager
async def following(store: Store, *kinds: str) -> AsyncIterator[tuple[DocumentCache, list[Change]]]:
    cache, changes = DocumentCache(store, kinds), []
    cache.listen(changes.append)
    task = asyncio.ensure_future(cache.run())
    try:
        async with asyncio.timeout(10):
            await cache.synced()
        yield cache, changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def told(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.type, change.key[1]) for change in changes]


async def test_it_loads_then_follows_in_order(store: Store, server, connect) -> None:
    writer = await connect(server, instance="two")
    await writer.commit(Commit(puts=[new("a"), new("b")]))
    async with following(store, "Workload") as (cache, changes):
        assert told(changes) == [("ADDED", "a"), ("ADDED", "b")]
        assert all(change.synthetic for change in changes)

        done = await writer.commit(Commit(puts=[new("c")]))
        done = await writer.commit(Commit(puts=[Put("Workload", "default", "a", body("u", x=1), -2)]))
        done = await writer.commit(Commit(deletes=[Delete("Workload", "default", "b")]))

        assert await cache.reached(done.revisions[-1], 5)
        assert told(changes)[2:] == [("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert not any(change.synthetic for change in changes[2:])
        assert changes[3].old is not None
        assert changes[4].document.revision == done.revisions[-1]
        assert [document.name for document in cache.list("Workload")] == ["a", "c"]
        assert cache.get("Workload", "default", "b") is None
        assert cache.list("Workload", "other") == []


async def test_the_cache_equals_a_snapshot_after_many_writes(store: Store, server, connect) -> None:
    writer = await connect(server, instance="two")
    async with following(store, "Workload") as (cache, _):
        for number in range(300):
            name = f"w-{number % 17}"
            known = await writer.get("Workload", "default", name)
            if known is None:
                done = await writer.commit(Commit(puts=[new(name, number=number)]))
            elif number % 5 == 0:
                done = await writer.commit(Commit(deletes=[Delete("Workload", "default", name)]))
            else:
                done = await writer.commit(
                    Commit(puts=[Put("Workload", "default", name, body(known.uid, number=number), known.revision)])
                )

        assert await cache.reached(done.revisions[-1], 5)
        assert tuple(cache.list("Workload")) == (await writer.snapshot(["Workload"])).documents


async def test_other_kinds_move_the_revision_only(store: Store) -> None:
    async with following(store, "Workload") as (cache, changes):
        done = await store.commit(Commit(puts=[Put("Node", "", "n", {}, None)]))

        assert await cache.reached(done.revisions[0], 5)
        assert changes == []


async def test_a_lease_is_no_revision_to_wait_for(store: Store) -> None:
    await store.commit(Commit(puts=[Put("Node", "", "n", {}, None)]))
    async with following(store, "Node") as (cache, _):
        assert await store.lease("x").acquire()
        assert await cache.reached(await store.revision(), 5)


async def test_waiting_for_a_revision_that_does_not_come_ends(store: Store) -> None:
    async with following(store, "Workload") as (cache, _):
        assert not await cache.reached(cache.revision + 10**9, 0.05)


async def test_typed_views_are_built_once_a_revision(store: Store) -> None:
    await store.commit(Commit(puts=[Put("Namespace", "", "a", {"spec": {"unknown": 1}}, None)]))
    async with following(store, "Namespace") as (cache, _):
        first = cache.read("Namespace", "", "a", Namespace)
        assert first is cache.read("Namespace", "", "a", Namespace)
        assert first is not None
        assert [view.name for view in cache.read_all("Namespace", Namespace)] == ["a"]

        done = await store.commit(Commit(puts=[Put("Namespace", "", "a", {"metadata": {"uid": first.uid}}, -2)]))
        assert await cache.reached(done.revisions[0], 5)
        second = cache.read("Namespace", "", "a", Namespace)
        assert second is not None
        assert second.revision == done.revisions[0] > first.revision


async def test_a_hole_in_the_log_loads_anew_and_tells_the_difference(server, connect) -> None:
    store = await connect(server)
    writer = await connect(server, instance="two", log_max=5)
    await writer.commit(Commit(puts=[new("a"), new("gone")]))
    async with following(store, "Workload") as (cache, changes):
        changes.clear()
        server.pause()
        try:
            # All of these arrive while the reader cannot read; most are trimmed before it can.
            writing = asyncio.gather(
                writer.commit(Commit(puts=[new(f"n-{number}") for number in range(20)])),
                writer.commit(Commit(deletes=[Delete("Workload", "default", "gone")])),
            )
            await asyncio.sleep(0.05)
        finally:
            server.resume()
        await writing
        await writer.commit(Commit(puts=[Put("Workload", "default", "a", body("u", last=True), -2)]))

        await eventually(
            lambda: tuple(d.name for d in cache.list("Workload"))[-1:] == ("n-9",) and len(cache.list("Workload")) == 21
        )
        taken = await writer.snapshot(["Workload"])
        await eventually(lambda: tuple(cache.list("Workload")) == taken.documents)
        assert {(change.type, change.key[1]) for change in changes} >= {("DELETED", "gone"), ("ADDED", "n-0")}


async def test_a_new_epoch_with_lost_writes_loads_anew(own_server, connect) -> None:
    store = await connect(own_server)
    writer = await connect(own_server, instance="two")
    await writer.commit(Commit(puts=[new("kept")]))
    await writer.commit(Commit(puts=[new("lost")]))
    async with following(store, "Workload") as (cache, changes):
        before = cache.epoch
        assert [document.name for document in cache.list("Workload")] == ["kept", "lost"]
        own_server.kill()
        cut_last_transactions(own_server, 1)
        await asyncio.to_thread(own_server.start)
        with pytest.raises(StaleEpoch):
            await writer.commit(Commit(facts=[fact("probe")]))

        await eventually(lambda: cache.epoch != before)

        assert [document.name for document in cache.list("Workload")] == ["kept"]
        assert told(changes)[-1] == ("DELETED", "lost")
        done = await writer.commit(Commit(puts=[new("lost")]))
        assert await cache.reached(done.revisions[0], 5)


async def test_an_idle_cache_recovers_a_restarted_server_by_itself(own_server, connect) -> None:
    store = await connect(own_server)
    await store.commit(Commit(puts=[new("a")]))
    async with following(store, "Workload") as (cache, _):
        before = cache.epoch
        await asyncio.to_thread(own_server.restart, clean=False)

        await eventually(lambda: cache.epoch != before)

        assert store.epoch == cache.epoch


async def test_the_log_tells_kinds_apart_and_pages(store: Store) -> None:
    start = await store.commit(Commit(puts=[Put("Node", "", "n", {"metadata": {"labels": {"a": "1"}}}, None)]))
    for number in range(30):
        await store.commit(Commit(puts=[new(f"w-{number}"), Put("Node", "", "n", body("u", number=number), -2)]))
    await store.commit(Commit(deletes=[Delete("Node", "", "n")]))

    nodes = await store.log_since(start.revisions[0] - 1, ["Node"], 100)
    assert [entry.type for entry in nodes] == ["ADDED", *["MODIFIED"] * 30, "DELETED"]
    assert nodes[1].previous_labels == {"a": "1"}
    assert nodes[2].previous_labels == {}
    assert nodes[-1].document.body["spec"] == {"number": 29}
    assert nodes[-1].document.revision == nodes[-1].revision
    first = await store.log_since(start.revisions[0] - 1, ["Node"], 7)
    rest = await store.log_since(first[-1].revision, ["Node"], 100)
    assert first + rest == nodes


async def test_the_log_is_kept_to_a_count(server, connect) -> None:
    store = await connect(server, log_max=10)
    done = await store.commit(Commit(puts=[new("w")]))
    for number in range(30):
        await store.commit(Commit(puts=[Put("Workload", "default", "w", body("u", number=number), -2)]))

    with pytest.raises(TooOld):
        await store.log_since(done.revisions[0], ["Workload"])
    entries = await store.log_since(store.seen - 1, ["Workload"])
    assert [entry.document.body["spec"]["number"] for entry in entries] == [29]


async def test_an_idle_log_is_trimmed_by_time(server, connect) -> None:
    with client(server) as plain:
        plain.xadd(keys.LOG, {"kind": "Workload", "prev": "0"}, id="1000-0")
        store = await connect(server)
        lease = store.lease("any")
        assert await lease.acquire()
        await lease.renew()

        kinds = [fields[b"kind"] for _, fields in plain.xrange(keys.LOG)]

    assert kinds == [b""], "only the epoch's own entry is young enough"
    with pytest.raises(TooOld):
        await store.log_since(999, ["Workload"])
