"""kill -9 at every step of a delivery, copies of the controller, a store that lost its files: the same end, told once."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import signal
import threading
from pathlib import Path

import pytest

from tests.integration.modelstore import origin as tricks
from tests.integration.modelstore.conftest import content
from tests.support.wait import eventually

SIZE = 1_000_000
CUT = 400_000
WEIGHTS = content("weights", SIZE)
BLOB = f"sha256-{hashlib.sha256(WEIGHTS).hexdigest()}"


async def begun(house, **settings):
    """A controller, an agent, and a resolved artifact that is wanted on n1 when the test admits it."""
    house.origin.add("o/n", {"w": WEIGHTS})
    house.controller().start().ready()
    agent = house.agent(**settings).start().ready()
    await house.artifact("m", "o/n")
    return agent, await house.resolved("m")


async def ready_once(house, digest):
    copy = await house.copy_is(digest, "Ready")
    assert Path(copy.path, "w").read_bytes() == WEIGHTS
    await eventually(lambda: house.fact_count("ready", "m", "n1"), timeout=30)
    await asyncio.sleep(0.3)
    assert await house.fact_count("ready", "m", "n1") == 1
    assert list((house.directory / "n1/models/partial").iterdir()) == []


async def test_an_agent_killed_while_bytes_come_goes_on_behind_them(house):
    going, reached = threading.Event(), threading.Event()
    agent, digest = await begun(house)
    house.origin.will("o/n/w", tricks.wait_after(CUT, going, reached))
    await house.admit("m", "n1")
    partial = house.directory / "n1/models/partial" / BLOB
    await eventually(lambda: partial.exists() and partial.stat().st_size == CUT, timeout=30)
    await house.copy_is(digest, "Downloading")

    agent.kill()
    going.set()
    agent.start()

    await ready_once(house, digest)
    assert house.origin.files_asked("/w")[-1].start == CUT
    assert await house.fact_count("delivering", "m", "n1") == 1


@pytest.mark.parametrize(
    "point",
    ["mid-file", "before-sync", "before-publish", "after-publish", "before-report"],
)
async def test_an_agent_killed_at_a_step_ends_ready_once(house, point):
    flag = house.directory / "flag"
    agent, digest = await begun(house, GPUBUS_FAULTS=f"modelstore-agent.{point}=kill@{flag}")
    house.origin.will("o/n/w", tricks.cut(CUT + 200_000))
    flag.touch()
    await house.admit("m", "n1")
    await eventually(lambda: not agent.running, timeout=30)
    agent.kill()
    assert (await house.copy(digest) is None) or (await house.copy(digest)).state != "Ready"

    agent.start()

    await ready_once(house, digest)
    starts = [asked.start for asked in house.origin.files_asked("/w")]
    # The first report is made when the delivery begins, so that kill may come before the first byte.
    assert sum(start == 0 for start in starts) <= (2 if point == "before-report" else 1)


async def test_a_byte_that_flips_on_disk_between_two_starts_is_never_published(house):
    flag = house.directory / "flag"
    agent, digest = await begun(house, GPUBUS_FAULTS=f"modelstore-agent.before-publish=kill@{flag}")
    flag.touch()
    await house.admit("m", "n1")
    await eventually(lambda: not agent.running, timeout=30)
    agent.kill()
    blob = house.directory / "n1/models/blobs" / BLOB
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.seek(CUT)
        file.write(bytes([WEIGHTS[CUT] ^ 1]))

    agent.start()

    await ready_once(house, digest)
    assert len(house.origin.files_asked("/w")) == 2


async def test_a_store_that_was_removed_is_rebuilt(house):
    agent, digest = await begun(house)
    await house.admit("m", "n1")
    await ready_once(house, digest)
    agent.kill()
    shutil.rmtree(house.directory / "n1/models")

    agent.start()

    async def told_again():
        facts = await house.facts()
        return facts["ready", "m", "n1"] == facts["delivering", "m", "n1"] == 2

    await eventually(told_again, timeout=30)
    copy = await house.copy_is(digest, "Ready")
    assert Path(copy.path, "w").read_bytes() == WEIGHTS


async def test_a_restart_with_everything_there_fetches_and_tells_nothing(house):
    agent, digest = await begun(house)
    await house.admit("m", "n1")
    await ready_once(house, digest)
    before = len(house.origin.asked)
    sequence = (await house.node_store("n1")).status.observed_sequence
    assert agent.end() == 0
    agent.start().ready()

    async def reported():
        return (await house.node_store("n1")).status.observed_sequence > sequence

    await eventually(reported, timeout=30)
    assert (await house.copy(digest)).state == "Ready"
    assert len(house.origin.asked) == before
    facts = await house.facts()
    assert facts["ready", "m", "n1"] == 1
    assert not facts["evicted", "m", "n1"]


async def test_a_second_agent_on_the_same_store_waits_for_the_first(house):
    agent, digest = await begun(house)
    second = house.agent(GPUBUS_INSTANCE="second")
    second.start()
    await eventually(lambda: second.logged("store_in_use"), timeout=30)
    await house.admit("m", "n1")
    await ready_once(house, digest)

    agent.kill()
    second.ready(timeout=30)

    assert (await house.copy(digest)).state == "Ready"
    assert await house.fact_count("ready", "m", "n1") == 1


@pytest.mark.parametrize("point", ["modelstore.before-commit", "modelstore.after-commit"])
async def test_a_controller_killed_at_the_commit_of_a_report_tells_it_once(house, point):
    flag = house.directory / "flag"
    going, reached = threading.Event(), threading.Event()
    house.origin.add("o/n", {"w": WEIGHTS, "config.json": b"{}"})
    house.origin.will("o/n/w", tricks.wait_after(CUT, going, reached))
    controller = house.controller(GPUBUS_FAULTS=f"{point}=kill@{flag}").start().ready()
    house.agent().start().ready()
    await house.artifact("m", "o/n")
    digest = await house.resolved("m")
    await house.admit("m", "n1")
    await house.copy_is(digest, "Downloading")
    await eventually(reached.is_set, timeout=30)

    flag.touch()
    going.set()
    await eventually(lambda: not controller.running, timeout=30)
    controller.kill()
    controller.start()

    await ready_once(house, digest)


async def test_two_copies_of_the_controller_tell_each_fact_once(house):
    for number in range(4):
        house.origin.add(f"o/n{number}", {"w": content(f"w{number}", 50_000)})
    house.controller("modelstore-1").start().ready()
    second = house.controller("modelstore-2").start().ready()
    for node in ("n1", "n2"):
        house.agent(node).start().ready()
    for number in range(4):
        await house.artifact(f"m{number}", f"o/n{number}")
        await house.admit(f"m{number}", "n1", "n2")
    digests = [await house.resolved(f"m{number}") for number in range(4)]
    second.kill()

    for digest in digests:
        for node in ("n1", "n2"):
            await house.copy_is(digest, "Ready", node)

    async def complete():
        facts = await house.facts()
        return len([key for key in facts if key[0] == "ready"]) == 8

    await eventually(complete, timeout=30)
    facts = await house.facts()
    assert {count for key, count in facts.items() if key[0] in {"ready", "resolved"}} == {1}


async def test_deliveries_go_on_without_the_bus_and_are_told_afterwards(house):
    going, reached = threading.Event(), threading.Event()
    agent, digest = await begun(house)
    house.origin.will("o/n/w", tricks.wait_after(CUT, going, reached))
    await house.admit("m", "n1")
    await eventually(reached.is_set, timeout=30)
    house.nats.pause()
    going.set()
    marker = house.directory / "n1/models/ready" / digest.removeprefix("sha256:")
    await eventually(marker.exists, timeout=30)

    house.nats.resume()

    await ready_once(house, digest)
    assert agent.running


async def test_an_agent_that_is_stopped_while_bytes_come_ends_cleanly(house):
    going, reached = threading.Event(), threading.Event()
    agent, digest = await begun(house)
    house.origin.will("o/n/w", tricks.wait_after(CUT, going, reached))
    await house.admit("m", "n1")
    partial = house.directory / "n1/models/partial" / BLOB
    await eventually(lambda: partial.exists() and partial.stat().st_size == CUT, timeout=30)

    assert agent.end(signal.SIGTERM) == 0
    going.set()
    assert partial.stat().st_size == CUT
    agent.start()

    await ready_once(house, digest)
