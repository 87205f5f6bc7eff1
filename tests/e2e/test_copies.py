"""Two and three copies of every controller at once: the work is shared, and its outcome is that of one copy."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.story import (
    CARDS,
    KUEUE,
    artifact,
    cards_free,
    connect,
    deployment,
    items,
    namespace,
    path_of,
    settled,
    what,
)
from tests.support.children import Child
from tests.support.stack import Stack, condition
from tests.support.wait import eventually_sync

pytestmark = pytest.mark.timeout(180)
CONTROLLERS = ("discovery", "scheduler", "modelstore", "kvcache", "deployer")
COPIES = 2
"""Beside the stack's own one."""
DEPLOYMENTS = 10


class Copies:
    """More copies of the controllers, each with its service's env file and a name and a health port of its own."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self.children: dict[str, list[Child]] = {}
        for service in CONTROLLERS:
            lines = (stack.dir / "run" / f"{service}.env").read_text().splitlines()
            settings = dict(line.split("=", 1) for line in lines)
            self.children[service] = [
                Child(folder, f"{service}-{number}", (f"services.{service}",), settings)
                for number in range(2, COPIES + 2)
            ]

    def all(self) -> list[Child]:
        """Every child."""
        return [child for children in self.children.values() for child in children]

    def handled(self, service: str) -> list[float]:
        """Messages that each copy of one service has settled, the stack's own copy first."""
        port = json.loads((self.stack.dir / "ports.json").read_text())[f"health.{service}"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            texts = [answer.read().decode()]
        texts += [child.http("/metrics") for child in self.children[service]]
        return [sum(_samples(text, "gpubus_messages_handled_total")) for text in texts]


def _samples(text: str, name: str) -> Iterator[float]:
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            yield float(line.rpartition(" ")[2])


@pytest.fixture
def copies(fleet: Stack, tmp_path: Path) -> Iterator[Copies]:
    made = Copies(fleet, tmp_path)
    try:
        for child in made.all():
            child.start()
        for child in made.all():
            child.ready(timeout=60)
        yield made
        assert all(child.running for child in made.all()), "a copy ended by itself"
    finally:
        statuses = [child.end() for child in made.all() if child.process is not None]
    assert set(statuses) == {0}


async def facts_on_streams(stack: Stack, where: str) -> list[dict[str, Any]]:
    """Every fact about one namespace that the streams of all owners keep."""
    found = []
    async with connect(stack) as client:
        manager = client.jsm()
        for owner in ("SCHEDULER", "MODELSTORE", "DEPLOYER"):
            state = (await manager.stream_info(f"FACTS_{owner}")).state
            for sequence in range(max(1, state.first_seq), state.last_seq + 1):
                message = await manager.get_msg(f"FACTS_{owner}", seq=sequence)
                if f'"namespace":"{where}"'.encode() in (message.data or b""):
                    found.append(json.loads(message.data or b""))
    return found


def ready(stack: Stack, where: str) -> list[str]:
    """Names of deployments that have all they ask for."""
    found = items(stack, f"/apis/worker.gpustack.ai/v1/namespaces/{where}/modeldeployments")
    return sorted(
        body["metadata"]["name"]
        for body in found
        if condition(body, "Available").get("status") == "True" and settled(body)
    )


async def test_three_copies_of_each_controller_end_as_one_would(copies):
    stack = copies.stack
    before = {service: copies.handled(service) for service in CONTROLLERS}
    with namespace(stack, "copies") as where:
        names = [f"m{number}" for number in range(DEPLOYMENTS)]
        bodies = [artifact("weights", where), *(deployment(name, where, weights="weights") for name in names)]
        await apply_at_once(stack, bodies)

        first = eventually_sync(
            lambda: (now := ready(stack, where)) and len(now) == CARDS and now, timeout=60, interval=0.2
        )
        waiting = [name for name in names if name not in first]
        held = eventually_sync(
            lambda: (now := held_workloads(stack, where)) and len(now) == 2 and now, timeout=30, interval=0.2
        )
        assert {body["metadata"]["name"] for body in held} == {f"{name}-server-r0" for name in waiting}
        assert all(condition(body, "QuotaReserved")["message"] for body in held)

        for name in first[:2]:
            assert stack.request("DELETE", path_of(deployment(name, where))[1])[0] == 200
        left = sorted({*names} - {*first[:2]})
        eventually_sync(lambda: ready(stack, where) == left, timeout=60, interval=0.2)

        pods = items(stack, f"/api/v1/namespaces/{where}/pods")
        assert sorted(pod["metadata"]["name"] for pod in pods) == [f"{name}-server-r0" for name in left]
        assert (
            len({pod["metadata"]["annotations"]["device.gpustack.ai/accelerator.allocated"] for pod in pods}) == CARDS
        )

        for name in left:
            assert stack.request("DELETE", path_of(deployment(name, where))[1])[0] == 200
        eventually_sync(lambda: cards_free(stack), timeout=60, interval=0.2)
        facts = await facts_on_streams(stack, where)
        each_fact_once(facts, names)
    for service in ("scheduler", "deployer"):
        more = [after - was for was, after in zip(before[service], copies.handled(service), strict=True)]
        print(f"{service}: messages by copy {more}")
        assert sum(count > 0 for count in more) > 1, f"one copy of {service} did everything"


async def apply_at_once(stack: Stack, bodies: list[dict[str, Any]]) -> None:
    """All of them as commands of the bus, without waiting for any answer."""
    async with connect(stack) as client:
        for body in bodies:
            subject = f"gpubus.req.gateway.apply.v1.admin.{body['metadata']['namespace']}"
            await client.publish(subject, json.dumps(body).encode())
        await client.flush()


def held_workloads(stack: Stack, where: str) -> list[dict[str, Any]]:
    """Workloads that wait."""
    found = items(stack, f"{KUEUE}/namespaces/{where}/workloads")
    return [body for body in found if condition(body, "QuotaReserved").get("status") == "False"]


def each_fact_once(facts: list[dict[str, Any]], names: list[str]) -> None:
    """Ids once, and each turn of each object's life once."""
    assert Counter(one["id"] for one in facts).most_common(1)[0][1] == 1
    turns = Counter((what(one), one["data"]["name"]) for one in facts)
    for name in names:
        replica = f"{name}-server-r0"
        for turn in ("deployment.applied", "deployment.available", "deployment.removed"):
            assert turns[turn, name] == 1, (turn, name)
        for turn in ("workload.queued", "workload.admitted", "workload.cancelled"):
            assert turns[turn, replica] == 1, (turn, replica)
        for turn in ("replica.started", "replica.ready", "replica.stopped"):
            assert turns[turn, replica] == 1, (turn, replica)
    assert turns["artifact.resolved", "weights"] == 1
