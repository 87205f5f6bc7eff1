"""What one node should run, as its agent is told."""

import pytest

from services.deployer.agent.launch import Recipe
from services.deployer.domain import desired
from services.deployer.domain.running import Place
from shared.resources.artifact import NodeModelStore
from shared.resources.core import Node
from tests.support.deployer import DIGEST, World, a_deployment, a_plain_pod, deleting

PLACE = Place(host="10.0.0.1", address="10.0.0.1", port=9000, token="secret")


def a_node(*, machine: str = "m-1", simulated: bool = False) -> Node:
    labels = {"gpubus.io/simulated": "true"} if simulated else {}
    body = {"metadata": {"name": "n1", "labels": labels}, "status": {"nodeInfo": {"machineId": machine}}}
    return Node.model_validate(body)


def a_store(state: str = "Ready", digest: str = DIGEST) -> NodeModelStore:
    model = {"digest": digest, "state": state, "path": "/models/x" if state == "Ready" else "", "message": "why"}
    return NodeModelStore.model_validate({"metadata": {"name": "n1"}, "status": {"models": [model]}})


def a_replica(**deployment):
    world = World(a_deployment(**deployment))
    world.settle()
    world.admit()
    world.settle()
    return world.pods["m-server-r0"], world.workloads["m-server-r0"]


def test_an_agent_speaks_for_its_own_machine_only():
    assert desired.refusal(a_node(), "m-1") == ""
    assert "another machine" in desired.refusal(a_node(), "m-2")
    assert desired.refusal(a_node(machine=""), "m-2") == "", "nothing is known yet"
    assert desired.refusal(None, "m-1") == desired.MEMBER_UNKNOWN


def test_what_it_holds_goes_with_it():
    pod, workload = a_replica()

    wanted = desired.wanted(pod, workload, a_node(), None)

    assert (wanted.uid, wanted.name, wanted.workload) == (pod.uid, "m-server-r0", "m-server-r0")
    assert wanted.devices == ["GPU-1"]
    assert (wanted.cpu_milli, wanted.memory_bytes) == (2000, 1 << 30)
    assert (wanted.engine, wanted.served_model, wanted.hold) == ("Simulated", "m1", "")
    assert "status" not in wanted.pod, "a report must not change what is wanted"


@pytest.mark.parametrize(("simulated", "runtime"), [(True, "simulated"), (False, "process")])
def test_the_node_decides_how_it_runs(simulated, runtime):
    pod, workload = a_replica()

    assert desired.wanted(pod, workload, a_node(simulated=simulated), None).runtime == runtime


def test_a_pod_that_must_stop_has_its_grace():
    pod = deleting(a_plain_pod(nodeName="n1", terminationGracePeriodSeconds=7))

    assert desired.stopping(pod).grace_seconds == 7
    metadata = pod.metadata.model_copy(update={"deletion_grace_period_seconds": 2})
    assert desired.stopping(pod.model_copy(update={"metadata": metadata})).grace_seconds == 2


@pytest.mark.parametrize(
    ("store", "path"),
    [(None, ""), (a_store("Downloading"), ""), (a_store("Failed"), ""), (a_store(digest="other"), ""), (a_store(), "/models/x")],
)  # fmt: skip
def test_weights_are_used_when_they_are_ready_and_the_right_ones(store, path):
    assert desired.model_path(store, DIGEST) == path


def test_copies_of_other_weights_are_nobodys_matter():
    stores = {"n1": a_store("Failed"), "n2": a_store(digest="other")}

    assert desired.copies(stores, DIGEST) == {"n1": ("Failed", "why")}


def launched(pod, **fields):
    wanted = desired.wanted(pod, None, a_node(), None).model_copy(update=fields)
    return Recipe.of(wanted).launch("n1", PLACE, 3, {})


def test_a_start_knows_its_place_and_sees_its_own_cards_only():
    container = {
        "name": "c", "command": ["serve", "--port", "$(GPUBUS_PORT)", "$$(X)", "$(UNKNOWN)"], "args": ["$(WHO)"],
        "env": [{"name": "WHO", "value": "$(GPUBUS_POD_NAME)"}, {"name": "CUDA_VISIBLE_DEVICES", "value": "all"}, {"name": "GPUBUS_PORT", "value": "1"}],
    }  # fmt: skip

    launch = launched(a_plain_pod(containers=[container]), devices=["GPU-7", "GPU-9"])

    assert launch.argv == ("serve", "--port", "9000", "$(X)", "$(UNKNOWN)", "p")
    assert launch.run == 3
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "GPU-7,GPU-9", "a tenant cannot widen what it sees"
    assert launch.env["GPUBUS_PORT"] == "9000"
    assert launch.env["GPUBUS_REPLICA_TOKEN"] == "secret"


def test_a_pod_without_cards_sees_none():
    assert launched(a_plain_pod()).env["NVIDIA_VISIBLE_DEVICES"] == ""
