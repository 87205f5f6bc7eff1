"""A whole stack, timed from outside as its users see it.

* `cold_up_s`: `gpubus up --detach` in a fresh data dir, until it returns ready.
* `device_report_ms`: an agent reports another card count, until `GET devices` shows it (asked every 2 ms).
* `replica_ready_ms`: POST of a ModelDeployment, until its watch says Available; simulated runtime, engine start 0.
* `idle`: what a stack without work weighs (sum of PSS) and uses (cores, over 20 s).

Run: python -m bench.stack. Read next: tests/support/stack.py.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench.report import percentiles
from services.discovery.agent.incarnation import Slot
from services.discovery.agent.node import NodeAgent
from services.discovery.drivers.simulated import SimulatedCards, SimulatedHardware, SimulatedHost, SimulatedProbe
from shared.bus.client import BusClient
from shared.clock import SystemClock
from tests.support.stack import Stack, condition

FLEET = Path(__file__).parents[1] / "deploy" / "samples" / "fleet.yaml"
KINDS = "/apis/worker.gpustack.ai/v1/namespaces/default"
NODE = "bench-node"
CARDS = SimulatedCards(manufacturer="nvidia", product="NVIDIA A10G", memory_mib=23028, cores=80)
HARDWARE = SimulatedHardware(name=NODE, cpu_milli=32000, memory_bytes=128 << 30)
IDLE_SECONDS = 20
_REPORT_PAUSE_SECONDS = 0.25
"""The scheduler has reshaped its pools after the last report when the next one comes."""
_ASK_AGAIN_SECONDS = 0.002
"""Asking without a pause takes the cores from those who are asked."""


class Rest:
    """One kept connection to a stack's resource API."""

    def __init__(self, stack: Stack) -> None:
        env = stack.exports()
        self._headers = {"Authorization": f"Bearer {env['GPUBUS_TOKEN']}", "Content-Type": "application/json"}
        self._connection = http.client.HTTPConnection(urlsplit(env["GPUBUS_URL"]).netloc, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, whatever its status."""
        self.send(method, path, body)
        return json.loads(self._connection.getresponse().read())

    def send(self, method: str, path: str, body: Any = None) -> None:
        self._connection.request(method, path, json.dumps(body) if body else None, self._headers)

    def watch(self, path: str, holds: Callable[[Any], bool]) -> int:
        """Monotonic nanoseconds at which an event's object held."""
        self.send("GET", path)
        answer = self._connection.getresponse()
        for line in answer:
            if holds(json.loads(line)["object"]):
                return time.monotonic_ns()
        raise ConnectionError("the watch ended")


def cold_up(runs: int = 3) -> dict[str, float]:
    """Seconds of each start, on an empty data dir."""
    took = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as directory:
            stack = Stack(Path(directory) / "data")
            started = time.perf_counter()
            stack.up()
            took.append(time.perf_counter() - started)
            stack.down()
    return percentiles(took)


async def device_reports(stack: Stack, directory: Path, count: int) -> dict[str, float]:
    """Milliseconds from the agent's look at changed hardware to the answer of a GET that shows it."""
    credentials = json.loads(stack.gpubus("node", "credentials", NODE).stdout)
    seed = directory / "seed"
    seed.write_text(credentials["seed"])
    bus = await BusClient.connect(url=stack.exports()["NATS_URL"], user=credentials["user"], seed_file=seed)
    host, probe = SimulatedHost(HARDWARE), SimulatedProbe(HARDWARE)
    slot = Slot(directory, NODE)
    identity = slot.begin(HARDWARE.machine_id, "boot")
    agent = NodeAgent(
        node=NODE, identity=identity, host=host, probes=[probe], runtimes=["simulated"], bus=bus, clock=SystemClock()
    )
    agent.listen()
    await agent.look()
    loops = [asyncio.ensure_future(loop) for loop in (agent.keep_place(), agent.keep_beating())]
    rest, samples = Rest(stack), []
    for number in range(count + 1):
        host.hardware = probe.hardware = replace(HARDWARE, cards=[replace(CARDS, count=1 + number % 4)])
        before = time.monotonic_ns()
        await agent.look()
        await _visible(rest, 1 + number % 4)
        samples.append((time.monotonic_ns() - before) / 1e6)
        await asyncio.sleep(_REPORT_PAUSE_SECONDS)
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    await bus.close()
    rest.ask("DELETE", f"/api/v1/nodes/{NODE}")
    return percentiles(samples[1:])


async def _visible(rest: Rest, cards: int) -> None:
    path = f"/apis/worker.gpustack.ai/v1/devices/{NODE}"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        body = await asyncio.to_thread(rest.ask, "GET", path)
        groups = body["status"].get("groups", ()) if body["kind"] == "Devices" else ()
        if sum(len(group["accelerators"]) for group in groups) == cards:
            return
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
    raise TimeoutError(f"{path} never showed {cards} cards")


def deployment(name: str) -> dict[str, Any]:
    role = {
        "name": "server",
        "replicas": 1,
        "instanceType": "gpustack--nvidia-a10g-linux-amd64",
        "resources": {"accelerator": 1},
    }
    spec = {"model": {"name": name, "artifactRef": {"name": "bench"}}, "engine": {"name": "vLLM"}, "roles": [role]}
    return {"apiVersion": "worker.gpustack.ai/v1", "kind": "ModelDeployment", "metadata": {"name": name}, "spec": spec}


def replicas_ready(stack: Stack, count: int) -> dict[str, float]:
    """Milliseconds from POST to Available, one deployment after the other, its weights already on the nodes."""
    rest, samples = Rest(stack), []
    source = {"huggingFace": {"repository": "Qwen/Qwen2.5-7B-Instruct"}}
    artifact = {"apiVersion": "worker.gpustack.ai/v1", "kind": "ModelArtifact", "metadata": {"name": "bench"}}
    rest.ask("POST", f"{KINDS}/modelartifacts", {**artifact, "spec": {"source": source}})
    for number in range(count + 4):
        name = f"bench-{number}"
        before = time.monotonic_ns()
        rest.ask("POST", f"{KINDS}/modeldeployments", deployment(name))
        path = f"{KINDS}/modeldeployments?watch=1&fieldSelector=metadata.name%3D{name}"
        ready = Rest(stack).watch(path, lambda body: condition(body, "Available").get("status") == "True")
        samples.append((ready - before) / 1e6)
        rest.ask("DELETE", f"{KINDS}/modeldeployments/{name}")
        time.sleep(0.2)
    rest.ask("DELETE", f"{KINDS}/modelartifacts/bench")
    return percentiles(samples[4:])


def _ticks(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def idle() -> dict[str, float]:
    """A stack with this host's agents and nothing to do, 10 s after its start."""
    with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as directory:
        stack = Stack(Path(directory) / "data").up()
        try:
            time.sleep(10)
            pids = list(stack.pids().values())
            before = _ticks(pids)
            time.sleep(IDLE_SECONDS)
            cores = (_ticks(pids) - before) / os.sysconf("SC_CLK_TCK") / IDLE_SECONDS
            return {"pss_mb": round(sum(map(_pss, pids)) / 1000, 1), "cores": round(cores, 3), "processes": len(pids)}
        finally:
            stack.down()


def measure(reports: int = 100, deployments: int = 30) -> dict[str, dict[str, float]]:
    """Everything in this module."""
    results = {"cold_up_s": cold_up(), "idle": idle()}
    with tempfile.TemporaryDirectory(prefix="gpubus-bench-") as directory:
        stack = Stack(Path(directory) / "data", "--fleet", str(FLEET)).up()
        try:
            results["device_report_ms"] = uvloop.run(device_reports(stack, Path(directory), reports))
            results["replica_ready_ms"] = replicas_ready(stack, deployments)
        finally:
            stack.down()
    return results


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
