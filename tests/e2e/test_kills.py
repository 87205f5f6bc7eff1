"""Nothing lost, nothing doubled: whoever is killed or frozen at whatever step, the journey ends the same, each fact counts once.

One stack with eight simulated cards; every case is the journey of one deployment (or one object) with one accident in
it, and then everything is compared: what serves, what is held, every revision that was stored, every fact that was told.
Read next: tests/support/journeys.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.journeys import PATIENCE, WORKER, Room, Told, artifact, deployment, engines, on_host, until
from tests.support.stack import alive
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(150)

KV_BACKENDS = f"{WORKER}/kvcachebackends"


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

ANYWHERE = [
    ("nats-server", "accepted"), ("redis-server", "accepted"), ("gateway", "accepted"), ("scheduler", "serving"),
    ("deployer", "accepted"), ("modelstore", "accepted"), ("discovery", "accepted"), ("kvcache", "serving"),
    ("nats-server", "serving"), ("redis-server", "serving"), ("gateway-worker-0", "serving"), ("fleet", "accepted"),
]  # fmt: skip


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
        ("scheduler", "scheduler.submit.after-commit", 2),
        ("scheduler", "scheduler.before-commit", 1), ("scheduler", "scheduler.after-commit", 1),
        ("scheduler", "relay.before-publish", 1), ("scheduler", "relay.after-publish", 1), ("scheduler", "bus.before-ack", 1),
        ("modelstore", "modelstore.before-commit", 1), ("modelstore", "modelstore.after-commit", 1),
        ("modelstore", "relay.before-publish", 2), ("modelstore", "relay.after-publish", 2), ("modelstore", "bus.before-ack", 2),
        ("deployer", "deployer.after-commit", 2),
        ("deployer", "deployer.before-commit", 3), ("deployer", "relay.before-publish", 3),
        ("deployer", "relay.after-publish", 2),
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
        ("scheduler", "relay.after-publish", 1, "delete"),
        ("deployer", "deployer.after-commit", 1, "delete"), ("deployer", "deployer.before-commit", 2, "scale"),
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


# What is not on every journey's path: a card that changes, objects of other owners

DEVICES = [
    ("discovery", "discovery.before-commit"), ("fleet", "discovery-agent.before-report"),
    ("discovery", "discovery.after-commit"), ("discovery", "relay.after-publish"),
]  # fmt: skip


@pytest.mark.parametrize(("process", "point"), DEVICES, ids=ids(DEVICES))
def test_killed_while_a_card_degrades(kill_stack: Room, process: str, point: str):
    room = kill_stack
    mark = room.mark()

    with room.killed(process, point):
        room.fleet({"node": "sim-1", "device": 3, "unhealthy": "xid 48"})
    room.remaining(7)
    room.fleet()
    room.remaining(8)

    told = room.check(mark)
    assert len(told.of("device.degraded")) == 1
    assert len(told.of("device.changed")) == 1


OBJECTS = [
    ("gateway", "gateway.before-commit"), ("kvcache", "kvcache.before-commit"), ("gateway", "gateway.after-commit"),
    ("kvcache", "kvcache.after-commit"),
]  # fmt: skip


@pytest.mark.parametrize(("process", "point"), OBJECTS, ids=ids(OBJECTS))
def test_killed_while_an_object_is_written(kill_stack: Room, process: str, point: str):
    """The owner dies around its commit (the gateway: before it answers, so the client asks again): it is there once."""
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    if process == "gateway":
        body, plural = (
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
            "/api/v1/namespaces/default/configmaps",
        )
    else:
        spec = {"connection": {"managed": {"leader": {}, "members": [{"capacityPerMember": "8Gi"}]}}}
        body, plural = {"apiVersion": "worker.gpustack.ai/v1", "kind": "KVCacheBackend", "spec": spec}, KV_BACKENDS
    body["metadata"] = {"name": name}

    with room.killed(process, point):
        status, answer = room.user("POST", plural, body, patience=3)
        assert status == 201, answer

    assert [one["metadata"]["uid"] for one in room.items(plural) if one["metadata"]["name"] == name] == [
        answer["metadata"]["uid"]
    ]
    if process == "kvcache":
        until(lambda: room.ready_reason(f"{plural}/{name}", "NotServedYet"))
    assert room.user("DELETE", f"{plural}/{name}")[0] == 200
    told = room.check(mark)
    assert len(told.of(f"object-{process}.applied", name=name)) == 1
    assert len(told.of(f"object-{process}.removed", name=name)) == 1


# Real processes on this host

HOST = [
    ("deployer-agent", "deployer-agent.before-start"), ("modelstore-agent", "modelstore-agent.mid-file"),
    ("deployer-agent", "deployer-agent.after-start"), ("modelstore-agent", "modelstore-agent.before-publish"),
    ("deployer-agent", "deployer-agent.before-report"), ("modelstore-agent", "modelstore-agent.after-publish"),
    ("deployer-agent", ""), ("modelstore-agent", "modelstore-agent.before-report"), ("shim", ""),
]  # fmt: skip


@pytest.mark.parametrize(("process", "point"), HOST, ids=ids(HOST))
def test_a_real_engine_is_started_once(kill_stack: Room, tmp_path: Path, process: str, point: str):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    starts = tmp_path / "starts"
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    (weights / "model.bin").write_bytes(os.urandom(3 << 20))
    room.stack.gpubus("hub", "add", str(weights), "--repo", f"house/{name}")

    with room.killed(process, point) if point else contextlib.nullcontext():
        room.create(artifact(name, f"house/{name}"))
        room.create(on_host(name, starts))
    (pod,) = room.serving(name, 1).values()
    if process == "shim":
        folder = room.stack.dir / "pods" / pod["metadata"]["uid"]
        os.kill(json.loads((folder / "shim.json").read_text())["pid"], signal.SIGKILL)
        room.serving(name, 1)
    elif not point:
        room.back(process, room.kill(process))
        room.serving(name, 1)

    assert [int(line) for line in starts.read_text().splitlines()] == engines(pod["metadata"]["uid"])
    room.delete(on_host(name, starts))
    room.delete(artifact(name))
    room.free()
    told = room.check(mark)
    assert len(told.of("replica.ready")) == 1
    assert len(told.of("artifact.ready")) == 1


# Frozen copies

FROZEN = [
    ("scheduler", "scheduler.before-commit"), ("deployer", "deployer.before-commit"), ("modelstore", "modelstore.before-commit"),
    ("scheduler", "relay.sending"),
]  # fmt: skip


@pytest.mark.parametrize(("service", "point"), FROZEN, ids=ids(FROZEN))
def test_a_copy_that_was_frozen_in_the_middle_changes_nothing_when_it_thaws(kill_stack: Room, service: str, point: str):
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    flag = room.order(service, point, "stop")
    user = ThreadPoolExecutor(1)
    made = user.submit(make, room, name)  # it may freeze before it has answered the user, who asks on
    eventually_sync(lambda: not flag.exists(), timeout=PATIENCE)

    second = room.second(service).start()
    try:
        second.ready()
        made.result()
        room.serving(name, 2)
        os.kill(room.stack.pids()[service], signal.SIGCONT)
        room.scale(name, 1)
        room.serving(name, 1)
    finally:
        os.kill(room.stack.pids()[service], signal.SIGCONT)
        second.end()
        user.shutdown()
    remove(room, name)
    room.free()

    told_once(room.check(mark))


def test_a_write_that_times_out_is_made_once(kill_stack: Room):
    """The owner is frozen: the answer is 'outcome unknown'; asked again with the same key, it is the same write."""
    room, name = kill_stack, kill_stack.name()
    mark = room.mark()
    body = deployment(name, 2)
    room.create(artifact(name))
    path = f"{WORKER}/namespaces/default/modeldeployments"
    os.kill(room.stack.pids()["deployer"], signal.SIGSTOP)
    try:
        status, answer = room.stack.request("POST", path, body, headers={"Idempotency-Key": name})
    finally:
        os.kill(room.stack.pids()["deployer"], signal.SIGCONT)
    assert status in {503, 504}, answer

    assert room.user("POST", path, body, name)[0] == 201
    assert room.user("POST", path, body, name)[0] == 201
    room.serving(name, 2)
    remove(room, name)
    room.free()

    told = room.check(mark)
    told_once(told)
    assert len([data for data in told.of("deployment.applied") if data["generation"] == 1]) == 1


# The supervisor; last, because it takes the others with it in the end


def test_without_its_supervisor_the_stack_works_and_the_next_one_finds_everything(kill_stack: Room):
    room, name, other = kill_stack, kill_stack.name(), kill_stack.name()
    mark = room.mark()
    make(room, name)
    pods = room.serving(name, 2)

    pid = room.stack.kill("supervisor")
    eventually_sync(lambda: not alive(pid), timeout=PATIENCE)
    room.chat(name)
    room.scale(name, 3)
    room.serving(name, 3)
    again = room.stack.gpubus("up", "--detach", "--data-dir", str(room.stack.dir), "--port", "0", check=False)
    assert again.returncode != 0
    assert "supervisor is gone" in again.stdout + again.stderr
    room.stack.down()
    room.stack.up()

    assert room.serving(name, 3).keys() > pods.keys()
    remove(room, name)
    make(room, other, 4)
    room.serving(other, 4)
    remove(room, other)
    room.free()
    room.check(mark)
