"""A commit whose answer is lost is made once, whoever asks again and however late."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import DeadlineExceeded, Raced, Unavailable
from shared.store import keys
from shared.store.documents import Commit, Counter, StaleEpoch
from shared.store.outbox import Outbox
from shared.store.scripts import GATED
from tests.integration.store.bodies import fact, new
from tests.support.proxy import proxied
from tests.support.wait import eventually

NODE = keys.ledger("n1")
COMMIT = GATED["commit"].sha.encode()


async def test_a_retried_commit_returns_its_first_result(server, connect) -> None:
    async with proxied(server.port) as proxy:
        store = await connect(server, url=f"redis://127.0.0.1:{proxy.port}/0")
        proxy.lose_answer_to(COMMIT)

        done = await store.commit(Commit(puts=[new("a")], counters=[Counter(NODE, "cpu", 1)], facts=[fact("a")]))

        assert proxy.lost == 1
        found = await store.get("Workload", "default", "a")
        assert found is not None
        assert done.revisions == (found.revision,)
        assert await store.read_hash(NODE) == {"cpu": "1"}
        assert len(await Outbox(store).read("0-0", 10, 0)) == 1
        await store.close()


async def test_many_commits_under_loss_count_exactly_once(server, connect) -> None:
    async with proxied(server.port) as proxy:
        store = await connect(server, url=f"redis://127.0.0.1:{proxy.port}/0")

        async def one() -> None:
            await store.commit(Commit(counters=[Counter(NODE, "cpu", 1)]))

        for _ in range(10):
            proxy.lose_answer_to(COMMIT, times=2)
            await asyncio.gather(*(one() for _ in range(10)))

        assert await store.read_hash(NODE) == {"cpu": "100"}
        await store.close()


async def test_answers_lost_for_ever_leave_the_outcome_unknown(server, connect) -> None:
    async with proxied(server.port) as proxy:
        store = await connect(server, url=f"redis://127.0.0.1:{proxy.port}/0", commit_seconds=0.0)
        proxy.lose_answer_to(COMMIT)

        with pytest.raises(DeadlineExceeded):
            await store.commit(Commit(counters=[Counter(NODE, "cpu", 1)]))
        await store.commit(Commit(counters=[Counter(NODE, "cpu", 1)]))

        assert await store.read_hash(NODE) == {"cpu": "2"}
        await store.close()


async def test_reads_are_tried_again(server, connect) -> None:
    async with proxied(server.port) as proxy:
        store = await connect(server, url=f"redis://127.0.0.1:{proxy.port}/0")
        await store.commit(Commit(puts=[new("a")]))
        proxy.lose_answer_to(b"HMGET")
        assert await store.get("Workload", "default", "a") is not None
        proxy.cut()
        assert len((await store.snapshot(["Workload"])).documents) == 1
        await store.close()


async def test_a_commit_waits_for_a_server_that_restarts(own_server, connect) -> None:
    store = await connect(own_server)
    await store.commit(Commit(puts=[new("a")]))
    own_server.kill()

    waiting = asyncio.ensure_future(store.commit(Commit(puts=[new("b")])))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(own_server.start)

    with pytest.raises(Raced) as stale:
        await waiting
    assert isinstance(stale.value, StaleEpoch)
    await store.commit(Commit(puts=[new("b")]))


async def test_without_a_server_commits_and_reads_say_unavailable(own_server, connect) -> None:
    store = await connect(own_server, commit_seconds=0.1)
    own_server.kill()

    # The first attempt went into a connection that looked alive.
    with pytest.raises(DeadlineExceeded):
        await store.commit(Commit(puts=[new("a")]))
    with pytest.raises(Unavailable):
        await store.commit(Commit(puts=[new("a")]))
    with pytest.raises(Unavailable):
        await store.get("Workload", "default", "a")


async def test_a_cancelled_commit_does_not_disturb_the_next(server, connect) -> None:
    store = await connect(server)
    server.pause()
    try:
        waiting = asyncio.ensure_future(store.commit(Commit(counters=[Counter(NODE, "cpu", 1)])))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    finally:
        server.resume()

    for _ in range(5):
        await store.commit(Commit(counters=[Counter(NODE, "other", 1)]))

    assert (await store.read_hash(NODE))["other"] == "5"
    await eventually(server.answers)


async def test_a_server_killed_between_commit_and_answer_makes_it_once(own_server, connect) -> None:
    async with proxied(own_server.port) as proxy:
        store = await connect(own_server, url=f"redis://127.0.0.1:{proxy.port}/0")
        before = store.epoch

        def crash() -> None:
            own_server.kill()
            own_server.start()

        proxy.on_loss = crash
        proxy.lose_answer_to(COMMIT)

        done = await store.commit(Commit(puts=[new("a")], counters=[Counter(NODE, "cpu", 1)]))

        assert store.epoch > before
        found = await store.get("Workload", "default", "a")
        assert found is not None
        assert done.revisions == (found.revision,)
        assert await store.read_hash(NODE) == {"cpu": "1"}
        await store.close()
