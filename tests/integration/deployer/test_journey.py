"""From a deployment to a replica that answers, and back."""

import json

from shared.events import deployment as d
from tests.integration.deployer.conftest import eventually, get, post


async def test_a_deployment_becomes_a_replica_that_answers(house):
    await house.control()
    await house.pool()
    await house.node()
    house.agent().start()

    answer = await house.deploy()
    pods = await house.available()

    assert answer.error is None
    pod = pods["m-server-r0"]
    status, headers, body = await post(
        pod, "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"]
    assert headers["x-gpubus-replica"] == pod.status.endpoint.token
    assert pod.status.endpoint.replica_uid == pod.uid
    await eventually(lambda: house.heard(d.DeploymentAvailable, name="m"))
    assert len(house.heard(d.ReplicaStarted)) == 1
    assert len(house.heard(d.ReplicaReady, deployment="m", model="m", node="n1")) == 1
    assert "simulated" in (await house.log(pod)) or (await house.log(pod)) == ""


async def test_deleting_it_stops_the_engine_first_and_frees_its_capacity_after(house):
    await house.control()
    await house.pool()
    await house.node()
    house.agent().start()
    await house.deploy()
    pod = (await house.available())["m-server-r0"]
    assert len(house.engines(pod)) == 1

    answer = await house.delete("ModelDeployment", "m")
    assert answer.object["metadata"]["deletionTimestamp"]
    await house.gone("ModelDeployment", "m")

    assert not house.engines(pod)
    assert await house.pods() == {}
    assert await house.workloads() == {}
    assert house.scheduler.cancelled == ["m-server-r0"]
    await eventually(lambda: house.heard(d.DeploymentRemoved, name="m"))
    assert len(house.heard(d.ReplicaStopped)) == 1
    await eventually(lambda: not list((house.data_dir() / "pods").iterdir()))


async def test_a_name_can_be_used_again_as_soon_as_it_is_gone(house):
    await house.control()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]

    for _ in range(5):
        assert (await house.deploy()).error is None
        await house.available(count=1)
        await house.delete("ModelDeployment", "m")
        refused = await house.deploy()
        if await house.deployment() is not None:
            assert refused.error["code"] == "AlreadyExists"
            assert "being deleted" in refused.error["message"] or refused.error is None
        await house.gone("ModelDeployment", "m")
    for _ in range(5):
        assert (await house.deploy()).error is None
        await house.delete("ModelDeployment", "m")
        await house.gone("ModelDeployment", "m")

    assert await house.pods() == {}

    async def all_given_back():
        return await house.workloads() == {}

    await eventually(all_given_back)


async def test_scaling_adds_and_sheds_replicas_and_leaves_the_others_alone(house):
    await house.control()
    await house.pool()
    await house.simulated("s1", "s2")
    house.scheduler.nodes = ["s1", "s2"]
    await house.deploy(role={"replicas": 2})
    first = await house.available(count=2)

    await house.edit(replicas=4)
    four = await house.available(count=4)
    assert {n: p.uid for n, p in first.items()}.items() <= {n: p.uid for n, p in four.items()}.items()
    await house.edit(replicas=1)

    async def one_left():
        return list(await house.pods()) == ["m-server-r0"] and list(await house.workloads()) == ["m-server-r0"]

    await eventually(one_left)
    assert (await house.pods())["m-server-r0"].uid == first["m-server-r0"].uid


async def test_why_a_replica_waits_is_shown_and_ends_when_it_is_admitted(house):
    await house.control()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    house.scheduler.hold = "needs 8 cores, the largest node has 4 free"
    await house.deploy()

    async def told():
        return (await house.told("QuotaReserved"))[1:] == ("Pending", f"1 of 1 replicas wait: {house.scheduler.hold}")

    await eventually(told)

    await house.scheduler.admit()
    await house.available(count=1)


async def test_what_was_applied_before_its_pool_and_artifact_starts_when_they_come(house, tmp_path):
    await house.control()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy(model={"name": "m", "artifactRef": {"name": "weights"}})

    async def told(kind, reason):
        return (await house.told(kind))[1] == reason

    await eventually(lambda: told("QuotaReserved", "InstanceTypeNotFound"))
    await house.pool()
    await eventually(lambda: told("WeightsReady", "ArtifactNotFound"))
    await house.artifact("weights", "model.safetensors", resolved=False)
    await eventually(lambda: told("WeightsReady", "ArtifactNotResolved"))
    digest = await house.artifact("weights", "model.safetensors")
    await eventually(lambda: told("WeightsReady", "Materializing"))

    async def waits_for_weights():
        pod = (await house.pods()).get("m-server-r0")
        return pod is not None and pod.status.container_statuses and pod.status.container_statuses[0].state.waiting

    waiting = await eventually(waits_for_weights)
    assert waiting["message"] == "the weights are not on this node yet"
    await house.deliver("weights", digest, "s1", tmp_path)
    await house.available(count=1)
    await eventually(lambda: told("WeightsReady", "Mounted"))


async def test_llamacpp_with_the_wrong_files_is_refused_or_told(house):
    await house.control()
    await house.pool()
    await house.artifact("two", "a.gguf", "b.gguf")

    refused = await house.deploy(engine={"name": "LlamaCpp"}, model={"name": "m", "artifactRef": {"name": "two"}})

    assert refused.error["code"] == "InvalidArgument"
    assert refused.error["causes"][0]["field"] == "spec.model.artifactRef"
    later = await house.deploy("l", engine={"name": "LlamaCpp"}, model={"name": "l", "artifactRef": {"name": "later"}})
    assert later.error is None
    await house.artifact("later", "config.json")

    async def told():
        return (await house.told("WeightsReady", "l"))[1] == "UnsuitableWeights"

    await eventually(told)
    assert not house.scheduler.submitted


async def test_every_engine_is_played_on_simulated_nodes_in_its_dialect(house):
    await house.control()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    dialects = {"vLLM": b"vllm:", "SGLang": b"sglang:", "Simulated": b"vllm:"}
    for engine in dialects:
        await house.deploy(engine.lower(), engine={"name": engine})
    await house.deploy("custom", engine={"name": "Custom"}, role={"command": ["serve", "--port", "$(GPUBUS_PORT)"]})

    for engine, prefix in dialects.items():
        await house.available(engine.lower())
        pod = await house.pod(f"{engine.lower()}-server-r0")
        status, _, body = await get(pod, "/metrics")
        assert status == 200
        assert prefix in body
    await house.available("custom")


async def test_an_edit_replaces_a_replica_once(house):
    await house.control()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)

    for number in range(5):
        await house.edit(extraArgs=["--cache-blocks", str(100 + number)])

    async def last_one():
        pods = await house.pods()
        return len(pods) == 1 and next(iter(pods.values())).spec.containers[0].command[-1] == "104"

    await eventually(last_one)
    await house.available(count=1)
    assert len(house.scheduler.submitted) <= 6


async def test_a_plain_pod_runs_to_its_end_and_gives_back_what_it_held(house):
    await house.control()
    await house.pool()
    await house.node()
    house.agent().start()
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "busybox", "command": ["/bin/sh", "-c", "echo $WHO; exit 3"], "env": [{"name": "WHO", "value": "$(GPUBUS_POD_NAME)"}]}],
    }  # fmt: skip

    answer = await house.write("create", "Pod", "job", {"metadata": {"labels": labels}, "spec": spec})
    assert answer.error is None, answer.error

    async def failed():
        pod = await house.pod("job")
        return pod if pod is not None and pod.status.finished == "Failed" else None

    pod = await eventually(failed)
    ended = pod.status.container_statuses[0].state.terminated
    assert ended["exitCode"] == 3
    assert ended["message"].endswith("\njob")
    assert any(c.type == "ImageNotUsed" and c.status == "True" for c in pod.status.conditions)
    assert await house.log(pod) == "job\n"

    async def given_back():
        found = (await house.workloads())["job"]
        return any(c["type"] == "Finished" and c["reason"] == "Failed" for c in found.body["status"]["conditions"])

    await eventually(given_back)
    await house.delete("Pod", "job")
    await house.gone("Pod", "job")
    await house.gone("Workload", "job")


async def test_a_preempted_replica_stops_before_its_devices_are_given_back(house):
    await house.control()
    await house.pool()
    await house.node()
    house.agent().start()
    await house.deploy()
    pod = (await house.available())["m-server-r0"]

    await house.scheduler.evict("m-server-r0")

    await house.gone("Workload", "m-server-r0")
    assert not house.engines(pod)
    await house.available(count=1)
    assert list(await house.pods()) == ["m-server-r0-1"]


async def test_a_namespace_that_goes_takes_everything_with_it(house):
    await house.control()
    await house.pool()
    await house.namespace("tenant")
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy("t", "tenant")
    workspace = {"spec": {"type": CPU, "image": "x"}}
    stored = await house.write("create", "Instance", "i", workspace, "tenant")
    assert stored.object["status"]["conditions"][0]["reason"] == "NotServedYet"
    await eventually(lambda: house.heard(d.ReplicaReady, namespace="tenant"))

    await house.remove_namespace("tenant")

    await house.gone("ModelDeployment", "t", "tenant")
    await house.gone("Instance", "i", "tenant")
    assert await house.pods("tenant") == {}


CPU = "gpustack--generic-linux-amd64"
