"""A runtime, a prober and a clock that a test moves by hand: for the keeper of one Pod.

Read next: test_keeper.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from services.deployer.agent.keeper import PodKeeper
from services.deployer.domain.running import Ended, Launch, LogPiece, Observation, Place
from shared.errors import FailedPrecondition, GpubusError
from shared.queries import WantedPod
from shared.reports import PodState
from tests.support.wait import eventually


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> datetime:
        return datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at


class HandRuntime:
    """Runs nothing; says what the test made it say."""

    name = "process"

    def __init__(self) -> None:
        self.seen = Observation()
        self.started: list[Launch] = []
        self.stopped: list[float] = []
        self.records: list[Mapping[str, Any]] = []
        self.refusal: GpubusError | None = None
        self.unseen: GpubusError | None = None
        self.ends_at_once: Ended | None = None

    def on_change(self, callback: Callable[[str], None]) -> None: ...

    def adopt(self) -> Mapping[str, Mapping[str, Any]]:
        return {}

    async def place(self, uid: str, fixed_port: int | None) -> Place:
        return Place(host="h", address="h", port=fixed_port or 9000 + len(self.started), token=f"t{len(self.started)}")

    async def start(self, launch: Launch) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self.seen.running:
            raise FailedPrecondition("something of this Pod still runs here")
        self.started.append(launch)
        self.records.append(launch.record)
        self.seen = Observation(running=True, run=launch.run, started_unix=1, place=launch.place)
        if self.ends_at_once is not None:
            self.end(self.ends_at_once)

    async def stop(self, uid: str, grace_seconds: float) -> None:
        self.stopped.append(grace_seconds)

    async def observe(self, uid: str) -> Observation:
        if self.unseen is not None:
            raise self.unseen
        return self.seen

    async def record(self, uid: str, record: Mapping[str, Any]) -> None:
        self.records.append(record)

    async def read_log(self, uid: str, *, offset: int, tail_lines: int, max_bytes: int, previous: bool) -> LogPiece:
        raise NotImplementedError

    async def forget(self, uid: str) -> None: ...

    def end(self, how: Ended) -> None:
        """What ran has ended."""
        self.seen = replace(self.seen, running=False, place=None, ended=how)


class HandProber:
    """Answers what the test says; empty is well."""

    def __init__(self) -> None:
        self.why = ""
        self.asked = 0

    async def answers(self, place: Place, path: str | None, timeout: float) -> str:
        self.asked += 1
        return self.why


class Bench:
    """One keeper with everything around it by hand, and every state that it said had changed."""

    def __init__(self, runtime: HandRuntime | None = None) -> None:
        self.clock, self.prober = HandClock(), HandProber()
        self.runtime = runtime or HandRuntime()
        self.told: list[PodState] = []
        self.keeper = PodKeeper(
            uid="u", node="n1", runtime=self.runtime, prober=self.prober, clock=self.clock, changed=self._changed
        )
        self.task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self.task = asyncio.ensure_future(self.keeper.run())

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def state(self) -> PodState:
        found = self.keeper.state()
        assert found is not None
        return found

    async def until(self, check: Callable[[PodState], bool]) -> PodState:
        """Let it work until its state is as wanted; pokes, because its clock stands still."""

        def done() -> PodState | None:
            self.keeper.poke()
            return found if check(found := self.state()) else None

        return await eventually(done)

    async def turns(self, count: int = 5) -> None:
        """A few decisions more."""
        for _ in range(count):
            self.keeper.poke()
            await asyncio.sleep(0.005)

    def _changed(self) -> None:
        self.told.append(self.state())


def a_wanted(*, probe: dict[str, Any] | None = None, hold: str = "", **spec: Any) -> WantedPod:
    container: dict[str, Any] = {"name": "c", "command": ["serve"], "ports": [{"containerPort": 8000}]}
    if probe is not None:
        container["readinessProbe"] = {"httpGet": {"path": "/health", "port": 8000}, **probe}
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [container], **spec}}
    return WantedPod(uid="u", namespace="default", name="p", pod=pod, runtime="process", hold=hold)
