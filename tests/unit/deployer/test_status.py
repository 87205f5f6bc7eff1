"""A deployment's conditions say what is and why."""

import pytest

from services.deployer.domain import status
from services.deployer.domain.render import Weights
from shared.resources.base import get_condition
from tests.support.deployer import (
    GPU_POOL,
    NOW,
    World,
    a_deployment,
    a_role,
    a_workload,
    an_artifact,
    replicas,
    with_role,
)

ARTIFACT = {"name": "m1", "artifactRef": {"name": "weights"}}


def status_of(world: World):
    deployment = world.deployment
    return status.status(deployment, world.seen(), deployment.status.slots, NOW)


def told(world: World, kind: str) -> tuple[str, str, str]:
    found = get_condition(status_of(world).conditions, kind)
    return found.status, found.reason, found.message


def test_a_ready_deployment_is_available_and_up_to_date():
    world = World(replicas(a_deployment(), 2))
    world.bring_up()

    assert told(world, "Available")[:2] == ("True", "AllReplicasReady")
    assert told(world, "QuotaReserved")[:2] == ("True", "Reserved")
    assert told(world, "ReplicasUpToDate")[:2] == ("True", "UpToDate")
    assert told(world, "WeightsReady")[:2] == ("True", "NotApplicable")
    assert told(world, "CacheAttached")[:2] == ("True", "NotApplicable")
    assert [(r.desired, r.ready, r.quota_reserved) for r in status_of(world).roles] == [(2, 2, 2)]
    assert status_of(world).role_summary == "2R"


def test_why_the_scheduler_lets_it_wait_is_repeated():
    world = World(a_deployment())
    world.settle()
    name, found = next(iter(world.workloads.items()))
    world.workloads[name] = a_workload(
        name, found.uid, QuotaReserved="False:NoCapacity:needs 2 cards, the largest node has 1"
    )

    assert told(world, "QuotaReserved")[:2] == ("False", "Pending")
    assert "needs 2 cards, the largest node has 1" in told(world, "QuotaReserved")[2]


def test_a_refused_submission_stays_told_until_the_spec_changes():
    world = World(a_deployment())
    world.settle()
    world.workloads.clear()
    world.more["refused"] = "no such resource"
    refused = status_of(world)
    world.deployment = world.deployment.model_copy(update={"status": refused})
    world.more.pop("refused")

    assert told(world, "QuotaReserved")[1:] == ("Invalid", "no such resource")
    metadata = world.deployment.metadata.model_copy(update={"generation": 2})
    world.deployment = world.deployment.model_copy(update={"metadata": metadata})
    assert told(world, "QuotaReserved")[1] == "AdmissionInFlight"


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (a_deployment(engine="vLLM", roles=[a_role(kind="Prefill"), a_role(name="d", kind="Decode")]), "Prefill roles"),
        (a_deployment(engine="vLLM", roles=[a_role(size=2)]), "replicas of 2 Pods"),
        (a_deployment(engine="vLLM", router={"name": "vllm-router"}), "routers"),
        (a_deployment(roles=[a_role(additionalVolumes=[{"mountPath": "/x"}])]), "container runtime"),
    ],
)
def test_what_is_not_served_yet_is_said_and_not_half_run(deployment, words):
    world = World(deployment)
    world.settle()

    assert told(world, "Available")[:2] == ("False", "NotServedYet")
    assert words in told(world, "Available")[2]
    assert not world.submitted


def test_an_engine_without_a_process_needs_simulated_nodes():
    world = World(a_deployment(engine="vLLM"), simulated=False)
    world.settle()

    assert told(world, "Available")[1] == "NotServedYet"
    world.more["simulated"] = True
    world.settle()
    spec = world.seen().workloads["m-server-r0"]
    assert spec is not None


def test_a_pool_that_is_not_there_is_named():
    world = World(a_deployment(), pools={})
    world.settle()

    assert told(world, "QuotaReserved")[:2] == ("False", "InstanceTypeNotFound")


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"artifact": None}, "ArtifactNotFound"),
        ({"artifact": an_artifact(resolved=False)}, "ArtifactNotResolved"),
        (
            {
                "artifact": an_artifact(),
                "weights": Weights(resolved=an_artifact().status.resolved, paths=("a.gguf", "b.gguf")),
            },
            "UnsuitableWeights",
        ),
    ],
)
def test_what_is_wrong_with_the_weights_is_said(seen, reason):
    world = World(a_deployment(engine="LlamaCpp", model=ARTIFACT), **seen)
    world.settle()

    assert told(world, "WeightsReady")[:2] == ("False", reason)
    assert not world.submitted


def weighted(**more) -> World:
    artifact = an_artifact()
    weights = Weights(resolved=artifact.status.resolved, paths=("m.gguf",))
    world = World(a_deployment(engine="LlamaCpp", model=ARTIFACT), artifact=artifact, weights=weights, **more)
    world.bring_up()
    return world


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ({}, ("False", "Materializing")),
        ({"n1": ("Downloading", "")}, ("False", "Materializing")),
        ({"n1": ("Failed", "disk full")}, ("False", "MaterializationFailed")),
        ({"n1": ("Ready", "")}, ("True", "Mounted")),
    ],
)
def test_delivery_is_followed(copies, expected):
    assert told(weighted(copies=copies), "WeightsReady")[:2] == expected


def test_llamacpp_is_told_its_one_file_and_its_threads():
    command = weighted().pods["m-server-r0"].spec.containers[0].command

    assert command[command.index("--model") + 1] == "$(GPUBUS_MODEL_PATH)/m.gguf"
    assert command[command.index("--threads") + 1] == "1", "2 cores: one is left to everybody else"
    assert command[command.index("--alias") + 1] == "m1"


def test_a_rollout_is_shown_while_it_goes_on():
    world = World(replicas(a_deployment(), 2))
    world.bring_up()

    world.deployment = with_role(world.deployment, extra_args=["--x"])

    assert told(world, "ReplicasUpToDate")[:2] == ("False", "RolloutInProgress")


def test_a_failing_replica_is_named_with_its_reason():
    world = World(replicas(a_deployment(), 2))
    world.bring_up()

    world.unready("m-server-r1")

    assert told(world, "Available") == ("False", "X", "1 of 2 replicas are ready; m-server-r1: X")


def test_a_cache_that_is_named_is_said_to_be_missing():
    world = World(a_deployment(kvCache={"poolRef": {"name": "c"}}))

    assert told(world, "CacheAttached")[:2] == ("Unknown", "NotServedYet")


def test_facts_tell_the_turns_of_availability():
    world = World(a_deployment())
    world.bring_up()
    up = status_of(world)

    assert [type(f).__name__ for f in status.facts(world.deployment, up)] == ["DeploymentAvailable"]
    world.deployment = world.deployment.model_copy(update={"status": up})
    assert status.facts(world.deployment, up) == ()
    world.unready("m-server-r0")
    assert [type(f).__name__ for f in status.facts(world.deployment, status_of(world))] == ["DeploymentDegraded"]


@pytest.mark.parametrize(
    ("resources", "keys"),
    [
        ({}, {"nvidia.com/gpu": "1", "cpu": "4", "memory": "16Gi"}),
        ({"accelerator": 2}, {"nvidia.com/gpu": "2", "cpu": "8", "memory": "32Gi"}),
        ({"accelerator": 1, "cpu": "500m", "ram": "1Gi"}, {"nvidia.com/gpu": "1", "cpu": "500m", "memory": "1Gi"}),
        (
            {"acceleratorSlicedMemoryPercentage": 20},
            {
                "nvidia.com/gpu.sliced": "1",
                "nvidia.com/gpu.sliced.memory-percentage": "20",
                "nvidia.com/gpu.sliced.cores-percentage": "20",
                "cpu": "4",
                "memory": "16Gi",
            },
        ),
        (
            {"acceleratorPartitionedProfile": "3g.40gb"},
            {
                "nvidia.com/gpu.partitioned": "1",
                "nvidia.com/gpu.partitioned.mig-3g.40gb": "1",
                "cpu": "4",
                "memory": "16Gi",
            },
        ),
    ],
)
def test_resources_become_the_references_keys(resources, keys):
    world = World(a_deployment(roles=[a_role(instanceType=GPU_POOL, resources=resources)]))
    world.settle()
    world.admit()
    world.settle()

    assert world.pods["m-server-r0"].spec.containers[0].resources.limits == keys
    assert world.pods["m-server-r0"].spec.containers[0].resources.requests == keys
