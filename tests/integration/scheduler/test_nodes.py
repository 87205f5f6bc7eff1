"""Nodes that are lost, cordoned, removed or silent about what they run; a store that began a new epoch."""

import contextlib

from shared.errors import Transient
from shared.events.pool import PoolFormed, PoolResized, PoolRetired
from shared.events.workload import WorkloadFinished
from shared.resources.pool import InstanceType
from shared.store import keys
from tests.integration.scheduler.conftest import A10G_POOL, CARD, CPU_POOL, House, a_pod
from tests.support.wait import eventually


async def views(house: House, pool: str = A10G_POOL) -> InstanceType:
    found = await house.store.get("InstanceType", "", pool)
    assert found is not None
    return found.read(InstanceType)


async def test_lost_node_shrinks_its_pool_and_frees_nothing(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.admitted("a")
    before = await house.ledger("n1")

    await house.lose("n1")
    await house.submit("b", cards=1)
    said = await house.waits_for("b", "NoCapacity")

    async def shrunk() -> bool:
        return (await views(house)).status.accelerator.capacity == 0

    await eventually(shrunk, timeout=30)
    assert said == "no node that could hold it is open: node n1 is not ready"
    assert await house.ledger("n1") == before
    await house.find("n1")
    await house.admitted("b")
    await eventually(lambda: len(house.heard(PoolResized, name=A10G_POOL)) >= 2, timeout=30)


async def test_cordoned_node_admits_again_when_it_is_uncordoned(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1, unschedulable=True)
    await house.submit("a", cards=1)
    assert "node n1 is cordoned" in await house.waits_for("a", "NoCapacity")

    await house.change_node("n1", lambda body: body["spec"].update(unschedulable=False))

    await house.admitted("a", timeout=30)


async def test_node_without_cards_runs_cpu_work_once_it_has_reported(house: House):
    house.scheduler().start().ready()
    await house.node("n1", confirmed=False)
    await house.submit("a", pool=CPU_POOL, cpu="2")
    assert "node n1 has not reported yet" in await house.waits_for("a", "NodesUnconfirmed")

    await house.report("n1")

    assert (await house.admitted("a")).cpu_milli == 2000
    assert await house.ledger("n1") == {"cpu": 2000}


async def test_report_that_comes_before_its_node_still_opens_it(house: House):
    house.scheduler().start().ready()
    await house.report("n1")

    async def opened() -> bool:
        return (await house.store.read_hash(keys.ledger("n1"))).get("epoch") == house.store.epoch

    await eventually(opened, timeout=30)
    await house.node("n1", cards=1, confirmed=False)
    await house.submit("a", cards=1)

    await house.admitted("a")


async def test_running_pod_that_no_workload_accounts_for_holds_its_card_until_it_is_gone(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.report("n1", a_pod("ghost", "n1", 0))
    await house.submit("a", cards=2)
    assert "waiting for 1 more card" in await house.waits_for("a", "NoCapacity")
    assert await house.ledger("n1") == {"n1-gpu-0": CARD}

    await house.report("n1")

    assert (await house.admitted("a")).cards == ("n1-gpu-0", "n1-gpu-1")
    await house.check_ledgers("n1")


async def test_pod_of_an_admitted_workload_is_no_orphan(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.admitted("a")
    await house.report("n1", a_pod("a", "n1", 0))
    await house.submit("b", cards=1)

    await house.admitted("b")
    await house.check_ledgers("n1")


async def test_new_epoch_closes_ledgers_until_nodes_report_and_workloads_keep_their_place(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.node("n2", cards=1)
    await house.submit("a", cards=1)
    kept = await house.admitted("a")
    before = house.store.epoch
    house.redis.restart(clean=False)

    async def new_epoch() -> bool:
        with contextlib.suppress(Transient):
            await house.store.recover()
        return house.store.epoch != before

    await eventually(new_epoch, timeout=30)
    await house.submit("b", cards=1)
    await house.waits_for("b", "NodesUnconfirmed", timeout=30)
    await house.report("n1", a_pod("a", kept.node, 0), epoch=before)
    assert await house.place("b") is None
    runs = {kept.node: [a_pod("a", kept.node, 0)]}
    for node in ("n1", "n2"):
        await house.report(node, *runs.get(node, []))

    await house.admitted("b")
    assert await house.place("a") == kept
    await house.check_ledgers("n1", "n2")


async def test_removed_node_retires_its_pool_and_ends_plain_workloads(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.submit("plain", cards=1, owned=False)
    await house.admitted("plain")

    await house.remove_node("n1")

    await eventually(lambda: house.heard(WorkloadFinished, name="plain", reason="NodeLost"), timeout=30)
    await eventually(lambda: house.heard(PoolRetired, name=A10G_POOL), timeout=30)
    assert await house.ledger("n1") == {}
    kind = await views(house)
    assert [(c.status, c.reason) for c in kind.status.conditions] == [("False", "NoNodes")]


async def test_removed_node_keeps_an_owned_workload_charged_until_its_owner_ends_it(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.submit("a", cards=1)
    await house.admitted("a")
    await house.remove_node("n1")
    await eventually(lambda: house.heard(PoolRetired, name=A10G_POOL), timeout=30)
    assert await house.ledger("n1") == {"n1-gpu-0": CARD}

    await house.cancel("a", outcome="NodeLost")

    await eventually(lambda: house.heard(WorkloadFinished, name="a", reason="NodeLost"), timeout=30)
    assert await house.ledger("n1") == {}


async def test_pool_forms_again_when_its_first_node_comes_back(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await eventually(lambda: house.heard(PoolFormed, name=A10G_POOL), timeout=30)
    await house.remove_node("n1")
    await eventually(lambda: house.heard(PoolRetired, name=A10G_POOL), timeout=30)

    await house.node("n1", cards=3)
    await house.submit("a", cards=3)

    await house.admitted("a")
    await eventually(lambda: len(house.heard(PoolFormed, name=A10G_POOL)) == 2, timeout=30)


async def test_unhealthy_card_is_not_given_out(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    found = await house.store.get("Devices", "", "n1")
    body = found.body
    body["spec"]["groups"][0]["accelerators"][0]["status"]["unhealthy"] = True
    from shared.events.device import DeviceDegraded
    from shared.store.documents import ANY, Commit, Put

    fact = DeviceDegraded(node="n1", device_id="n1-gpu-0", manufacturer="nvidia", product="nvidia-a10g")
    await house.commit("discovery", Commit(puts=(Put("Devices", "", "n1", body, ANY),), facts=(fact,)))

    async def shrunk() -> bool:
        return (await views(house)).status.accelerator.capacity == 1

    await eventually(shrunk, timeout=30)
    await house.submit("a", cards=1)

    assert (await house.admitted("a")).cards == ("n1-gpu-1",)
