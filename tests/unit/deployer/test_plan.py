"""What a deployment does next, as a story of plans applied one after the other."""

import random
from dataclasses import replace

import pytest

from services.deployer.domain.plan import plan
from services.deployer.domain.render import Weights
from shared.resources.deployment import ReplicaSlot
from tests.support.deployer import (
    GPU_POOL,
    World,
    a_deployment,
    a_role,
    a_slot,
    a_workload,
    an_artifact,
    deleting,
    replicas,
    submitted_name,
    submitted_uid,
    with_role,
)


def test_each_replica_asks_for_capacity_once():
    world = World(replicas(a_deployment(), 3))

    world.settle()
    world.settle()

    assert world.submitted == ["m-server-r0", "m-server-r1", "m-server-r2"]


def test_a_replica_becomes_a_pod_when_it_is_admitted():
    world = World(a_deployment())
    world.settle()

    world.admit("n2")
    world.settle()

    pod = world.pods["m-server-r0"]
    assert pod.spec.node_name == "n2"
    assert pod.metadata.annotations["device.gpustack.ai/accelerator.allocated"] == "GPU-1"


def test_a_lost_submission_is_repeated_with_the_same_identity():
    world = World(a_deployment())
    first = world.step()
    world.workloads.clear()

    again = world.step(resync=True)

    assert [(s.name, s.uid) for s in again.submits] == [(s.name, s.uid) for s in first.submits]


def test_a_submission_in_flight_is_not_repeated_by_every_wake():
    world = World(a_deployment())
    world.step()
    world.workloads.clear()

    assert world.plan().empty


def test_scaling_down_sheds_the_highest_ordinals_and_leaves_the_rest_alone():
    world = World(replicas(a_deployment(), 4))
    world.bring_up()
    kept = {name: world.pods[name] for name in ("m-server-r0", "m-server-r1")}

    world.deployment = replicas(world.deployment, 2)
    world.bring_up()

    assert world.pods == kept
    assert sorted(world.removed) == ["m-server-r2", "m-server-r3"]


def test_a_workload_is_taken_back_only_after_its_pod_is_confirmed_stopped():
    world = World(a_deployment())
    world.bring_up()
    world.deployment = replicas(world.deployment, 0)

    first = world.step()

    assert [pod.name for pod in first.stops] == ["m-server-r0"]
    assert not first.cancels
    assert world.plan().empty, "nothing more until the node confirms"
    world.run()
    then = world.step()
    assert [step.cancel.name for step in then.removes] == ["m-server-r0"]


def test_scaling_up_again_uses_a_name_that_was_never_used():
    world = World(a_deployment())
    world.bring_up()
    world.deployment = replicas(world.deployment, 0)
    world.bring_up()

    world.deployment = replicas(world.deployment, 1)
    world.bring_up()

    assert list(world.pods) == ["m-server-r0-1"]


def test_a_submission_that_is_on_its_way_when_it_is_not_wanted_any_more_is_cancelled():
    world = World(a_deployment())
    world.step()
    world.workloads.clear()
    world.deployment = replicas(world.deployment, 0)

    steps = world.step()

    assert [(c.name, c.uid) for c in steps.cancels] == [("m-server-r0", submitted_uid(world.deployment))]
    assert world.deployment.status.slots == [a_slot(open=False)]


def test_deletion_ends_when_the_last_workload_is_gone():
    world = World(replicas(a_deployment(), 2))
    world.bring_up()
    world.deployment = deleting(world.deployment)

    world.step()
    assert not world.plan().gone
    world.run()
    world.step()

    assert world.plan().gone
    assert not world.pods
    assert not world.workloads


def test_a_deployment_that_never_made_anything_is_gone_at_once():
    world = World(deleting(a_deployment()))

    assert world.plan().gone


def test_a_user_who_deletes_a_replicas_pod_gets_another():
    world = World(a_deployment())
    world.bring_up()

    world.pods["m-server-r0"] = deleting(world.pods["m-server-r0"])
    world.bring_up()

    assert list(world.pods) == ["m-server-r0-1"]
    assert world.removed == ["m-server-r0"]


def test_a_replica_of_a_lost_node_is_made_elsewhere_and_the_old_one_is_stopped_on_return():
    world = World(a_deployment())
    world.bring_up("n1")
    world.lost = {"n1"}

    world.bring_up("n2")

    assert world.pods["m-server-r0-1"].spec.node_name == "n2"
    assert world.pods["m-server-r0"].deleting
    assert "m-server-r0" in world.workloads, "its cards stay held while it may run"
    world.lost = set()
    world.bring_up()
    assert list(world.pods) == ["m-server-r0-1"]
    assert list(world.workloads) == ["m-server-r0-1"]


def test_a_removed_nodes_replicas_need_no_confirmation():
    world = World(a_deployment())
    world.bring_up("n1")
    world.nodes = {"n2"}

    world.bring_up("n2")

    assert {pod.spec.node_name for pod in world.pods.values()} == {"n2"}
    assert list(world.workloads) == ["m-server-r0-1"]


@pytest.mark.parametrize("condition", ["Evicted", "Finished"])
def test_a_replica_that_lost_its_devices_is_stopped_and_asks_again(condition):
    world = World(a_deployment())
    world.bring_up()
    uid = world.workloads["m-server-r0"].uid
    world.workloads["m-server-r0"] = a_workload("m-server-r0", uid, node="n1", **{condition: "True"})

    world.bring_up()

    assert list(world.pods) == ["m-server-r0-1"]


def test_an_edit_replaces_replicas_one_at_a_time():
    world = World(replicas(a_deployment(), 3))
    world.bring_up()
    world.deployment = with_role(world.deployment, extra_args=["--x"])

    first = world.step()

    assert [pod.name for pod in first.stops] == ["m-server-r2"]
    assert world.plan().empty
    world.run()
    world.settle()
    world.admit()
    world.settle()
    assert not world.plan().stops, "the next one waits until this one is ready"
    world.bring_up()
    assert sorted(world.pods) == ["m-server-r0-1", "m-server-r1-1", "m-server-r2-1"]


def test_one_edit_makes_one_new_replica_and_removes_one():
    world = World(a_deployment())
    world.bring_up()
    made = len(world.created)

    world.deployment = with_role(world.deployment, extra_args=["--x"])
    world.bring_up()

    assert len(world.created) == made + 1
    assert world.removed == ["m-server-r0"]


def test_a_rollout_stops_when_the_new_version_does_not_come_up():
    world = World(replicas(a_deployment(), 2))
    world.bring_up()
    world.deployment = with_role(world.deployment, extra_args=["--broken"])
    world.step()
    world.run()
    world.settle()
    world.admit()
    world.settle()
    world.unready("m-server-r1-1")

    for _ in range(5):
        assert not world.step().stops

    assert world.pods["m-server-r0"].metadata.deletion_timestamp is None
    world.deployment = with_role(world.deployment, extra_args=[])
    assert [pod.name for pod in world.step().stops] == ["m-server-r1-1"], "the way back replaces the broken one"


def test_a_replica_that_serves_nobody_is_replaced_before_one_that_is_ready():
    world = World(replicas(a_deployment(), 2))
    world.bring_up()
    world.unready("m-server-r1")
    world.deployment = with_role(world.deployment, extra_args=["--x"])

    assert [pod.name for pod in world.plan().stops] == ["m-server-r1"]


def test_another_request_replaces_a_submission_that_waits():
    world = World(a_deployment(roles=[a_role(instanceType=GPU_POOL, resources={"accelerator": 1})]))
    world.settle()
    resources = world.deployment.spec.roles[0].resources.model_copy(update={"accelerator": 2})

    world.deployment = with_role(world.deployment, resources=resources)
    world.settle()

    assert list(world.workloads) == ["m-server-r0-1"]


def test_other_arguments_leave_a_submission_that_waits_alone():
    world = World(a_deployment())
    world.settle()

    world.deployment = with_role(world.deployment, extra_args=["--x"])

    assert world.plan().empty


def test_nothing_is_asked_for_while_the_weights_are_not_resolved():
    deployment = a_deployment(model={"name": "m1", "artifactRef": {"name": "weights"}})
    world = World(deployment, artifact=an_artifact(resolved=False))

    world.settle()

    assert not world.submitted
    assert not world.deployment.status.slots


def test_weights_that_go_away_hold_a_rollout_but_no_running_replica():
    deployment = a_deployment(model={"name": "m1", "artifactRef": {"name": "weights"}})
    artifact = an_artifact()
    world = World(deployment, artifact=artifact, weights=Weights(resolved=artifact.status.resolved, paths=()))
    world.bring_up()
    world.more |= {"artifact": None, "weights": Weights()}

    world.deployment = with_role(world.deployment, extra_args=["--x"])

    assert world.plan().empty


def test_a_name_that_somebody_else_has_is_passed_over():
    world = World(a_deployment())
    foreign = {"m-server-r0", "m-server-r0-1"}
    seen = world.seen()

    steps = plan(world.deployment, replace(seen, taken=foreign.__contains__))

    assert [step.name for step in steps.submits] == ["m-server-r0-2"]


def test_many_replicas_come_in_bounded_commits():
    world = World(replicas(a_deployment(), 1000))

    while not (steps := world.step()).empty:
        assert len(steps.submits) <= 200
        assert steps.documents <= 110

    world.admit()
    while not (steps := world.step()).empty:
        assert steps.documents <= 110
    assert len(world.pods) == 1000


def test_a_slots_attempt_never_goes_back():
    rng = random.Random(7)
    world = World(replicas(a_deployment(), 2))
    highest: dict[tuple[str, int], int] = {}
    uids: set[str] = set()

    for _ in range(400):
        _do_something(rng, world)
        for step in world.step(resync=rng.random() < 0.1).submits:
            uids.add(step.uid)
        for slot in world.deployment.status.slots:
            key = (slot.role, slot.ordinal)
            assert slot.attempt >= highest.get(key, 0)
            highest[key] = slot.attempt
        _check(world)

    world.lost, world.nodes = set(), {"n1", "n2"}
    world.deployment = replicas(with_role(world.deployment, extra_args=[]), 3)
    world.bring_up()
    assert len(world.pods) == 3
    assert len(world.workloads) == 3


def _do_something(rng: random.Random, world: World) -> None:
    choice = rng.randrange(9)
    if choice == 0:
        world.deployment = replicas(world.deployment, rng.randrange(4))
    elif choice == 1:
        world.deployment = with_role(world.deployment, extra_args=[f"--v{rng.randrange(3)}"])
    elif choice == 2:
        world.lost = {rng.choice(["n1", "n2"])} if rng.random() < 0.5 else set()
    elif choice == 3 and world.pods:
        name = rng.choice(sorted(world.pods))
        world.pods[name] = deleting(world.pods[name])
    elif choice == 4 and world.workloads:
        name = rng.choice(sorted(world.workloads))
        found = world.workloads[name]
        if found.status.admission is not None:
            node = found.status.admission.pod_set_assignments[0].node_name
            world.workloads[name] = a_workload(name, found.uid, node=node, Evicted="True")
    elif choice == 5:
        world.admit(rng.choice(["n1", "n2"]))
    elif choice == 6:
        world.nodes = {"n1"} if rng.random() < 0.2 else {"n1", "n2"}
    else:
        world.run(ready=rng.random() < 0.8)


def _check(world: World) -> None:
    """Devices are safe: a Pod that may run has a Workload that is not taken back."""
    for name, pod in world.pods.items():
        if pod.spec.node_name in world.nodes:
            assert name in world.workloads or not _runs(pod), name


def _runs(pod) -> bool:
    return not any(c.type == "Stopped" and c.status == "True" for c in pod.status.conditions)


def test_names_and_identities_are_the_ones_documented():
    deployment = a_deployment("chat", roles=[a_role(name="server")])

    assert submitted_name(deployment, 1) == "chat-server-r1"
    assert submitted_name(deployment, 1, 2) == "chat-server-r1-2"
    assert submitted_uid(deployment) == submitted_uid(with_role(deployment, extra_args=["--x"]))
    assert submitted_uid(deployment) != submitted_uid(deployment, attempt=1)
    assert ReplicaSlot(role="server", ordinal=0).open
