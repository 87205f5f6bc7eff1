"""Controllers that are killed, frozen, or several: everything once. Reports that must not count."""

import asyncio
import signal

import pytest

from shared.events import deployment as d
from shared.reports import PodsReported, PodState
from tests.integration.deployer.conftest import eventually, names_are, retried


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
        await retried(lambda: house.edit(replicas=1))
        await eventually(lambda: names_are(house, ["m-server-r0"]), timeout=50)
        await retried(lambda: house.delete("ModelDeployment", "m"))
        await house.gone("ModelDeployment", "m", timeout=50)
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    assert await house.workloads() == {}
    await eventually(lambda: house.heard(d.DeploymentRemoved))
    assert len(house.heard(d.DeploymentRemoved)) == 1
    assert len(house.heard(d.ReplicaReady, name="m-server-r0")) == 1
    assert sorted(fact.name for fact in house.heard(d.ReplicaStopped)) == ["m-server-r0", "m-server-r1"]


@pytest.mark.parametrize("point", ["deployer.before-commit", "deployer.after-commit"])
async def test_what_a_killed_copy_left_half_done_is_finished_by_the_others(house, tmp_path, point):
    other = house.controller("deployer-2").start()
    await eventually(lambda: [line for line in other.logged("lease_acquired") if line["lease"] == "resync"])
    await asyncio.to_thread(other.ready)
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    flag = tmp_path / "flag"
    dying = house.controller("deployer-1", GPUBUS_FAULTS=f"{point}=kill@{flag}")
    keeper = asyncio.ensure_future(_kept(dying, flag))
    try:
        for number in range(3):
            await retried(lambda n=number: house.deploy(f"m{n}"), "AlreadyExists")
        for number in range(3):
            await house.available(f"m{number}", timeout=40)
        for number in range(3):
            await retried(lambda n=number: house.delete("ModelDeployment", f"m{n}"), "NotFound")
        for number in range(3):
            await house.gone("ModelDeployment", f"m{number}", timeout=40)
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    assert len(house.scheduler.submitted) == len(set(house.scheduler.submitted)) == 3
    await eventually(lambda: len(house.heard(d.DeploymentRemoved)) == 3)
    assert len(house.heard(d.ReplicaReady)) == 3
    assert len(house.heard(d.ReplicaStopped)) == 3


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


async def test_three_copies_do_everything_once(house):
    for number in range(3):
        house.controller(f"deployer-{number}").start()
    for child in house.children:
        await asyncio.to_thread(child.ready)
    await house.pool()
    await house.simulated("s1", "s2", "s3")
    house.scheduler.nodes = ["s1", "s2", "s3"]

    await asyncio.gather(*(house.deploy(f"m{i}", role={"replicas": 3}) for i in range(6)))
    for i in range(6):
        await house.available(f"m{i}")

    assert len(house.scheduler.submitted) == len(set(house.scheduler.submitted)) == 18
    await eventually(lambda: len(house.heard(d.ReplicaReady)) == 18)
    await house.all_heard()
    assert len(house.heard(d.DeploymentAvailable)) == 6
    await asyncio.gather(*(house.delete("ModelDeployment", f"m{i}") for i in range(6)))
    for i in range(6):
        await house.gone("ModelDeployment", f"m{i}")
    assert await house.pods() == {}
    assert await house.workloads() == {}
    await eventually(lambda: len(house.heard(d.DeploymentRemoved)) == 6)
    await house.all_heard()
    assert len(house.heard(d.ReplicaStopped)) == 18


async def test_a_frozen_copy_changes_nothing_when_it_thaws(house):
    first = house.controller("deployer-1").start()
    second = house.controller("deployer-2").start()
    await asyncio.to_thread(first.ready)
    await asyncio.to_thread(second.ready)
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    first.send(signal.SIGSTOP)

    await retried(house.deploy)
    await house.available(count=1, timeout=40)
    await retried(lambda: house.edit(replicas=2))
    await house.available(count=2, timeout=40)
    first.send(signal.SIGCONT)
    await asyncio.sleep(2)

    assert sorted(await house.pods()) == ["m-server-r0", "m-server-r1"]
    assert sorted(house.scheduler.submitted) == ["m-server-r0", "m-server-r1"]


async def test_reports_that_come_late_twice_or_from_an_earlier_start_or_epoch_change_nothing(house):
    await house.control()
    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    pod = (await house.available(count=1))["m-server-r0"]
    before = await house.store.get("Pod", "default", pod.name)

    for phase in ("Failed", "Stopped"):
        state = PodState(uid=pod.uid, phase=phase)
        number = pod.status.observed_sequence + 100
        other = PodsReported(node="s1", incarnation="x", sequence=number, epoch="another", pods=[state])
        await house.bus.report(other)
    for sequence in (pod.status.observed_sequence, pod.status.observed_sequence - 1, 1):
        state = PodState(uid=pod.uid, phase="Failed", exit_code=1)
        late = PodsReported(node="s1", incarnation="earlier", sequence=sequence, epoch=house.store.epoch, pods=[state])
        await house.bus.report(late)
    await asyncio.sleep(0.5)

    assert (await house.store.get("Pod", "default", pod.name)).revision == before.revision


async def test_broken_reports_are_parked_and_harm_nobody(house):
    controller = await house.control()
    for body in (b"\xff\xfe", b"{}", b'{"specversion":"1.0","data":{"pods":"x"}}'):
        await house.bus.connection.jetstream().publish("gpubus.rep.deployer.pods.v1.n1._", body)

    await eventually(lambda: controller.http("/metrics").count("gpubus_dead_letters_total{") >= 1)

    await house.pool()
    await house.simulated("s1")
    house.scheduler.nodes = ["s1"]
    await house.deploy()
    await house.available(count=1)
