"""Commit to handler: how long after a commit is asked for its fact is inside another process's durable handler.

One real Redis (fsync at every commit) and nats-server, this process as the committing controller with its relay, a child
as the listening one. 50 commits a second first, then bursts of 20. Run: python -m bench.facts [--commits N].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import uvloop

from bench.listener import NOTES
from bench.report import percentiles
from shared.bus.client import BusClient
from shared.bus.relay import Relay
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.events.workload import WorkloadAdmitted
from shared.store.client import Store
from shared.store.documents import Commit
from tests.support.children import Child
from tests.support.servers import NatsServer, RedisServer
from tests.support.wait import eventually

PACE_SECONDS = 0.02
BURST = 20


async def commit(store: Store, name: str, committed: dict[str, int]) -> None:
    fact = WorkloadAdmitted(namespace="default", name=name, uid="u", node="n", devices=["gpu-0"])
    committed[name] = time.monotonic_ns()
    await store.commit(Commit(facts=(fact,)))


def arrivals(path: Path) -> dict[str, int]:
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {name: int(at) for name, at in lines}


async def run_phase(store: Store, notes: Path, phase: str, count: int, burst: int) -> dict[str, float]:
    committed: dict[str, int] = {}
    for start in range(0, count, burst):
        await asyncio.gather(*(commit(store, f"{phase}-{i}", committed) for i in range(start, start + burst)))
        await asyncio.sleep(PACE_SECONDS * burst)
    await eventually(lambda: set(committed) <= set(arrivals(notes)), timeout=60)
    seen = arrivals(notes)
    return percentiles([(seen[name] - at) / 1e6 for name, at in committed.items()])


async def phases(redis: RedisServer, nats: NatsServer, directory: Path, count: int) -> dict[str, dict[str, float]]:
    settings = {"GPUBUS_NATS_URL": nats.url, "GPUBUS_REDIS_URL": redis.url, "GPUBUS_DATA_DIR": str(directory)}
    await migrate(url=nats.url)
    bus = await BusClient.connect(url=nats.url, user="scheduler")
    store = await Store.connect(url=redis.url, service="scheduler", instance="bench", clock=SystemClock())
    relaying = asyncio.ensure_future(Relay(store, bus, SystemClock()).run())
    child = Child(directory, "listener", ("bench.listener",), settings).start()
    try:
        await asyncio.to_thread(child.ready, 30)
        notes = directory / NOTES
        await run_phase(store, notes, "warm", 40, 1)
        return {
            "single_ms": await run_phase(store, notes, "single", count, 1),
            "burst_of_20_ms": await run_phase(store, notes, "burst", count, BURST),
        }
    finally:
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)
        child.end()
        await store.close()
        await bus.close()


def measure(commits: int = 500) -> dict[str, dict[str, float]]:
    """Milliseconds, by phase: p50, p99, worst, count."""
    redis, nats = RedisServer(fsync="always"), NatsServer()
    redis.start()
    nats.start()
    try:
        with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as directory:
            return uvloop.run(phases(redis, nats, Path(directory), commits))
    finally:
        nats.close()
        redis.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=500)
    print(json.dumps(measure(parser.parse_args().commits), indent=2))


if __name__ == "__main__":
    main()
