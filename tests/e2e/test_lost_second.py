"""What only a host crash loses: the store's last second, the bus' last seconds, the bus altogether; and a bus that is away long.

After it the parts disagree about the past. They must come to agree, with no card held twice and no engine too many; what
a user was promised in the lost second must be asked for again, and that is all.
Read next: tests/support/journeys.py, shared/bus/relay.py (rewinding), shared/store/scripts/recover.lua (epochs).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.js import JetStreamManager

from shared import subjects
from tests.support.journeys import Mark, Room, artifact, deployment
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def kill_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """One stack for all of it."""
    room = Room(tmp_path_factory.mktemp("lost"))
    try:
        room.stack.up()
        yield room
    finally:
        room.stack.down()


def ask_again(room: Room, name: str, replicas: int) -> None:
    """What a user does who sees that something is gone: apply it again."""
    for body, plural in ((artifact(name), "modelartifacts"), (deployment(name, replicas), "modeldeployments")):
        path = f"/apis/worker.gpustack.ai/v1/namespaces/default/{plural}"
        status, answer = room.user("POST", path, body)
        assert status in {201, 409}, answer


def remove(room: Room, *names: str) -> None:
    for name in names:
        room.delete(deployment(name, 0))
        room.delete(artifact(name))
    room.free()


async def forget_ids(room: Room) -> None:
    """Streams of facts forget message ids after a tenth of a second, as if everything took longer than two minutes."""
    async with room.nats() as client:
        manager = JetStreamManager(client)
        for service in subjects.SERVICES:
            config = (await manager.stream_info(subjects.owner_stream(service))).config
            config.duplicate_window = 0.1
            await manager.update_stream(config)


def test_an_older_copy_of_the_bus(kill_stack: Room, tmp_path: Path):
    room, name, other = kill_stack, kill_stack.name(), kill_stack.name()
    mark = room.mark()
    ask_again(room, name, 2)
    room.serving(name, 2)
    room.copy_bus(tmp_path / "older")
    room.scale(name, 1)
    room.serving(name, 1)
    ask_again(room, other, 1)
    eventually_sync(lambda: len(room.pods(other)) == 1, timeout=30)

    room.replace_bus(tmp_path / "older")
    room.scale(name, 2)
    room.settled(name, 2)
    room.settled(other, 1)
    remove(room, name, other)

    told = room.check(mark, whole=True)
    given = sorted(data["name"] for data in told.of("workload.admitted") if data["ownerName"] in {name, other})
    assert len(given) == 4, given
    assert sorted(data["name"] for data in told.of("replica.stopped")) == given
    assert len(told.of("deployment.removed")) == 2


def test_a_bus_that_lost_everything_is_filled_again_from_the_outboxes(kill_stack: Room):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    ask_again(room, name, 2)
    room.serving(name, 2)
    before = room.told(mark)

    room.replace_bus(None)
    room.chat(name)
    room.scale(name, 1)
    room.serving(name, 1)
    remove(room, name)

    anew = Mark(mark.revision, {}, mark.dead)  # its streams count from one again
    again = {one["id"] for one in room.check(anew).facts}
    assert {one["id"] for one in before.facts} <= again


def test_the_bus_is_away_for_longer_than_it_remembers_ids(kill_stack: Room):
    """It dies with facts stored but not acknowledged, and has forgotten their ids when it is back."""
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    asyncio.run(forget_ids(room))
    before = {process: room.starts(process) for process in ("scheduler", "nats-server")}
    flag = room.order("scheduler", "relay.after-publish")
    ask_again(room, name, 2)
    eventually_sync(lambda: not flag.exists(), timeout=30)
    with room.unattended():
        room.end("nats-server")
        time.sleep(1)  # ten times what it remembers
    for process, starts in before.items():
        room.back(process, starts)

    room.serving(name, 2)
    remove(room, name)

    told = room.check(mark, whole=True)
    assert len(told.of("workload.queued")) == len(told.of("workload.admitted")) == 2


@pytest.mark.parametrize("transactions", [1, 4, 12, 24])
def test_the_store_loses_its_last_second_while_a_model_serves(kill_stack: Room, transactions: int):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    ask_again(room, name, 2)
    room.serving(name, 2)

    room.cut_store(transactions)
    ask_again(room, name, 2)
    room.serving(name, 2)
    remove(room, name)

    room.check(mark, lost=True, whole=True)


@pytest.mark.parametrize("transactions", [2, 8])
def test_the_store_loses_its_last_second_after_a_model_was_deleted(kill_stack: Room, transactions: int):
    room, name, other = kill_stack, kill_stack.name(), kill_stack.name()
    mark = room.mark()
    ask_again(room, name, 2)
    room.serving(name, 2)
    remove(room, name)

    room.cut_store(transactions)
    ask_again(room, other, 2)
    room.settled(other, 2)
    remove(room, name, other)

    room.check(mark, lost=True, whole=True)
