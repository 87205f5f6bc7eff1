"""Nodes, the bus and the store that vanish and come back: replicas are made elsewhere, surplus is stopped, nothing is doubled."""

import asyncio
import os
import signal

import pytest

from shared.clock import SystemClock
from shared.events import deployment as d
from shared.store.client import Store
from shared.store.documents import Commit, Delete
from tests.integration.deployer.conftest import eventually, get, is_ready, names_are, retried, started
from tests.support.aof import cut_last_transactions


async def test_a_lost_nodes_replicas_are_made_elsewhere_and_the_surplus_stops_on_return(house):
    await house.control()
    await house.pool()
    await house.simulated("s1", "s2")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)
    house.scheduler.nodes = ["s2"]

    await house.silence("s1")
    await house.lose("s1")
    await eventually(lambda: house.heard(d.ReplicaUnready))
    await house.available(count=1)

    pods = await house.pods()
    assert pods["m-server-r0-1"].spec.node_name == "s2"
    assert "m-server-r0" in pods, "its cards are held until its node says that it is stopped"
    await house.all_heard()
    assert house.heard(d.ReplicaUnready, name="m-server-r0")[0].reason == "NodeLost"

    await house.find("s1")
    house.hear("s1")
    await eventually(lambda: names_are(house, ["m-server-r0-1"]))
    await house.all_heard()
    assert [fact.name for fact in house.heard(d.ReplicaStopped)] == ["m-server-r0"]


async def test_replacement_waits_for_the_grace_and_a_node_that_returns_in_time_keeps_its_replicas(house):
    await house.control(GPUBUS_REPLACE_AFTER_SECONDS="3")
    await house.pool()
    await house.simulated("s1", "s2")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)
    house.scheduler.nodes = ["s2"]

    await house.lose("s1")
    await eventually(lambda: house.heard(d.ReplicaUnready))
    assert sorted(await house.pods()) == ["m-server-r0"]
    await house.find("s1")
    await house.available(count=1)
    await asyncio.sleep(3.5)
    assert sorted(await house.pods()) == ["m-server-r0"]

    await house.lose("s1")

    async def replaced():
        return "m-server-r0-1" in await house.pods()

    await eventually(replaced)


async def test_a_removed_nodes_replicas_are_forgotten_and_made_elsewhere(house):
    await house.control()
    await house.pool()
    await house.simulated("s1", "s2")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)
    house.scheduler.nodes = ["s2"]

    await house.silence("s1")
    await house.lose("s1")
    await house.remove_node("s1")

    await house.available(count=1)
    await eventually(lambda: names_are(house, ["m-server-r0-1"]))


async def test_an_agent_of_another_machine_changes_nothing(house):
    agent, pod = await started(house)
    (engine,) = house.engines(pod)

    await house.node(machine="another")
    await house.bus.wake("n1", 0)
    await eventually(lambda: agent.logged("desired_refused"), timeout=15)
    await house.delete("ModelDeployment", "m")
    await asyncio.sleep(1)

    assert house.engines(pod) == [engine]
    await house.node()
    await house.gone("ModelDeployment", "m")
    assert not house.engines(pod)


async def test_engines_go_on_while_the_bus_is_away_and_what_happened_is_told_after(house):
    _, pod = await started(house)
    house.nats.kill()
    assert (await get(pod, "/health"))[0] == 200
    os.kill(house.engines(pod)[0], signal.SIGKILL)
    await eventually(lambda: len(house.engines(pod)) == 1, timeout=20)
    house.nats.start()

    async def told():
        found = await house.pod(pod.name)
        return is_ready(found) and found.status.container_statuses[0].restart_count == 1

    await eventually(told, timeout=30)


async def test_a_pod_that_the_store_forgot_is_stopped_as_an_orphan(house):
    _, pod = await started(house)
    store = await Store.connect(url=house.redis.url, service="deployer", instance="thief", clock=SystemClock())
    await store.commit(Commit(deletes=(Delete("Pod", "default", pod.name), Delete("ModelDeployment", "default", "m"))))
    await store.close()
    await house.bus.wake("n1", 0)

    await eventually(lambda: not house.engines(pod), timeout=20)
    await eventually(lambda: not list((house.data_dir() / "pods").iterdir()), timeout=20)


async def test_a_new_epoch_makes_agents_report_again(house):
    _, pod = await started(house)
    reports = []
    await house.bus.listen("gpubus.rep.deployer.pods.v1.n1.>", _collect(reports))

    house.redis.restart(clean=False)

    await eventually(lambda: reports, timeout=20)
    assert len(house.engines(pod)) == 1
    assert pod.uid in reports[-1]


@pytest.mark.parametrize("lost", [1, 3, 5, 8])
async def test_a_store_that_lost_its_last_writes_ends_with_exactly_one_engine(house, lost):
    _, pod = await started(house)
    house.redis.kill()
    cut_last_transactions(house.redis, lost)
    house.redis.start()

    await retried(house.deploy, "AlreadyExists")
    await house.available(count=1, timeout=50)

    async def one():
        (pod,) = (await house.pods()).values()
        uids = [entry.name for entry in (house.data_dir() / "pods").iterdir()]
        return uids == [pod.uid] and len(house.engines(pod)) == 1

    await eventually(one, timeout=30)
    assert len(await house.workloads()) == 1
    await house.all_heard()
    assert pod.name in {fact.name for fact in house.heard(d.ReplicaReady)}


async def test_an_agent_that_froze_while_its_node_was_given_up_stops_the_surplus_when_it_thaws(house):
    agent, pod = await started(house)
    (engine,) = house.engines(pod)
    await house.simulated("s1")
    agent.send(signal.SIGSTOP)
    house.scheduler.nodes = ["s1"]
    await house.lose("n1")
    await eventually(lambda: house.heard(d.ReplicaUnready, name="m-server-r0"))
    await house.available(count=1)
    assert house.engines(pod) == [engine], "its cards are still its own"
    assert house.scheduler.cancelled == []

    agent.send(signal.SIGCONT)
    await house.find("n1")

    await eventually(lambda: names_are(house, ["m-server-r0-1"]), timeout=20)
    assert not house.engines(pod)
    assert house.scheduler.cancelled == ["m-server-r0"]
    assert len(house.heard(d.ReplicaReady, name="m-server-r0")) == 1


def _collect(into):
    async def collect(message):
        into.append(message.data.decode())

    return collect
