"""The journey through one scheduler: pools form, workloads are admitted with exact devices, wait with a reason, end."""

from shared.events.pool import CapacityFreed, PoolFormed
from shared.events.workload import WorkloadAdmitted, WorkloadHeld, WorkloadQueued
from shared.resources.pool import InstanceType, entrance
from tests.integration.scheduler.conftest import A10G_POOL, CARD, CPU_POOL, House
from tests.support.wait import eventually


async def test_a_node_forms_its_pools_and_their_entrances(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=4)

    async def formed() -> InstanceType:
        found = await house.store.get("InstanceType", "", A10G_POOL)
        assert found is not None
        kind = found.read(InstanceType)
        assert kind.status.accelerator.remaining == 4
        return kind

    kind = await eventually(formed, timeout=30)
    assert kind.status.entrance == entrance(A10G_POOL)
    assert (kind.status.accelerator_shared.remaining, kind.status.accelerator_sliced.remaining) == (40, 400)
    assert kind.status.cpu.capacity == 32
    assert {c.type: c.status for c in kind.status.conditions} == {"Active": "True"}
    assert await house.store.get("InstanceType", "", CPU_POOL)
    assert await house.store.get("LocalQueue", "default", entrance(A10G_POOL))
    assert await house.store.get("InstanceTypeFlavor", "", "gpustack--nvidia-a10g")
    await eventually(lambda: {f.name for f in house.heard(PoolFormed)} == {A10G_POOL, CPU_POOL}, timeout=30)


async def test_workloads_get_exact_devices_wait_with_a_reason_and_free_them(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=4)
    await house.submit("a", cards=3, cpu="2")
    place = await house.admitted("a")
    assert place.cards == ("n1-gpu-0", "n1-gpu-1", "n1-gpu-2")
    assert await house.ledger("n1") == {**dict.fromkeys(place.cards, CARD), "cpu": 2000}

    await house.submit("b", cards=2)
    assert await house.waits_for("b", "NoCapacity") == "waiting for 1 more card: 1 of 1 nodes has too little room"
    await house.cancel("a")

    assert (await house.admitted("b")).cards == ("n1-gpu-0", "n1-gpu-1")
    assert await house.workload("a") is None
    await house.check_ledgers("n1")
    await eventually(lambda: len(house.heard(WorkloadAdmitted)) == 2, timeout=30)
    assert [f.name for f in house.heard(WorkloadQueued)] == ["a", "b"]
    assert [f.reason for f in house.heard(WorkloadHeld)] == ["NoCapacity"]
    assert house.heard(WorkloadAdmitted, name="a")[0].owner_name == "md"
    assert house.heard(CapacityFreed, node="n1", reason="Cancelled")[0].devices == list(place.cards)


async def test_capacity_shown_to_users_follows_admissions(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=4)
    await house.submit("a", cards=3)
    await house.admitted("a")

    async def shown() -> None:
        kind = (await house.store.get("InstanceType", "", A10G_POOL)).read(InstanceType)
        assert (kind.status.accelerator.once_max_request, kind.status.accelerator.capacity) == (1, 4)
        queue = await house.store.get("LocalQueue", "default", entrance(A10G_POOL))
        assert (queue.body["status"]["pendingWorkloads"], queue.body["status"]["admittedWorkloads"]) == (0, 1)
        cards = (await house.store.get("Devices", "", "n1")).body["status"]["groups"][0]["accelerators"]
        assert [card["mode"] for card in cards] == ["Exclusive"] * 3 + ["None"]
        assert cards[0]["holders"] == ["default/a"]

    async def true() -> bool:
        await shown()
        return True

    await eventually(true, timeout=30)
