"""Commits a second of one process through commit.lua, one document a commit and many, with AOF always and everysec.

Each commit does what a controller's does: compare-and-set of documents, log entries, a fact a document into the
outbox, an inbox mark. Prints one JSON object. Run: python -m bench.commits [--seconds 3]. Read next: shared/store/wire.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass

import uvloop

from shared.clock import SystemClock
from shared.events.objects import SchedulerObjectApplied
from shared.store import keys
from shared.store.client import Store, StoreOptions
from shared.store.documents import ANY, Commit, Counter, InboxMark, Put
from tests.support.servers import RedisServer

# About what a Workload with its status weighs.
BODY = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"uid": "9c5f0c51-3a44-4a5e-9d0c-0f6a5f0f9a55", "labels": {"app.kubernetes.io/name": "bench"}},
    "spec": {"queueName": "gpustack-fnv64-0123456789abcdef", "podSets": [{"name": "main", "count": 1}]},
    "status": {"conditions": [{"type": "Admitted", "status": "True", "message": "x" * 1000}]},
}


@dataclass(frozen=True)
class Case:
    name: str
    documents: int
    at_once: int


CASES = (Case("single", 1, 1), Case("single_concurrent", 1, 32), Case("batched_50", 50, 4), Case("batched_200", 200, 2))


def commit_of(number: int, documents: int) -> Commit:
    names = [f"w-{(number * documents + i) % 5000}" for i in range(documents)]
    return Commit(
        puts=[Put("Workload", "default", name, BODY, ANY) for name in names],
        counters=[Counter(keys.ledger("node-0"), f"gpu-{i}", 1, ceiling=None) for i in range(min(documents, 8))],
        facts=[SchedulerObjectApplied(kind="Workload", namespace="default", name=name, uid="u") for name in names],
        mark=InboxMark("bench", f"{number}-{documents}"),
    )


async def run_case(store: Store, server: RedisServer, case: Case, seconds: float) -> dict[str, float]:
    numbers = iter(range(10**9))
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def worker() -> None:
        while time.perf_counter() < end:
            before = time.perf_counter()
            await store.commit(commit_of(next(numbers), case.documents))
            times.append(time.perf_counter() - before)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(case.at_once)))
    took = time.perf_counter() - started
    server.ask("DEL", keys.outbox(store.service))
    times.sort()
    return {
        "commits_per_second": round(len(times) / took),
        "documents_per_second": round(len(times) * case.documents / took),
        "p50_ms": round(times[len(times) // 2] * 1000, 3),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 3),
    }


async def run_cases(fsync: str, seconds: float) -> dict[str, dict[str, float]]:
    results = {}
    for case in CASES:
        server = RedisServer(fsync=fsync)
        server.start()
        try:
            options = StoreOptions(outbox_limit=2**40)
            store = await Store.connect(
                url=server.url, service="scheduler", instance="bench", clock=SystemClock(), options=options
            )
            results[case.name] = await run_case(store, server, case, seconds)
            await store.close()
        finally:
            server.close()
    return results


def measure(seconds: float = 3.0) -> dict[str, dict[str, dict[str, float]]]:
    """Every case, with fsync at every commit and once a second."""
    return {f"fsync_{fsync}": uvloop.run(run_cases(fsync, seconds)) for fsync in ("always", "everysec")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    print(json.dumps(measure(args.seconds), indent=2))


if __name__ == "__main__":
    main()
