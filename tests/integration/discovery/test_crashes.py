"""kill -9 at every step, copies, a store that forgot: the same end, each fact once."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter

import pytest

from shared.resources.device import Devices
from tests.integration.discovery.conftest import House
from tests.support.wait import eventually


async def stored_facts(house: House) -> Counter[str]:
    """How often each kind of fact is in discovery's stream, by `aggregate.fact`."""
    js = house.bus.connection.jetstream()
    info = await js.stream_info("FACTS_DISCOVERY", subjects_filter=">")
    counted: Counter[str] = Counter()
    for subject, count in (info.state.subjects or {}).items():
        counted[".".join(subject.split(".")[2:4])] += count
    return counted


async def settled(house: House, nodes: int, cards: int) -> bool:
    taken = await house.store.snapshot(["Node", "Devices"])
    found = sum(len(g.accelerators) for d in taken.of("Devices") for g in d.read(Devices).spec.groups)
    names = [document.name for document in taken.of("Node")]
    return len(names) == nodes and found == nodes * cards and await house.all_ready(names)


@pytest.mark.parametrize("point", ["discovery.before-commit", "discovery.after-commit"])
async def test_a_controller_killed_at_a_commit_loses_and_doubles_nothing(house, point):
    flag = house.directory / "flag"
    controller = house.controller(GPUBUS_FAULTS=f"{point}=kill@{flag}").start().ready()
    kills = 0
    for number in range(4):
        flag.touch()
        house.simulated(f"n{number}", cards=2)
        await eventually(lambda: not controller.running)
        controller.kill()
        controller.start().ready()
        kills += 1
        await eventually(lambda n=number: settled(house, n + 1, 2))

    async def counted() -> bool:
        return await stored_facts(house) == {"node.joined": 4, "device.found": 8}

    await eventually(counted)
    assert kills == 4
    assert house.count("NodeLost") == 0


async def test_an_agent_killed_before_its_report_reports_at_its_next_start(house):
    house.controller().start().ready()
    flag = house.directory / "flag"
    flag.touch()
    agent = house.host_agent("here").start(GPUBUS_FAULTS=f"discovery-agent.before-report=kill@{flag}")
    assert agent.ended() == -signal.SIGKILL

    agent.start().ready()

    await eventually(lambda: house.is_ready("here"))

    async def told() -> bool:
        return await stored_facts(house) == {"node.joined": 1}

    await eventually(told)


async def test_three_copies_share_the_work_and_double_none_of_it(house):
    copies = [house.controller(f"discovery-{n}").start() for n in range(3)]
    for copy in copies:
        copy.ready()
    for number in range(30):
        house.simulated(f"n{number}", cards=2)
    await eventually(lambda: settled(house, 30, 2), timeout=20)

    leaders = [copy for copy in copies if any(line["lease"] == "sweeper" for line in copy.logged("lease_acquired"))]
    leaders[0].kill()
    for agent in house.agents[:2]:
        await agent.silence()

    await eventually(lambda: house.count("NodeLost") == 2, timeout=20)

    async def counted() -> bool:
        return await stored_facts(house) == {"node.joined": 30, "device.found": 60, "node.lost": 2}

    await eventually(counted)
    worked = [copy.metric('gpubus_node_reports_total{reason="Applied"}') for copy in copies if copy.running]
    assert all(count > 0 for count in worked)


async def test_controllers_away_for_long_lose_nobody_and_miss_nothing(house):
    controller = house.controller().start().ready()
    agent = house.simulated("n1", cards=1)
    await eventually(lambda: settled(house, 1, 1))
    controller.kill()
    await asyncio.sleep(4)

    agent.becomes(agent.host.hardware.__class__(name="n1", cpu_milli=64000, memory_bytes=1 << 30))
    await asyncio.sleep(0.5)
    controller.start().ready()

    await eventually(lambda: house.count("DeviceLost") == 1)
    assert (await house.node("n1")).status.capacity == {"cpu": "64", "memory": "1Gi"}
    assert house.count("NodeLost") == 0


async def test_a_store_that_forgot_everything_is_told_again(house):
    house.controller().start().ready()
    for number in range(3):
        house.simulated(f"n{number}", cards=2)
    await eventually(lambda: settled(house, 3, 2))
    epoch = house.store.epoch

    house.redis.kill()
    shutil.rmtree(house.redis.directory / "appendonlydir")
    house.redis.start()

    async def told_again() -> bool:
        return await settled(house, 3, 2) and house.store.epoch != epoch

    await eventually(told_again, timeout=30)
    assert house.count("NodeLost") == 0
