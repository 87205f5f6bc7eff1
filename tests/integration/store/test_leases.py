"""One holder at a time; whoever learns late that it is not, cannot write."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from shared.clock import SystemClock
from shared.store.client import Store
from shared.store.documents import Commit, LeaseLost
from shared.store.leases import Lease, run_leased
from tests.integration.store.bodies import new
from tests.support.wait import eventually

ROOT = Path(__file__).parents[3]


async def test_a_held_lease_is_refused_and_a_released_one_free_at_once(store: Store, server, connect) -> None:
    other = await connect(server, instance="two")
    mine, theirs = store.lease("cycle"), other.lease("cycle")

    assert await mine.acquire()
    assert mine.held
    assert not await theirs.acquire()
    await mine.release()
    assert not mine.held
    assert await theirs.acquire()
    assert theirs.fencing > mine.fencing
    assert not await mine.renew()


async def test_an_expired_lease_goes_to_the_next(store: Store, server, connect) -> None:
    other = await connect(server, instance="two")
    mine, theirs = store.lease("cycle"), other.lease("cycle")
    assert await mine.acquire()
    first = mine.fencing

    await eventually(theirs.acquire)

    assert theirs.fencing > first
    assert not await mine.renew()
    assert mine.fencing == 0


async def test_leases_of_two_services_do_not_meet(store: Store, server, connect) -> None:
    other = await connect(server, service="deployer")

    assert await store.lease("relay").acquire()
    assert await other.lease("relay").acquire()


async def test_a_restarted_instance_takes_its_own_lease_before_it_expires(store: Store, server, connect) -> None:
    assert await store.lease("cycle").acquire()
    restarted = (await connect(server, instance="one")).lease("cycle")
    stranger = (await connect(server, instance="two")).lease("cycle")

    async def retaken() -> bool:
        assert not await stranger.acquire()
        return await restarted.acquire()

    await eventually(retaken, interval=0.1)


async def test_a_second_copy_with_the_same_name_cannot_steal_a_live_lease(store: Store, server, connect) -> None:
    mine = store.lease("cycle")
    assert await mine.acquire()
    twin = (await connect(server, instance="one")).lease("cycle")

    for _ in range(4):
        await asyncio.sleep(0.4)
        assert not await twin.acquire()
        assert await mine.renew()


async def test_run_leased_hands_over_when_the_holder_stops(store: Store, server, connect) -> None:
    other = await connect(server, instance="two")
    running: list[str] = []

    def body(name: str):
        async def run(lease: Lease) -> None:
            assert lease.held
            running.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                running.remove(name)

        return run

    first = asyncio.ensure_future(run_leased(store, "cycle", body("one"), SystemClock()))
    await eventually(lambda: running == ["one"])
    second = asyncio.ensure_future(run_leased(other, "cycle", body("two"), SystemClock()))
    await asyncio.sleep(0.1)
    assert running == ["one"]

    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    await eventually(lambda: running == ["two"])
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert running == []


async def test_run_leased_stops_the_work_when_the_lease_is_taken_away(store: Store, server) -> None:
    runs: list[int] = []

    async def body(lease: Lease) -> None:
        runs.append(lease.fencing)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run_leased(store, "cycle", body, SystemClock()))
    await eventually(lambda: len(runs) == 1)
    server.ask("DEL", store.lease("cycle").key)

    await eventually(lambda: len(runs) == 2)

    assert runs[1] > runs[0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_run_leased_starts_again_when_its_commit_learns_of_the_loss(store: Store) -> None:
    runs = 0

    async def body(lease: Lease) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise LeaseLost("someone else has it")

    await run_leased(store, "cycle", body, SystemClock())

    assert runs == 2


async def test_run_leased_raises_what_the_work_raises_and_gives_the_lease_back(store: Store, server, connect) -> None:
    async def body(lease: Lease) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        await run_leased(store, "cycle", body, SystemClock())

    assert await (await connect(server, instance="two")).lease("cycle").acquire()


async def test_run_leased_outlives_a_server_that_is_away(own_server, connect) -> None:
    store = await connect(own_server)
    runs: list[int] = []

    async def body(lease: Lease) -> None:
        runs.append(lease.fencing)
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run_leased(store, "cycle", body, SystemClock()))
    await eventually(lambda: len(runs) == 1)
    await asyncio.to_thread(own_server.restart, clean=False)

    await eventually(lambda: len(runs) == 2)

    assert runs[1] > runs[0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


FROZEN = """
import asyncio, sys
from shared.clock import SystemClock
from shared.store.client import Store
from shared.store.documents import Commit, Put
from shared.store.leases import run_leased

async def main(url):
    store = await Store.connect(url=url, service="scheduler", instance="frozen", clock=SystemClock())
    lease = store.lease("cycle")
    assert await lease.acquire()
    print("held", lease.fencing, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await store.commit(Commit(puts=[Put("Workload", "default", "late", {}, None)], lease=lease))
        print("written", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_frozen_holder_writes_nothing_when_it_wakes(store: Store, server) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        FROZEN,
        server.url,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin
    assert child.stdout
    held, fencing = (await child.stdout.readline()).split()
    assert held == b"held"
    child.send_signal(signal.SIGSTOP)
    lease = store.lease("cycle")
    try:
        await eventually(lease.acquire)
        assert lease.fencing > int(fencing)
        await store.commit(Commit(puts=[new("mine")], lease=lease))
    finally:
        child.send_signal(signal.SIGCONT)

    child.stdin.write(b"go\n")
    said = await child.stdout.readline()
    await child.wait()

    assert said == b"LeaseLost\n"
    assert await store.get("Workload", "default", "late") is None


async def test_run_leased_ends_when_told_to_although_the_lease_is_lost_in_that_moment(store: Store) -> None:
    begun = asyncio.Event()

    async def work(_lease: Lease) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise LeaseLost("just now") from None

    task = asyncio.ensure_future(run_leased(store, "cycle", work, SystemClock()))
    await begun.wait()

    task.cancel()
    await asyncio.wait({task}, timeout=20)

    assert task.cancelled()


async def test_a_body_whose_client_swallowed_one_cancellation_is_ended_all_the_same(store: Store) -> None:
    started = asyncio.Event()

    async def deaf_once(_: Lease) -> None:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    running = asyncio.ensure_future(run_leased(store, "deaf", deaf_once, SystemClock()))
    await started.wait()
    running.cancel()

    await asyncio.wait({running}, timeout=10)
    assert running.cancelled()
