"""Nothing lost, nothing doubled: whoever is killed or frozen at whatever step, the journey ends the same, each fact counts once.

One stack with eight simulated cards; every case is the journey of one deployment (or one object) with one accident in
it, and then everything is compared: what serves, what is held, every revision that was stored, every fact that was told.
Read next: tests/support/journeys.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.journeys import HOST_POOL, PATIENCE, Room, Told, artifact, deployment, engines, on_host, until
from tests.support.stack import alive, condition
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def kill_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """One stack for all of it; whatever is killed must come back by itself."""
    room = Room(tmp_path_factory.mktemp("kills"))
    try:
        room.stack.up()
        yield room
    finally:
        room.stack.down()


def interleaved(cases: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """In turns by process: one that is killed again and again is started again later and later."""
    queues: dict[str, list[tuple[str, ...]]] = {}
    for case in cases:
        queues.setdefault(case[0], []).append(case)
    longest = max(len(queue) for queue in queues.values())
    return [queue[turn] for turn in range(longest) for queue in queues.values() if turn < len(queue)]


def ids(cases: list[tuple[str, ...]]) -> list[str]:
    return ["-".join(str(part) for part in case) for case in cases]


def make(room: Room, name: str, replicas: int = 2) -> None:
    room.create(artifact(name))
    room.create(deployment(name, replicas))


def remove(room: Room, name: str) -> None:
    room.delete(deployment(name, 0))
    room.delete(artifact(name))


def told_once(told: Told, replicas: int = 2) -> None:
    """What the journey of one deployment tells when nothing of it was undone."""
    for what in ("workload.queued", "workload.admitted", "workload.cancelled", "replica.stopped"):
        assert len(told.of(what)) == replicas, what
    for what in ("deployment.removed", "artifact.resolved"):
        assert len(told.of(what)) == 1, what
    assert len({data["uid"] for data in told.of("replica.ready")}) == replicas


# kill -9, at no place in particular

ANYWHERE = interleaved(
    [
        (process, step)
        for process in (
            "nats-server", "redis-server", "scheduler", "deployer", "modelstore", "gateway", "discovery", "kvcache",
            "gateway-worker-0", "fleet",
        )
        for step in ("accepted", "serving")
    ]
)  # fmt: skip


@pytest.mark.parametrize(("process", "step"), ANYWHERE, ids=ids(ANYWHERE))
def test_any_process_killed_on_the_way_up_or_down(kill_stack: Room, process: str, step: str):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()

    make(room, name)
    if step == "accepted":
        before = room.kill(process)
        room.serving(name, 2)
        remove(room, name)
    else:
        room.serving(name, 2)
        room.delete(deployment(name, 0))
        before = room.kill(process)
        room.delete(artifact(name))
    room.back(process, before)
    room.free()

    told_once(room.check(mark))


# kill -9 at the places where it hurts

WAY_UP = interleaved(
    [
        ("scheduler", "scheduler.submit.before-commit", 1), ("scheduler", "scheduler.submit.after-commit", 2),
        ("scheduler", "scheduler.before-commit", 1), ("scheduler", "scheduler.after-commit", 1),
        ("scheduler", "relay.before-publish", 1), ("scheduler", "relay.after-publish", 1), ("scheduler", "bus.before-ack", 1),
        ("modelstore", "modelstore.before-commit", 1), ("modelstore", "modelstore.after-commit", 1),
        ("modelstore", "relay.before-publish", 1), ("modelstore", "relay.after-publish", 2), ("modelstore", "bus.before-ack", 1),
        *(("deployer", f"deployer.{place}-commit", passing) for passing in (1, 2, 3) for place in ("before", "after")),
        ("deployer", "relay.before-publish", 1), ("deployer", "relay.after-publish", 1), ("deployer", "bus.before-ack", 2),
        ("fleet", "modelstore-agent.before-report", 1), ("fleet", "deployer-agent.before-start", 1),
        ("fleet", "deployer-agent.after-start", 2), ("fleet", "deployer-agent.before-report", 1),
    ]
)  # fmt: skip


@pytest.mark.parametrize(("process", "point", "passing"), WAY_UP, ids=ids(WAY_UP))
def test_killed_at_a_point_on_the_way_up(kill_stack: Room, process: str, point: str, passing: int):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()

    with room.killed(process, point, passing):
        make(room, name)
    room.serving(name, 2)
    remove(room, name)
    room.free()

    told_once(room.check(mark))


WAY_DOWN = interleaved(
    [
        ("scheduler", "scheduler.cancel.before-commit", 1, "delete"), ("scheduler", "scheduler.cancel.after-commit", 1, "scale"),
        ("scheduler", "relay.after-publish", 1, "delete"), ("scheduler", "bus.before-ack", 1, "scale"),
        ("deployer", "deployer.before-commit", 1, "scale"), ("deployer", "deployer.after-commit", 1, "delete"),
        ("deployer", "deployer.before-commit", 2, "delete"), ("deployer", "deployer.after-commit", 2, "scale"),
        ("deployer", "relay.after-publish", 1, "delete"), ("deployer", "bus.before-ack", 1, "scale"),
        ("fleet", "deployer-agent.before-report", 1, "delete"),
    ]
)  # fmt: skip


@pytest.mark.parametrize(("process", "point", "passing", "step"), WAY_DOWN, ids=ids(WAY_DOWN))
def test_killed_at_a_point_on_the_way_down(kill_stack: Room, process: str, point: str, passing: int, step: str):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    make(room, name)
    room.serving(name, 2)

    with room.killed(process, point, passing):
        if step == "scale":
            room.scale(name, 1)
        else:
            room.delete(deployment(name, 0))
    if step == "scale":
        room.serving(name, 1)
    remove(room, name)
    room.free()

    told_once(room.check(mark))
