"""Cases from public bug reports (ids of the acceptance list), at the scheduler's own edge."""

import asyncio

import pytest

from shared.events.workload import WorkloadAdmitted
from shared.resources.pool import entrance
from tests.integration.scheduler.conftest import A10G_POOL, CARD, GPU, House, spec
from tests.support.wait import eventually


async def test_adm_02_blocked_heads_do_not_starve_a_workload_that_fits(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=4)
    await house.submit("filler", cards=3)
    await house.admitted("filler")
    for name in ("a", "b", "c"):
        await house.submit(name, cards=4)
        await house.waits_for(name, "NoCapacity")

    await house.submit("e", cards=1)
    await house.admitted("e", timeout=2)
    for done in ("e", "filler"):
        await house.cancel(done)

    await house.admitted("a")
    assert [await house.place(name) for name in ("b", "c")] == [None, None]


async def test_adm_03_churn_never_admits_over_capacity_and_leaves_nothing(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=5)
    await house.node("n2", cards=5)
    samples: list[int] = []

    async def sample() -> None:
        while True:
            samples.append(sum(len(holding.cards) for holding in await house.holdings()))
            await asyncio.sleep(0.05)

    async def cycle(worker: int) -> None:
        for turn in range(10):
            name = f"w{worker}-{turn}"
            await house.submit(name, cards=1)
            await asyncio.sleep(0.02)
            await house.cancel(name)

    watching = asyncio.ensure_future(sample())
    await asyncio.gather(*(cycle(worker) for worker in range(50)))

    async def empty() -> bool:
        return not (await house.store.snapshot(["Workload"])).documents

    await eventually(empty, timeout=30)
    watching.cancel()
    assert max(samples) <= 10
    await house.check_ledgers("n1", "n2")


async def test_adm_05_request_that_differs_from_its_limit_is_refused_by_field(house: House):
    house.scheduler().start().ready()
    body = spec(8)
    body["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = {GPU: "6"}

    answer = await house.write("create", "Workload", "w", {"spec": body}, namespace="default")

    assert answer.error is not None
    assert answer.error["code"] == "InvalidArgument"
    cause = answer.error["causes"][0]
    assert cause["field"] == f"spec.podSets[0].template.spec.containers[0].resources.requests[{GPU}]"
    assert "8" in cause["message"]
    assert await house.workload("w") is None


async def test_adm_06_one_node_is_never_given_to_two_queues(house: House):
    house.scheduler().start().ready()
    await house.namespace("qa")
    await house.namespace("qb")
    await house.node("n1", cards=8)
    for turn in range(10):
        names = {"qa": f"a{turn}", "qb": f"b{turn}"}
        await asyncio.gather(*(house.submit(name, cards=8, namespace=space) for space, name in names.items()))

        async def first(names: dict[str, str] = names) -> str | None:
            held = [space for space, name in names.items() if await house.place(name, space)]
            assert len(held) <= 1
            return held[0] if held else None

        winner = await eventually(first, timeout=30)
        loser = "qb" if winner == "qa" else "qa"
        await house.cancel(names[winner], winner)
        await house.admitted(names[loser], loser, timeout=30)
        await house.cancel(names[loser], loser)
    await eventually(lambda: len(house.heard(WorkloadAdmitted)) == 20, timeout=30)


async def test_adm_07_more_cards_than_any_node_has_says_so_and_a_larger_node_admits_it(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.node("n2", cards=1)
    await house.submit("w", cards=2)

    said = await house.waits_for("w", "NeverFits")
    assert said == f"asks for 2 cards, the largest node of pool {A10G_POOL} has 1 card"
    await house.node("n3", cards=2)

    assert (await house.admitted("w")).node == "n3"


async def test_del_02_workload_on_a_queue_that_does_not_exist_says_so_and_can_be_deleted(house: House):
    house.scheduler().start().ready()
    answer = await house.write(
        "create", "Workload", "w", {"spec": {**spec(1), "queueName": "nope"}}, namespace="default"
    )
    assert answer.error is None

    assert '"nope"' in await house.waits_for("w", "QueueNotFound")
    await house.write("delete", "Workload", "w", namespace="default")

    async def gone() -> bool:
        return await house.workload("w") is None

    await eventually(gone, timeout=30)


async def test_queue_that_comes_later_admits_who_waited_for_it(house: House):
    house.scheduler().start().ready()
    await house.submit("w", cards=1)
    await house.waits_for("w", "QueueNotFound")

    await house.node("n1", cards=1)

    await house.admitted("w")


async def test_slc_01_drifted_ledger_is_set_right(house: House):
    child = house.scheduler(GPUBUS_AUDIT_SECONDS="1").start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.admitted("a")
    house.redis.ask("HSET", "{gpubus}:ledger:n1", "n1-gpu-0", "0", "n1-gpu-1", str(CARD))

    async def right() -> bool:
        await house.check_ledgers("n1")
        return True

    await eventually(right, timeout=30)
    await eventually(lambda: child.logged("ledger_repaired"), timeout=30)


async def test_drifted_ledger_that_blocks_an_admission_is_set_right_at_once(house: House):
    house.scheduler(GPUBUS_AUDIT_SECONDS="3600").start().ready()
    await house.node("n1", cards=1)
    house.redis.ask("HSET", "{gpubus}:ledger:n1", "n1-gpu-0", str(CARD))

    await house.submit("a", cards=1)

    await house.admitted("a", timeout=30)
    await house.check_ledgers("n1")


async def test_slc_12_status_cannot_be_written_by_a_user(house: House):
    house.scheduler().start().ready()
    await house.submit("a", cards=1)
    await house.waits_for("a", "QueueNotFound")
    forged = {"spec": spec(1), "status": {"conditions": [{"type": "Admitted", "status": "True"}]}}

    answer = await house.write("status", "Workload", "a", forged, namespace="default")

    assert answer.error is not None
    assert answer.error["code"] == "Unimplemented"


@pytest.mark.parametrize(
    ("limits", "reason", "words"),
    [
        ({f"{GPU}.sliced": "1", f"{GPU}.sliced.memory-percentage": "20"}, "NotServedYet", "a sliced card"),
        ({f"{GPU}.shared": "2"}, "NotServedYet", "a shared card"),
        ({GPU: "1", "nvidia.com/gpumem": "5000"}, "NoNodeMatches", "nvidia.com/gpumem"),
        ({GPU: "9"}, "NeverFits", "asks for 9 cards"),
    ],
)
async def test_request_that_cannot_be_met_waits_with_a_plain_reason(house: House, limits, reason, words):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    pod = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    body = {"queueName": entrance(A10G_POOL), "podSets": [{"template": {"spec": pod}}]}

    await house.submit("w", body=body)

    assert words in await house.waits_for("w", reason)
    assert await house.ledger("n1") == {}
