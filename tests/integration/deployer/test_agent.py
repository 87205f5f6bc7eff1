"""One agent that the test answers: what it makes of what it is told."""

import asyncio

import pytest

from services.deployer.agent.pods import PodAgent
from services.deployer.drivers.engine_http import HttpProber
from services.deployer.drivers.simulated import SimulatedRuntime
from services.deployer.drivers.simulated_server import SimulatedHost
from shared.clock import SystemClock
from shared.queries import DesiredPodsAnswer, StoppingPod, WantedPod
from tests.integration.deployer.conftest import eventually


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
