"""How many admissions a second the scheduler makes, each durable in Redis and published as a fact.

One real Redis (AOF, fsync at every commit), one nats-server, one scheduler process, simulated nodes, whole cards. All
workloads wait behind a held pool; the hold is lifted, and the clock runs until the last `workload.admitted` is in its
stream. Then single workloads one after the other: from the freeing of a card to the next one's admission. The pure
decision is timed alone over 1,000 and 5,000 nodes. `python bench/admissions.py [--nodes N] [--workloads N] [--fsync M]`
Read next: services/scheduler/loops/cycle.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services.scheduler.domain.admission import Limits, Snapshot, TypeState, decide_cycle
from services.scheduler.domain.nodes import CardGroup, NodeFacts, NodeView
from services.scheduler.domain.pools import PoolKey
from services.scheduler.domain.queue import Demand, Queue, Waiting
from services.scheduler.domain.request import Request
from services.scheduler.domain.snapshot import PoolView
from shared.bus.client import BusClient
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.resources.pool import entrance
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import Assign, Commit, Put, Require
from tests.support.children import Child
from tests.support.servers import NatsServer, RedisServer

POOL = PoolKey("nvidia-a10g", "linux", "amd64")
CARDS = 8
CHUNK = 100


def node(name: str) -> dict[str, Any]:
    """A simulated node as discovery stores it."""
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "gpubus.io/simulated": "true"}
    status = {
        "allocatable": {"cpu": "64", "memory": "512Gi"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReports"}],
    }
    metadata = {"name": name, "uid": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def devices(name: str, epoch: str) -> dict[str, Any]:
    """Its cards, reported under the current epoch."""
    cards = [{"id": f"{name}-{index}", "index": index} for index in range(CARDS)]
    group = {"id": "a10g", "manufacturer": "nvidia", "name": "NVIDIA A10G", "memory": 23028, "accelerators": cards}
    metadata = {"name": name, "uid": f"d-{name}"}
    status = {"ledgerEpoch": epoch}
    return {
        "apiVersion": "worker.gpustack.ai/v1", "kind": "Devices", "metadata": metadata, "spec": {"groups": [group]},
        "status": status,
    }  # fmt: skip


def workload(name: str, cards: int = 1) -> Put:
    """One replica's request."""
    limits = {"nvidia.com/gpu": str(cards), "cpu": "2", "memory": "16Gi"}
    container = {
        "name": "engine", "image": "vllm", "command": ["vllm", "serve", "/model"],
        "env": [{"name": f"VARIABLE_{number}", "value": "some value"} for number in range(8)],
        "ports": [{"containerPort": 8000, "name": "http"}], "resources": {"limits": limits},
    }  # fmt: skip
    owner = {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelDeployment",
        "name": "md",
        "uid": "u",
        "controller": True,
    }
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "default", "finalizers": ["gpubus.io/ledger"], "ownerReferences": [owner]},
        "spec": {"queueName": entrance(POOL.name), "podSets": [{"template": {"spec": {"containers": [container]}}}]},
    }  # fmt: skip
    return Put("Workload", "default", name, body, None)


class Bench:
    """The servers, one scheduler, and the stores that play its neighbours."""

    def __init__(self, directory: Path, fsync: str) -> None:
        self.directory = directory
        self.redis, self.nats = RedisServer(fsync=fsync), NatsServer()
        self.child: Child | None = None

    async def start(self) -> None:
        """Servers and connections."""
        self.redis.start()
        self.nats.start()
        await migrate(self.nats.url)
        clock = SystemClock()
        self.store = await Store.connect(url=self.redis.url, service="scheduler", instance="bench", clock=clock)
        self.discovery = await Store.connect(url=self.redis.url, service="discovery", instance="bench", clock=clock)
        self.bus = await BusClient.connect(url=self.nats.url, user="bench")

    def scheduler(self) -> Child:
        """The process under test."""
        settings = {"GPUBUS_NATS_URL": self.nats.url, "GPUBUS_REDIS_URL": self.redis.url, "GPUBUS_LOG_LEVEL": "warning"}
        self.child = Child(self.directory, "scheduler", ("services.scheduler",), settings).start().ready()
        return self.child

    async def fleet(self, count: int) -> None:
        """Nodes that have reported, and a namespace."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        await self.store.commit(Commit(puts=[Put("Namespace", "", "default", space, None)]))
        names = [f"node-{number:05}" for number in range(count)]
        for start in range(0, count, CHUNK // 2):
            part = names[start : start + CHUNK // 2]
            puts = [Put("Node", "", name, node(name), None) for name in part]
            puts += [Put("Devices", "", name, devices(name, self.store.epoch), None) for name in part]
            await self.discovery.commit(Commit(puts=puts))
            opened = [Assign(keys.ledger(name), "epoch", self.store.epoch) for name in part]
            guard = Require.equals(keys.ledger(part[0]), "epoch", None)
            await self.store.commit(Commit(assigns=opened, requires=[guard]))

    async def hold(self, *, held: bool) -> None:
        """Switch the pool's hold."""
        while (found := await self.store.get("InstanceType", "", POOL.name)) is None:
            await asyncio.sleep(0.05)
        body = {**found.body, "spec": {**found.body["spec"], "inactive": held}}
        try:
            await self.store.commit(Commit(puts=[Put("InstanceType", "", POOL.name, body, found.revision)]))
        except Exception:
            await asyncio.sleep(0.05)
            await self.hold(held=held)

    async def submit(self, names: list[str]) -> None:
        """Workloads, waiting."""
        for start in range(0, len(names), CHUNK):
            await self.store.commit(Commit(puts=[workload(name) for name in names[start : start + CHUNK]]))

    async def told(self, reason: str, count: int) -> None:
        """Wait until so many workloads were told a reason."""
        while True:
            taken = await self.store.snapshot(["Workload"])
            texts = (json.dumps(document.body.get("status") or {}) for document in taken.documents)
            if sum(reason in text for text in texts) >= count:
                return
            await asyncio.sleep(0.5)

    async def published(self) -> int:
        """How many `workload.admitted` are in the stream."""
        info = await self.bus.connection.jetstream().stream_info(
            "FACTS_SCHEDULER", subjects_filter="gpubus.evt.workload.admitted.>"
        )
        return sum((info.state.subjects or {}).values())

    async def close(self) -> None:
        """Everything ends."""
        if self.child is not None:
            self.child.kill()
        await self.bus.close()
        for store in (self.store, self.discovery):
            await store.close()
        self.nats.close()
        self.redis.close()


async def admissions(nodes: int, workloads: int, fsync: str) -> dict[str, Any]:
    """Admissions a second, and the wait after a card is freed."""
    with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as directory:
        bench = Bench(Path(directory), fsync)
        await bench.start()
        try:
            await bench.fleet(nodes)
            child = bench.scheduler()
            await bench.hold(held=True)
            await bench.submit([f"w-{number:06}" for number in range(workloads)])
            await bench.told("PoolInactive", workloads)
            before = cpu_seconds(child.pid)
            started = time.perf_counter()
            await bench.hold(held=False)
            while await bench.published() < workloads:
                await asyncio.sleep(0.02)
            took = time.perf_counter() - started
            used = cpu_seconds(child.pid) - before
            waits = await freed_to_admitted(bench, nodes, workloads)
            return {
                "nodes": nodes,
                "workloads": workloads,
                "fsync": fsync,
                "admissions_per_second": round(workloads / took, 1),
                "scheduler_cpu_us_per_admission": round(used / workloads * 1e6, 1),
                "freed_to_admitted_ms_p50": round(statistics.median(waits) * 1000, 2),
                "freed_to_admitted_ms_max": round(max(waits) * 1000, 2),
            }
        finally:
            await bench.close()


async def freed_to_admitted(bench: Bench, nodes: int, workloads: int, turns: int = 30) -> list[float]:
    """Fill the pool, keep some waiting, free one card at a time."""
    from services.scheduler.domain import intake
    from services.scheduler.store.workloads import ending_commit

    fill = nodes * CARDS - workloads
    await bench.submit([f"fill-{number:06}" for number in range(fill)])
    while await bench.published() < workloads + fill:
        await asyncio.sleep(0.05)
    await bench.submit([f"late-{number:03}" for number in range(turns)])
    await bench.told("NoCapacity", turns)
    waits = []
    for turn in range(turns):
        document = await bench.store.get("Workload", "default", f"w-{turn:06}")
        assert document is not None
        ending = intake.removed(document.body, "Cancelled", "")
        assert ending is not None
        started = time.perf_counter()
        await bench.store.commit(ending_commit(document, ending, None))
        while True:
            late = await bench.store.get("Workload", "default", f"late-{turn:03}")
            if late is not None and (late.body.get("status") or {}).get("admission"):
                break
            await asyncio.sleep(0)
        waits.append(time.perf_counter() - started)
    return waits


def decisions(nodes: int, turns: int = 300) -> dict[str, Any]:
    """The pure decision alone: one workload at a time, each applied before the next is decided."""
    request = Request(manufacturer="nvidia", cards=1, cpu_milli=2000, memory_bytes=16 << 30)
    pool = PoolView(POOL)
    for number in range(nodes):
        pool.put(_view(f"n{number:05}"))
    started = time.perf_counter()
    pool.ranking(request)
    first = time.perf_counter() - started
    times = []
    for turn in range(turns):
        queue = Queue()
        demand = Demand(POOL.name, "", request)
        queue.put(Waiting(f"u{turn}", "default", f"w{turn}", (0, turn, "default", f"w{turn}"), demand, 1, 0.0))
        snapshot = Snapshot(pool, queue, {POOL.name: TypeState()})
        started = time.perf_counter()
        cycle = decide_cycle(snapshot, 1.0, Limits()).state
        assert cycle is not None
        chosen = cycle.admissions[0]
        view, _ = chosen.node.with_reservation(request, POOL.accelerator)
        pool.put(view)
        times.append(time.perf_counter() - started)
    times.sort()
    return {
        "nodes": nodes,
        "first_of_a_class_ms": round(first * 1000, 2),
        "decision_us_p50": round(times[len(times) // 2] * 1e6, 1),
        "decision_us_p99": round(times[int(len(times) * 0.99)] * 1e6, 1),
    }


def _view(name: str) -> NodeView:
    cards = tuple(f"{name}-{index}" for index in range(CARDS))
    group = CardGroup("nvidia-a10g", "nvidia", "a10g", "NVIDIA A10G", 23028, 80, "", cards, frozenset())
    facts = NodeFacts(name, "linux", "amd64", {}, cpu_milli=64_000, memory_bytes=512 << 30, groups={group.key: group})
    return NodeView(facts, {group.key: cards}, facts.cpu_milli, facts.memory_bytes)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(nodes: int = 1000, workloads: int = 6000, fsync: str = "always") -> dict[str, Any]:
    """The pure decision at two sizes, then admissions end to end."""
    decided = {f"decisions_{size}_nodes": decisions(size) for size in (1000, 5000)}
    return {**decided, "admissions": asyncio.run(admissions(nodes, workloads, fsync))}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--workloads", type=int, default=6000)
    parser.add_argument("--fsync", default="always", choices=["always", "everysec"])
    asked = parser.parse_args()
    print(json.dumps(measure(asked.nodes, asked.workloads, asked.fsync), indent=2))


if __name__ == "__main__":
    main()
