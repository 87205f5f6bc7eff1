"""kill -9 between decide and commit and after commit, repeats, copies, races: no card twice, nothing lost or doubled."""

import asyncio
import signal

import pytest

from services.scheduler.domain.admission import Limits
from services.scheduler.domain.scorers import DEFAULT_WEIGHTS, weighted
from services.scheduler.loops.cycle import AdmissionLoop
from services.scheduler.projections.board import KINDS, Board
from services.scheduler.store.ledgers import LedgerStore
from shared.clock import SystemClock
from shared.events.workload import WorkloadAdmitted, WorkloadCancelled, WorkloadQueued
from shared.store.cache import DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit
from tests.integration.scheduler.conftest import A10G_POOL, House, submission
from tests.support.wait import eventually

PINGS = 'ping_interval: "1s"\nping_max: 2'
"""As `gpubus up` configures it: a frozen client is cut off after seconds, and what it held goes to others."""
POINTS = (
    "scheduler.before-commit", "scheduler.after-commit", "scheduler.submit.before-commit",
    "scheduler.submit.after-commit", "scheduler.cancel.before-commit", "scheduler.cancel.after-commit",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
async def test_scheduler_killed_at_a_commit_ends_the_same(house: House, point):
    flag = house.directory / "flag"
    child = house.scheduler(GPUBUS_FAULTS=f"{point}=kill@{flag}").start().ready()
    await house.node("n1", cards=2)
    flag.touch()
    for name in ("a", "b", "c"):
        await house.submit(name, cards=1)
    if "cancel" not in point:
        assert await asyncio.to_thread(child.ended) == -signal.SIGKILL
        child.start().ready()

    async def two_run_and_one_waits() -> list[str]:
        running = [name for name in "abc" if await house.place(name)]
        assert len(running) == 2
        assert sorted([await house.reason(name) for name in "abc"]) == ["Admitted", "Admitted", "NoCapacity"]
        return running

    running = await eventually(two_run_and_one_waits, timeout=30)
    await house.cancel(running[0])
    if "cancel" in point:
        assert await asyncio.to_thread(child.ended) == -signal.SIGKILL
        child.start().ready()

    await house.admitted(next(iter(set("abc") - set(running))), timeout=30)
    await house.check_ledgers("n1")

    async def told_once() -> bool:
        assert await house.stored_facts(WorkloadQueued) == ["a", "b", "c"]
        assert await house.stored_facts(WorkloadAdmitted) == ["a", "b", "c"]
        return await house.stored_facts(WorkloadCancelled) == [running[0]]

    await eventually(told_once, timeout=30)


async def test_repeated_submission_is_absorbed_and_another_uid_is_refused(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=4)
    await house.commit("deployer", Commit(commands=[submission("a", 1) for _ in range(5)]))
    await house.admitted("a")
    for _ in range(3):
        await house.submit("a", cards=1)
    await house.submit("a", cards=1, uid="other")
    await house.submit("last", cards=1)
    await house.admitted("last")

    await eventually(lambda: len(house.heard(WorkloadAdmitted)) == 2, timeout=30)
    assert (await house.workload("a")).uid == "uid-a"
    assert await house.stored_facts(WorkloadQueued) == ["a", "last"]
    await house.check_ledgers("n1")


async def test_repeated_cancellation_frees_once(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.submit("b", cards=1)
    await house.admitted("a")
    await house.admitted("b")

    for _ in range(4):
        await house.cancel("a")
    await house.submit("c", cards=1)

    assert (await house.admitted("c")).cards
    await house.check_ledgers("n1")
    await eventually(lambda: house.heard(WorkloadCancelled), timeout=30)
    assert await house.stored_facts(WorkloadCancelled) == ["a"]


async def test_cancellation_that_overtakes_its_submission_is_not_undone_by_it(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.cancel("a")

    async def remembered() -> bool:
        return bool(await house.store.read_hash("{gpubus}:table:scheduler:cancelled"))

    await eventually(remembered, timeout=30)
    await house.submit("a", cards=1)
    await house.submit("b", cards=1)

    await house.admitted("b")
    assert await house.workload("a") is None


async def test_owner_s_outcome_finishes_a_workload_and_frees_it_once(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.submit("a", cards=1)
    await house.admitted("a")

    await house.cancel("a", outcome="Failed")
    await house.submit("b", cards=1)

    await house.admitted("b")
    finished = {c["type"]: c for c in (await house.workload("a")).body["status"]["conditions"]}["Finished"]
    assert (finished["status"], finished["reason"]) == ("True", "Failed")
    await house.check_ledgers("n1")


async def test_three_copies_share_the_pools_and_one_that_dies_is_replaced(house: House):
    copies = [house.scheduler(f"scheduler-{n}").start() for n in range(3)]
    for copy in copies:
        copy.ready()
    await house.node("n1", cards=4)
    await house.node("n2", cards=0, labels={"kubernetes.io/arch": "arm64"})

    def holders() -> dict[str, str]:
        taken = [
            (line["ts"], line["pool"], copy.name)
            for copy in copies
            if copy.running
            for line in copy.logged("pool_lease_taken")
        ]
        return {pool: name for _, pool, name in sorted(taken)}

    await eventually(lambda: len(holders()) == 4, timeout=30)
    await eventually(lambda: len(set(holders().values())) > 1, timeout=30)
    for n in range(4):
        await house.submit(f"w{n}", cards=1)
    for n in range(4):
        await house.admitted(f"w{n}")

    victim = next(copy for copy in copies if copy.name == holders()[A10G_POOL])
    victim.kill()
    await house.cancel("w0")
    await house.submit("after", cards=1)

    await house.admitted("after", timeout=30)
    await house.check_ledgers("n1")
    await eventually(lambda: len(house.heard(WorkloadAdmitted)) == 5, timeout=30)
    assert await house.stored_facts(WorkloadAdmitted) == ["after", "w0", "w1", "w2", "w3"]


async def test_frozen_copy_that_wakes_up_admits_nothing_under_its_old_lease(house: House):
    first = house.scheduler("scheduler-1").start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.admitted("a")
    first.send(signal.SIGSTOP)
    house.scheduler("scheduler-2").start().ready()
    await house.submit("b", cards=1)
    await house.admitted("b", timeout=30)

    first.send(signal.SIGCONT)
    await house.submit("c", cards=1)

    await house.waits_for("c", "NoCapacity")
    await house.check_ledgers("n1")
    assert await house.stored_facts(WorkloadAdmitted) == ["a", "b"]


class Rival:
    """An admission loop of its own store, without a lease: nothing but the script keeps it from the others' cards."""

    def __init__(self, store: Store) -> None:
        clock = SystemClock()
        self.cache = DocumentCache(store, KINDS)
        self.board = Board(self.cache, weighted(DEFAULT_WEIGHTS))
        ledgers = LedgerStore(store, self.board)
        self.loop = AdmissionLoop(store=store, board=self.board, ledgers=ledgers, clock=clock, limits=Limits(), batch=7)
        self.task = asyncio.ensure_future(self.cache.run())

    async def admit(self) -> None:
        await self.cache.synced()
        for pool in self.board.pool_keys():
            await self.loop.cycle(pool, None, {})


async def test_two_schedulers_racing_on_one_store_never_hand_out_a_card_twice(house: House):
    child = house.scheduler().start().ready()
    for n in range(4):
        await house.node(f"n{n}", cards=8)
    await house.submit("warm", cards=1)
    await house.admitted("warm")
    child.send(signal.SIGSTOP)
    clock = SystemClock()
    stores = [
        await Store.connect(url=house.redis.url, service="scheduler", instance=f"rival-{n}", clock=clock)
        for n in range(2)
    ]
    rivals = [Rival(store) for store in stores]
    await asyncio.gather(*(rival.cache.synced() for rival in rivals))
    for turn in range(5):
        names = [f"w{turn}-{n}" for n in range(12)]
        bodies = {name: submission(name, 1 + n % 3) for n, name in enumerate(names)}
        await house.store.commit(Commit(puts=[put_of(order) for order in bodies.values()]))
        for _ in range(4):
            await asyncio.gather(*(rival.admit() for rival in rivals))
        await house.check_ledgers(*(f"n{n}" for n in range(4)))
    cards = [card for holding in await house.holdings() for card in holding.cards]

    assert len(cards) == len(set(cards)) == 32
    for rival in rivals:
        rival.task.cancel()
    await asyncio.gather(*(rival.task for rival in rivals), return_exceptions=True)
    for store in stores:
        await store.close()


def put_of(order):
    from services.scheduler.domain import intake
    from shared.store.documents import Put

    body = intake.body_of(intake.submitted(order))
    return Put("Workload", order.namespace, order.name, body, None)
