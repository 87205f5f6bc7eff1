"""Engines that fail, agents and controllers that are killed, nodes that vanish: the end is the same, and never two engines."""

import asyncio
import os
import signal
import sys

import pytest

from services.deployer.agent.pods import PodAgent
from services.deployer.drivers.engine_http import HttpProber
from services.deployer.drivers.simulated import SimulatedRuntime
from services.deployer.drivers.simulated_server import SimulatedHost
from shared.clock import SystemClock
from shared.events import deployment as d
from shared.queries import DesiredPodsAnswer, StoppingPod, WantedPod
from shared.reports import PodsReported, PodState
from shared.store.client import Store
from shared.store.documents import Commit, Delete
from tests.integration.deployer.conftest import get, is_ready
from tests.support.wait import eventually

BROKEN = [
    sys.executable,
    "-c",
    "import sys; print('loading'); print('CUDA out of memory', file=sys.stderr); sys.exit(1)",
]


async def started(house, **settings):
    """A controller, a pool, a host with its agent, and one replica that is ready."""
    house.controller(**settings).start().ready()
    await house.pool()
    await house.node()
    agent = house.agent().start()
    await house.deploy()
    return agent, (await house.available())["m-server-r0"]


async def container(house, name):
    pod = await house.pod(name)
    return pod.status.container_statuses[0] if pod is not None and pod.status.container_statuses else None


async def test_an_engine_that_always_exits_is_shown_with_code_count_and_last_line(house):
    house.controller().start().ready()
    await house.pool()
    await house.node()
    house.agent().start()
    await house.deploy(engine={"name": "Custom"}, role={"command": BROKEN})

    async def crashed_often():
        found = await container(house, "m-server-r0")
        waiting = found is not None and found.restart_count >= 2 and found.state.waiting
        return found if waiting and waiting["reason"] == "CrashLoopBackOff" else None

    found = await eventually(crashed_often, timeout=30)

    assert found.last_state.terminated["exitCode"] == 1
    assert "CUDA out of memory" in found.state.waiting["message"]
    assert "next start after 2 s" in found.state.waiting["message"]

    async def told():
        status, reason, message = await house.told("Available")
        return (
            status == "False"
            and reason == "CrashLoopBackOff"
            and "exit code 1" in message
            and "out of memory" in message
        )

    await eventually(told)
    failed = house.heard(d.ReplicaFailed, name="m-server-r0")
    assert failed[0].exit_code == 1
    assert [fact.restarts for fact in failed] == sorted({fact.restarts for fact in failed})
    assert "loading" in await house.log(await house.pod("m-server-r0"), previous=True)


async def test_an_engine_that_dies_is_started_again_in_its_place(house):
    _, pod = await started(house)
    (engine,) = house.engines(pod)

    os.kill(engine, signal.SIGKILL)
    await eventually(lambda: house.heard(d.ReplicaFailed, name=pod.name))

    async def back():
        found = await house.pod(pod.name)
        return found if is_ready(found) and found.status.container_statuses[0].restart_count == 1 else None

    again = await eventually(back)
    assert again.uid == pod.uid
    assert house.heard(d.ReplicaFailed)[0].exit_code == 137
    assert len(house.engines(pod)) == 1
    assert (await get(again, "/health"))[0] == 200
    assert again.status.endpoint.token != pod.status.endpoint.token


async def test_a_shim_that_dies_costs_no_request(house):
    _, pod = await started(house)
    (engine,) = house.engines(pod)

    os.kill(house.folder(pod).read("shim.json")["pid"], signal.SIGKILL)
    await asyncio.sleep(0.5)

    assert house.engines(pod) == [engine]
    assert (await get(pod, "/health"))[0] == 200
    assert not house.heard(d.ReplicaUnready)
    await house.delete("ModelDeployment", "m")
    await house.gone("ModelDeployment", "m")
    assert not house.engines(pod)


@pytest.mark.parametrize(
    "point", ["deployer-agent.before-start", "deployer-agent.after-start", "deployer-agent.before-report"]
)
async def test_an_agent_that_is_killed_anywhere_leads_to_one_engine(house, tmp_path, point):
    house.controller().start().ready()
    await house.pool()
    await house.node()
    flag = tmp_path / "flag"
    agent = house.agent()
    agent.start()
    agent.ready()
    flag.touch()
    agent.end()
    agent.start(GPUBUS_FAULTS=f"{point}=kill@{flag}")
    await house.deploy()
    await asyncio.to_thread(agent.ended)

    agent.start()
    pod = (await house.available())["m-server-r0"]

    assert not flag.exists()
    assert len(house.engines(pod)) == 1
    assert (await get(pod, "/health"))[0] == 200
    assert house.scheduler.submitted == ["m-server-r0"]


async def test_an_agent_that_was_away_adopts_what_runs(house):
    agent, pod = await started(house)
    (engine,) = house.engines(pod)

    agent.kill()
    assert (await get(pod, "/health"))[0] == 200, "traffic goes on"
    agent.start().ready()
    await eventually(lambda: agent.logged("pods_adopted"))
    await asyncio.sleep(0.5)

    assert house.engines(pod) == [engine]
    assert not house.heard(d.ReplicaUnready)
    assert len(house.heard(d.ReplicaReady)) == 1
    await house.delete("ModelDeployment", "m")
    await house.gone("ModelDeployment", "m")
    assert not house.engines(pod)


async def test_an_engine_that_died_while_the_agent_was_away_is_started_again(house):
    agent, pod = await started(house)
    agent.kill()
    os.kill(house.engines(pod)[0], signal.SIGKILL)

    agent.start()

    async def back():
        found = await house.pod(pod.name)
        return is_ready(found) and found.status.container_statuses[0].restart_count == 1

    await eventually(back)
    assert len(house.engines(pod)) == 1


async def test_a_replica_deleted_while_the_agent_was_away_is_stopped_before_its_devices_are_free(house):
    agent, pod = await started(house)
    agent.kill()
    await house.delete("ModelDeployment", "m")
    await asyncio.sleep(1)
    assert house.scheduler.cancelled == []
    assert await house.deployment() is not None

    agent.start()

    await house.gone("ModelDeployment", "m")
    assert not house.engines(pod)
    assert house.scheduler.cancelled == ["m-server-r0"]


async def test_sigterm_leaves_engines_alone_and_stops_them_when_the_stack_ends(house):
    agent, pod = await started(house)
    (engine,) = house.engines(pod)

    assert agent.end() == 0
    assert house.engines(pod) == [engine]
    agent.start().ready()
    run = house.data_dir() / "run"
    run.mkdir(exist_ok=True)
    (run / "stopping").touch()
    assert agent.end() == 0

    assert not house.engines(pod)


@pytest.mark.parametrize("point", ["deployer.before-commit", "deployer.after-commit"])
async def test_a_controller_that_is_killed_at_each_commit_in_turn_ends_the_same(house, tmp_path, point):
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    flag = tmp_path / "flag"
    controller = house.controller(GPUBUS_FAULTS=f"{point}=kill@{flag}")
    keeper = asyncio.ensure_future(_kept(controller, flag))
    try:
        await eventually(lambda: controller.running and controller.http("/readyz").startswith("HTTP/1.1 200"))
        await house.deploy(role={"replicas": 2})
        await house.available(count=2, timeout=50)
        assert sorted(house.scheduler.submitted) == ["m-server-r0", "m-server-r1"]
        await _retried(lambda: house.edit(replicas=1))
        await eventually(lambda: _names(house, ["m-server-r0"]), timeout=50)
        await _retried(lambda: house.delete("ModelDeployment", "m"))
        await house.gone("ModelDeployment", "m", timeout=50)
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    assert await house.workloads() == {}
    await eventually(lambda: house.heard(d.DeploymentRemoved))
    assert len(house.heard(d.DeploymentRemoved)) == 1
    assert len(house.heard(d.ReplicaReady, name="m-server-r0")) == 1
    assert sorted(fact.name for fact in house.heard(d.ReplicaStopped)) == ["m-server-r0", "m-server-r1"]


async def _kept(controller, flag):
    """Start it again whenever it dies; arm the fault again a few times."""
    for _ in range(8):
        flag.touch()
        controller.start()
        while controller.process.poll() is None:
            await asyncio.sleep(0.05)
        controller.process = None
    controller.start()
    await asyncio.sleep(3600)


async def _retried(call):
    for _ in range(100):
        try:
            answer = await call()
        except Exception:
            await asyncio.sleep(0.1)
            continue
        if answer.error is None:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("never answered")


async def _names(house, wanted):
    return sorted(await house.pods()) == wanted and sorted(await house.workloads()) == wanted


async def test_three_copies_do_everything_once(house):
    for number in range(3):
        house.controller(f"deployer-{number}").start()
    for child in house.children:
        child.ready()
    await house.pool()
    await house.simulated("s1", "s2", "s3")
    house.scheduler.nodes = ["s1", "s2", "s3"]

    await asyncio.gather(*(house.deploy(f"m{i}", role={"replicas": 3}) for i in range(6)))
    for i in range(6):
        await house.available(f"m{i}")

    assert len(house.scheduler.submitted) == len(set(house.scheduler.submitted)) == 18
    await eventually(lambda: len(house.heard(d.ReplicaReady)) == 18)
    assert len(house.heard(d.DeploymentAvailable)) == 6
    await asyncio.gather(*(house.delete("ModelDeployment", f"m{i}") for i in range(6)))
    for i in range(6):
        await house.gone("ModelDeployment", f"m{i}")
    assert await house.pods() == {}
    assert await house.workloads() == {}
    await eventually(lambda: len(house.heard(d.DeploymentRemoved)) == 6)
    assert len(house.heard(d.ReplicaStopped)) == 18


async def test_a_frozen_copy_changes_nothing_when_it_thaws(house):
    first = house.controller("deployer-1").start()
    second = house.controller("deployer-2").start()
    first.ready()
    second.ready()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    first.send(signal.SIGSTOP)

    await _retried(house.deploy)
    await house.available(count=1, timeout=40)
    await _retried(lambda: house.edit(replicas=2))
    await house.available(count=2, timeout=40)
    first.send(signal.SIGCONT)
    await asyncio.sleep(2)

    assert sorted(await house.pods()) == ["m-server-r0", "m-server-r1"]
    assert sorted(house.scheduler.submitted) == ["m-server-r0", "m-server-r1"]


async def test_a_lost_nodes_replicas_are_made_elsewhere_and_the_surplus_stops_on_return(house):
    house.controller().start().ready()
    await house.pool()
    await house.simulated("s1", "s2")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)
    house.scheduler.nodes = ["s2"]

    await house.lose("s1")
    await house.available(count=1)

    pods = await house.pods()
    assert pods["m-server-r0-1"].spec.node_name == "s2"
    assert "m-server-r0" in pods, "its cards are held until its node says that it is stopped"
    assert house.heard(d.ReplicaUnready, name="m-server-r0")[0].reason == "NodeLost"

    await house.find("s1")
    await eventually(lambda: _names(house, ["m-server-r0-1"]))


async def test_replacement_waits_for_the_grace_and_a_node_that_returns_in_time_keeps_its_replicas(house):
    house.controller(GPUBUS_REPLACE_AFTER_SECONDS="3").start().ready()
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
    house.controller().start().ready()
    await house.pool()
    await house.simulated("s1", "s2")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)
    house.scheduler.nodes = ["s2"]

    await house.lose("s1")
    await house.remove_node("s1")

    await house.available(count=1)
    await eventually(lambda: _names(house, ["m-server-r0-1"]))


async def test_an_agent_of_another_machine_changes_nothing(house):
    agent, pod = await started(house)
    (engine,) = house.engines(pod)

    await house.node(machine="another")
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


def _collect(into):
    async def collect(message):
        into.append(message.data.decode())

    return collect


async def test_reports_that_come_late_twice_or_from_an_earlier_start_change_nothing(house):
    house.controller().start().ready()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    pod = (await house.available(count=1))["m-server-r0"]
    before = await house.store.get("Pod", "default", pod.name)

    for sequence in (pod.status.observed_sequence, pod.status.observed_sequence - 1, 1):
        state = PodState(uid=pod.uid, phase="Failed", exit_code=1)
        late = PodsReported(node="s1", incarnation="earlier", sequence=sequence, epoch=house.store.epoch, pods=[state])
        await house.bus.report(late)
    await asyncio.sleep(0.5)

    assert (await house.store.get("Pod", "default", pod.name)).revision == before.revision


async def test_broken_reports_are_parked_and_harm_nobody(house):
    controller = house.controller().start().ready()
    for body in (b"\xff\xfe", b"{}", b'{"specversion":"1.0","data":{"pods":"x"}}'):
        await house.bus.connection.jetstream().publish("gpubus.rep.deployer.pods.v1.n1._", body)

    await eventually(lambda: controller.http("/metrics").count("gpubus_dead_letters_total{") >= 1)

    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)


@pytest.fixture
async def lone(house):
    """An agent that nobody answers, to be told by the test."""
    host, clock = SimulatedHost(), SystemClock()
    await host.start()
    house.hosts.append(host)
    agent = PodAgent(
        node="lone", bus=house.bus, runtime=SimulatedRuntime(host, clock=clock), prober=HttpProber(), clock=clock,
        machine_id="x",
    )  # fmt: skip
    house.tasks.append(asyncio.ensure_future(agent.run()))
    await asyncio.sleep(0.05)
    return agent


def wanted(uid: str, **fields) -> WantedPod:
    pod = {"spec": {"containers": [{"name": "c", "command": ["serve"], "ports": [{"containerPort": 1}]}]}}
    return WantedPod(uid=uid, namespace="default", name=uid, pod=pod, engine="vLLM", served_model="m", **fields)


def phase(agent, uid):
    keeper = agent.keepers.get(uid)
    return keeper.state().phase if keeper is not None else None


async def test_older_answers_are_ignored_and_the_newest_is_obeyed(lone):
    assert lone.take(DesiredPodsAnswer(epoch="e", revision=10, pods=[wanted("a")]))
    await eventually(lambda: phase(lone, "a") == "Running")

    assert not lone.take(DesiredPodsAnswer(epoch="e", revision=9, pods=[]))
    assert not lone.take(DesiredPodsAnswer(epoch="e", revision=11, refused="another machine"))
    await asyncio.sleep(0.1)
    assert phase(lone, "a") == "Running"

    assert lone.take(DesiredPodsAnswer(epoch="e", revision=12, stopping=[StoppingPod(uid="a"), StoppingPod(uid="b")]))
    await eventually(lambda: phase(lone, "a") == phase(lone, "b") == "Stopped")
    assert lone.take(DesiredPodsAnswer(epoch="e", revision=13))
    await eventually(lambda: not lone.keepers)


async def test_the_same_answer_again_starts_nothing_again(lone):
    for _ in range(3):
        assert lone.take(DesiredPodsAnswer(epoch="e", revision=10, pods=[wanted("a")]))
        await asyncio.sleep(0.05)

    assert lone.keepers["a"].state().restarts == 0


async def test_one_pod_that_cannot_be_read_holds_up_no_other(lone):
    broken = WantedPod(uid="b", namespace="default", name="b", pod={"spec": {"containers": "none"}})

    lone.take(DesiredPodsAnswer(epoch="e", revision=10, pods=[broken, wanted("a")]))

    await eventually(lambda: phase(lone, "a") == "Running")


async def test_a_pod_that_waits_for_weights_is_not_started_and_one_that_runs_goes_on(lone):
    lone.take(DesiredPodsAnswer(epoch="e", revision=10, pods=[wanted("a", hold="no weights"), wanted("b")]))
    await eventually(lambda: phase(lone, "b") == "Running")
    assert lone.keepers["a"].state().message == "no weights"

    lone.take(DesiredPodsAnswer(epoch="e", revision=11, pods=[wanted("a"), wanted("b", hold="evicted")]))

    await eventually(lambda: phase(lone, "a") == "Running")
    assert phase(lone, "b") == "Running"
