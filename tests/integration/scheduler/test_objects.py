"""What users write and ask: InstanceTypes, plain Workloads, namespaces, settings, and why something waits."""

import pytest

from shared.events.workload import WorkloadHeld, WorkloadPreempted
from shared.queries import ExplainPlacement
from shared.resources.pool import InstanceType, entrance
from tests.integration.scheduler.conftest import A10G_POOL, CPU_POOL, House, spec, submission
from tests.support.wait import eventually

TYPE = {
    "acceleratable": True, "acceleratorGroup": "nvidia-a10g", "os": "linux", "arch": "amd64",
    "unitResources": {"cpu": "12", "ram": "128Gi"}, "localStorage": "100Gi",
}  # fmt: skip


async def exists(house: House, kind: str, namespace: str, name: str) -> bool:
    return await house.store.get(kind, namespace, name) is not None


async def test_pool_on_hold_admits_nobody_and_evicts_nobody(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.admitted("a")
    stored = (await house.store.get("InstanceType", "", A10G_POOL)).json()
    held = {"spec": {**stored["spec"], "inactive": True}, "metadata": {**stored["metadata"], "resourceVersion": ""}}
    assert (await house.write("replace", "InstanceType", A10G_POOL, held)).error is None

    await house.submit("b", cards=1)
    await house.waits_for("b", "PoolInactive")
    assert await house.place("a")
    freed = {"spec": {**stored["spec"], "inactive": False}, "metadata": {**stored["metadata"], "resourceVersion": ""}}
    assert (await house.write("replace", "InstanceType", A10G_POOL, freed)).error is None

    await house.admitted("b")


async def test_sibling_types_share_one_ledger_and_show_the_same_capacity(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=4)
    assert (await house.write("create", "InstanceType", "a10g-12c128g", {"spec": TYPE})).error is None
    await eventually(lambda: exists(house, "LocalQueue", "default", entrance("a10g-12c128g")), timeout=30)
    await house.submit("a", cards=3, pool="a10g-12c128g")
    await house.submit("b", cards=1)

    cards = {*(await house.admitted("a")).cards, *(await house.admitted("b")).cards}
    assert len(cards) == 4

    async def same() -> bool:
        kinds = [(await house.store.get("InstanceType", "", n)).read(InstanceType) for n in (A10G_POOL, "a10g-12c128g")]
        return [kind.status.accelerator.remaining for kind in kinds] == [0, 0]

    await eventually(same, timeout=30)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"acceleratorGroup": ""}, "spec.acceleratorGroup"),
        ({"unitResources": {"cpu": "12c", "ram": "128Gi"}}, None),
        ({"unitResources": {"cpu": "1.5", "ram": "128Gi"}}, "spec.unitResources.cpu"),
        ({"localStorage": "100"}, "spec.localStorage"),
        ({"os": ""}, "spec.os"),
    ],
)
async def test_wrong_instance_type_is_refused_by_field(house: House, change, field):
    house.scheduler().start().ready()

    answer = await house.write("create", "InstanceType", "mine", {"spec": {**TYPE, **change}})

    assert answer.error is not None
    if field:
        assert [cause["field"] for cause in answer.error["causes"]] == [field]
    assert not await exists(house, "InstanceType", "", "mine")


async def test_identity_of_a_type_cannot_be_changed(house: House):
    house.scheduler().start().ready()
    await house.write("create", "InstanceType", "mine", {"spec": TYPE})
    other = {**TYPE, "acceleratorGroup": "nvidia-h100", "displayName": "Mine"}

    answer = await house.write("replace", "InstanceType", "mine", {"spec": other})

    assert [cause["field"] for cause in answer.error["causes"]] == ["spec.acceleratorGroup"]
    fine = {**TYPE, "displayName": "Mine", "unitResources": {"cpu": "12", "ram": "131072Mi"}}
    assert (await house.write("replace", "InstanceType", "mine", {"spec": fine})).error is None


async def test_deleted_type_drains_first_and_a_derived_one_is_made_again(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.submit("a", cards=1)
    await house.admitted("a")
    first = await house.store.get("InstanceType", "", A10G_POOL)
    await house.write("delete", "InstanceType", A10G_POOL)
    await house.submit("b", cards=1)
    assert "being deleted" in await house.waits_for("b", "PoolInactive")
    assert (await house.store.get("InstanceType", "", A10G_POOL)).uid == first.uid

    await house.cancel("a")

    async def made_again() -> bool:
        found = await house.store.get("InstanceType", "", A10G_POOL)
        return found is not None and found.uid != first.uid

    await eventually(made_again, timeout=30)
    await house.admitted("b")


async def test_new_namespace_gets_entrances_and_a_removed_one_loses_everything(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=2)
    await house.namespace("team-a")
    await eventually(lambda: exists(house, "LocalQueue", "team-a", entrance(A10G_POOL)), timeout=30)
    assert not await exists(house, "LocalQueue", "gpustack-system", entrance(A10G_POOL))
    await house.submit("plain", cards=1, namespace="team-a", owned=False)
    await house.admitted("plain", "team-a")
    await house.submit("owned", cards=1, namespace="team-a")
    await house.admitted("owned", "team-a")

    await house.remove_namespace("team-a")

    async def emptied() -> bool:
        assert not await exists(house, "LocalQueue", "team-a", entrance(A10G_POOL))
        return not await exists(house, "Workload", "team-a", "plain")

    await eventually(emptied, timeout=30)
    await eventually(lambda: house.heard(WorkloadPreempted, name="owned", reason="Deleted"), timeout=30)
    assert await house.place("owned", "team-a"), "its Pods still run"
    await house.cancel("owned", "team-a")

    async def empty() -> bool:
        return not await house.holdings()

    await eventually(empty, timeout=30)
    await house.check_ledgers("n1")


async def test_deleted_local_queue_is_made_again(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    name = entrance(CPU_POOL)
    first = await eventually(lambda: house.store.get("LocalQueue", "default", name), timeout=30)
    await house.write("delete", "LocalQueue", name, namespace="default")

    async def made_again() -> bool:
        found = await house.store.get("LocalQueue", "default", name)
        return found is not None and found.uid != first.uid

    await eventually(made_again, timeout=30)


async def test_plain_workload_of_a_user_is_admitted_and_deleting_it_frees_its_cards(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    assert (await house.write("create", "Workload", "mine", {"spec": spec(1)}, namespace="default")).error is None
    await house.admitted("mine")

    await house.write("delete", "Workload", "mine", namespace="default")
    await house.submit("next", cards=1)

    await house.admitted("next", timeout=30)
    assert await house.workload("mine") is None
    await house.check_ledgers("n1")


async def test_owned_workload_that_a_user_deletes_keeps_its_card_until_its_owner_has_stopped_it(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.submit("a", cards=1)
    await house.admitted("a")

    await house.write("delete", "Workload", "a", namespace="default")
    await eventually(lambda: house.heard(WorkloadPreempted, name="a", reason="Deleted"), timeout=30)
    assert await house.place("a")
    await house.cancel("a")

    async def gone() -> bool:
        return await house.workload("a") is None and await house.ledger("n1") == {}

    await eventually(gone, timeout=30)


async def test_finalizer_and_owner_are_not_the_users_to_change(house: House):
    house.scheduler().start().ready()
    await house.submit("a", cards=1)
    await house.waits_for("a", "QueueNotFound")
    stored = (await house.workload("a")).json()
    stripped = {"spec": stored["spec"], "metadata": {**stored["metadata"], "finalizers": [], "ownerReferences": []}}

    answer = await house.write("replace", "Workload", "a", stripped, namespace="default")

    assert {cause["field"] for cause in answer.error["causes"]} == {"metadata.finalizers", "metadata.ownerReferences"}


async def test_wrong_submission_is_answered_to_its_owner_and_stores_nothing(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)

    await house.submit("w", body={**spec(1), "podSets": []})
    await house.submit(
        "v", body=spec(pod={"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]})
    )
    await house.submit("ok", cards=1)

    await house.admitted("ok")
    await eventually(lambda: {f.name for f in house.heard(WorkloadHeld, reason="Invalid")} == {"v", "w"}, timeout=30)
    assert await house.workload("w") is None


async def test_submission_into_a_namespace_that_does_not_exist_stores_nothing(house: House):
    child = house.scheduler().start().ready()
    await house.submit("w", cards=1, namespace="nowhere")

    await eventually(
        lambda: [line for line in child.logged("message_handled") if line.get("outcome") == "refused"], timeout=30
    )
    assert await house.workload("w", "nowhere") is None


async def test_explanation_says_node_by_node_why(house: House):
    house.scheduler().start().ready()
    await house.node("n1", cards=1)
    await house.node("n2", cards=4, unschedulable=True)
    await house.submit("a", cards=1)
    await house.admitted("a")
    await house.submit("b", cards=2)
    await house.waits_for("b", "NoCapacity")

    why = await house.bus.ask(ExplainPlacement(namespace="default", name="b"))
    here = await house.bus.ask(ExplainPlacement(namespace="default", name="a"))
    what_if = await house.bus.ask(ExplainPlacement(namespace="default", workload=submission("x", 9).spec))

    assert (why.state, why.reason, why.queue_position) == ("Waiting", "NoCapacity", 0)
    assert {row["node"]: row["reason"] for row in why.nodes} == {"n1": "has 1 card", "n2": "is cordoned"}
    assert (here.state, here.nodes[0]["node"], here.nodes[0]["chosen"]) == ("Admitted", "n1", True)
    assert (what_if.reason, what_if.message) == (
        "NeverFits",
        f"asks for 9 cards, the largest node of pool {A10G_POOL} has 4 cards",
    )


async def test_explanation_of_nothing_is_not_found_and_of_nonsense_is_invalid(house: House):
    from shared.errors import InvalidArgument, NotFound

    house.scheduler().start().ready()
    with pytest.raises(NotFound):
        await house.bus.ask(ExplainPlacement(namespace="default", name="nobody"))
    with pytest.raises(InvalidArgument, match="podSets"):
        await house.bus.ask(ExplainPlacement(namespace="default", workload={"queueName": "q", "podSets": []}))


async def test_setting_stops_nodes_from_forming_types(house: House):
    from shared.store.documents import Commit, Put

    house.scheduler().start().ready()
    await house.namespace("gpustack-system")
    body = {
        "apiVersion": "gpustack.ai/v1",
        "kind": "Setting",
        "metadata": {"name": "instance-type-derived-from-node"},
        "spec": {"value": "false"},
    }
    await house.commit(
        "gateway", Commit(puts=(Put("Setting", "gpustack-system", "instance-type-derived-from-node", body, None),))
    )
    await house.node("n1", cards=1)
    await house.write("create", "InstanceType", "mine", {"spec": TYPE})
    await eventually(lambda: exists(house, "LocalQueue", "default", entrance("mine")), timeout=30)

    assert not await exists(house, "InstanceType", "", A10G_POOL)
    await house.submit("a", cards=1, pool="mine")
    await house.admitted("a")
