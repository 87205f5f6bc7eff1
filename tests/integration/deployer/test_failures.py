"""Engines that fail, agents and shims that are killed: the end is the same, and never two engines."""

import asyncio
import os
import signal
import sys

import pytest

from shared.events import deployment as d
from tests.integration.deployer.conftest import eventually, get, is_ready, started

BROKEN = [
    sys.executable,
    "-c",
    "import sys; print('loading'); print('CUDA out of memory', file=sys.stderr); sys.exit(1)",
]


async def container(house, name):
    pod = await house.pod(name)
    return pod.status.container_statuses[0] if pod is not None and pod.status.container_statuses else None


async def test_an_engine_that_always_exits_is_shown_with_code_count_and_last_line(house):
    await house.control()
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
    await house.all_heard()
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


async def test_an_engine_whose_shim_died_before_it_is_started_again_once(house):
    _, pod = await started(house)
    (engine,) = house.engines(pod)
    os.kill(house.folder(pod).read("shim.json")["pid"], signal.SIGKILL)
    os.kill(engine, signal.SIGKILL)

    async def back():
        found = await house.pod(pod.name)
        return is_ready(found) and found.status.container_statuses[0].restart_count == 1

    await eventually(back, timeout=20)
    assert len(house.engines(pod)) == 1
    (failed,) = house.heard(d.ReplicaFailed)
    assert failed.exit_code == 137
    assert "nobody saw how" in failed.message


async def test_an_engine_that_never_gets_healthy_says_what_its_probe_saw_and_can_be_deleted(house):
    await house.control()
    await house.pool()
    await house.node()
    house.agent().start()
    command = [
        sys.executable,
        "-c",
        "import time; print('loading for ever', flush=True); time.sleep(600)",
        "$(GPUBUS_PORT)",
    ]
    await house.deploy(engine={"name": "Custom"}, role={"command": command})

    async def told():
        status, reason, message = await house.told("Available")
        return status == "False" and reason == "Starting" and "m-server-r0: port " in message

    await eventually(told, timeout=20)
    pod = await house.pod("m-server-r0")
    assert not is_ready(pod)
    assert await house.log(pod) == "loading for ever\n"
    assert not house.heard(d.ReplicaReady)
    await house.delete("ModelDeployment", "m")
    await house.gone("ModelDeployment", "m")
    assert not house.engines(pod)


@pytest.mark.parametrize(
    "point", ["deployer-agent.before-start", "deployer-agent.after-start", "deployer-agent.before-report"]
)
async def test_an_agent_that_is_killed_anywhere_leads_to_one_engine(house, tmp_path, point):
    await house.control()
    await house.pool()
    await house.node()
    flag = tmp_path / "flag"
    agent = house.agent()
    agent.start()
    await asyncio.to_thread(agent.ready)
    flag.touch()
    await asyncio.to_thread(agent.end)
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

    await asyncio.to_thread(agent.kill)
    assert (await get(pod, "/health"))[0] == 200, "traffic goes on"
    agent.start()
    await asyncio.to_thread(agent.ready)
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
    await asyncio.to_thread(agent.kill)
    os.kill(house.engines(pod)[0], signal.SIGKILL)

    agent.start()

    async def back():
        found = await house.pod(pod.name)
        return is_ready(found) and found.status.container_statuses[0].restart_count == 1

    await eventually(back)
    assert len(house.engines(pod)) == 1


async def test_a_replica_deleted_while_the_agent_was_away_is_stopped_before_its_devices_are_free(house):
    agent, pod = await started(house)
    await asyncio.to_thread(agent.kill)
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

    assert await asyncio.to_thread(agent.end) == 0
    assert house.engines(pod) == [engine]
    agent.start()
    await asyncio.to_thread(agent.ready)
    run = house.data_dir() / "run"
    run.mkdir(exist_ok=True)
    (run / "stopping").touch()
    assert await asyncio.to_thread(agent.end) == 0

    assert not house.engines(pod)
