"""Keeps one Pod as it should be: starts it, asks whether it is ready, starts it again after failures, stops it.

One task a Pod, so that a slow one holds up no other. Must not talk to the bus. Read next: ../domain/lifecycle.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.deployer.agent.launch import Recipe
from services.deployer.domain import lifecycle
from services.deployer.domain.lifecycle import Act, History, Order
from services.deployer.domain.running import Ended, Observation
from services.deployer.ports import Prober, Runtime
from shared.clock import Clock
from shared.errors import FailedPrecondition, GpubusError
from shared.faults import point
from shared.queries import WantedPod
from shared.reports import PodState
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

FIRST_PROBE_SECONDS = 0.1
"""While it starts it is asked often at first, then seldom."""
SLOWEST_START_PROBE_SECONDS = 1.0
STOP_AGAIN_SECONDS = 0.5
LOOK_SECONDS = 10.0
HUNG_AFTER_SECONDS = 120.0
"""Once ready and then silent for this long, it is started again."""
CRASH_LOOP, WAITING, STARTING, NOT_READY = "CrashLoopBackOff", "Waiting", "Starting", "ProbeFailed"


@dataclass(slots=True)
class _Health:
    """What the probe says of the current start."""

    ready: bool = False
    was_ready: bool = False
    failures: int = 0
    why: str = ""
    pause: float = FIRST_PROBE_SECONDS
    due: float = 0.0
    last_good: float = 0.0
    hung: bool = False
    """It is being ended without being given up: it is started again afterwards."""


class PodKeeper:
    """One Pod. `order` and `cancel` change what is wanted; `state` is what is reported."""

    def __init__(
        self, *, uid: str, node: str, runtime: Runtime, prober: Prober, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self.uid = uid
        self.recipe: Recipe | None = None
        self.order = Order(run=False)
        self.history = History()
        self.confirmed = False
        """Nothing of it runs and nothing will be started: it can be reported as stopped."""
        self._node = node
        self._runtime = runtime
        self._prober = prober
        self._clock = clock
        self._changed = changed
        self._grace = 30.0
        self._seen = Observation()
        self._health = _Health()
        self._since = clock.monotonic()
        self._wake = asyncio.Event()
        self._trouble = ""

    # What is wanted

    def adopt(self, record: Mapping[str, Any]) -> None:
        """Take up what an earlier agent left; not wanted until the controller says so."""
        body = record.get("wanted")
        if isinstance(body, dict):
            self.recipe = Recipe.of(WantedPod.model_validate(body))
        history = record.get("history") or {}
        self.history = History(
            starts=int(history.get("starts", 0)),
            failures=int(history.get("failures", 0)),
            taken=int(history.get("taken", 0)),
            finished=history.get("finished", ""),
            last=_ended(history.get("last")),
        )

    def want(self, wanted: WantedPod) -> None:
        """Run it (or keep what runs)."""
        recipe = Recipe.of(wanted)
        order = Order(run=True, hold=wanted.hold, policy=recipe.pod.spec.restart_policy)
        self.recipe, changed = recipe, order != self.order
        self.order = order
        self.confirmed = False
        if changed:
            self.poke()

    def cancel(self, grace_seconds: float) -> None:
        """Stop it for good."""
        if self.order.run or grace_seconds != self._grace:
            self.order, self._grace = Order(run=False), grace_seconds
            self.poke()

    def poke(self) -> None:
        """Look now."""
        self._wake.set()

    # What is

    async def look(self) -> None:
        """Observe without starting or stopping, so that the first report tells what runs and what is ready."""
        self._seen = await self._runtime.observe(self.uid)
        begun = max(self._seen.run, self.history.taken)  # one that was only meant to be begun counts as nothing
        self.history = replace(self.history, starts=begun)
        if self._seen.running:
            await self._probe(self._clock.monotonic())

    def state(self) -> PodState | None:
        """As it is reported; None for one that nothing is known of but its folder."""
        if self.recipe is None and not self.confirmed:
            return PodState(uid=self.uid, phase="Running" if self._seen.running else "Pending")
        phase, reason, message = self._phase()
        seen, place, wanted = self._seen, self._seen.place, self.recipe.wanted if self.recipe else None
        last, listens = self.history.last, self.recipe is not None and self.recipe.listens
        shown = place if place is not None and phase == "Running" and listens else None
        return PodState(
            uid=self.uid,
            namespace=wanted.namespace if wanted else "",
            name=wanted.name if wanted else "",
            workload=wanted.workload if wanted else "",
            devices=wanted.devices if wanted else [],
            credits=wanted.credits if wanted else 0,
            cpu_milli=wanted.cpu_milli if wanted else 0,
            memory_bytes=wanted.memory_bytes if wanted else 0,
            phase=phase,
            ready=phase == "Running" and self._health.ready,
            started_unix=seen.started_unix if phase == "Running" else None,
            restarts=self.history.restarts,
            exit_code=_exit_code(last),
            signal=last.signal if last else None,
            reason=reason,
            message=message,
            address=shown.address if shown else "",
            port=shown.port if shown else 0,
            path=shown.path if shown else "",
            token=shown.token if shown else "",
            conditions=self.recipe.notes if self.recipe else [],
        )

    def _phase(self) -> tuple[Any, str, str]:
        last, failures = self.history.last, self.history.failures
        told = lifecycle.sentence(last, 0) if last else ""
        if self.confirmed:
            return "Stopped", "", ""
        if self.history.finished:
            return self.history.finished, "Completed" if self.history.finished == "Succeeded" else "Error", told
        if self._seen.running:
            if self._health.ready:
                return "Running", "", told if self.history.restarts else ""
            return "Running", NOT_READY if self._health.was_ready else STARTING, self._health.why or told
        if failures and last is not None:
            return "Pending", CRASH_LOOP, lifecycle.sentence(last, failures)
        return "Pending", WAITING, self._trouble or self.order.hold

    def as_record(self, history: History | None = None) -> dict[str, Any]:
        """What a later agent adopts; `history` when it is not yet this keeper's."""
        history = history or self.history
        last = history.last
        return {
            "wanted": self.recipe.wanted.model_dump(mode="json", by_alias=True) if self.recipe else None,
            "history": {
                "starts": history.starts,
                "failures": history.failures,
                "taken": history.taken,
                "finished": history.finished,
                "last": {"exitCode": last.exit_code, "signal": last.signal, "lines": list(last.lines)}
                if last
                else None,
            },
        }

    # The loop

    async def run(self) -> None:
        """For ever; ends by cancellation, which stops nothing."""
        while True:
            before = self.state()
            try:
                pause = await self._turn()
            except (GpubusError, OSError):
                log.exception("pod_not_kept", pod_uid=self.uid)
                pause = SLOWEST_START_PROBE_SECONDS
            if self.state() != before:
                self._changed()
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue
            finally:
                self._wake.clear()

    async def _turn(self) -> float:
        """One decision; seconds until the next."""
        self._observed(await self._runtime.observe(self.uid))
        now = self._clock.monotonic()
        match lifecycle.decide(self.order, self._seen, self.history, now):
            case Act.START:
                return await self._start()
            case Act.TAKE_END:
                return await self._take_end(now)
            case Act.STOP:
                self.confirmed = False
                await self._runtime.stop(self.uid, self._grace)
                return STOP_AGAIN_SECONDS
            case Act.CONFIRM:
                self.confirmed = True
                return LOOK_SECONDS
        return await self._waited(now)

    async def _waited(self, now: float) -> float:
        if self._seen.running:
            return await self._probe(now)
        left = self.history.not_before - now
        return min(LOOK_SECONDS, left) if left > 0 else LOOK_SECONDS

    def _observed(self, seen: Observation) -> None:
        if (seen.run, seen.running) != (self._seen.run, self._seen.running):
            self._health, self._since = _Health(), self._clock.monotonic()
        self._seen = seen

    async def _start(self) -> float:
        """Begin the next start; what is written down first is what a later agent finds."""
        recipe = self.recipe
        assert recipe is not None, "only what is wanted is started"
        run = self.history.starts + 1
        try:
            place = await self._runtime.place(self.uid, recipe.fixed_port)
            history = lifecycle.started(self.history)
            launch = recipe.launch(self._node, place, run, self.as_record(history))
            point("deployer-agent.before-start")
            await self._runtime.start(launch)
        except FailedPrecondition:
            return STOP_AGAIN_SECONDS
        except GpubusError as error:
            self._trouble = str(error)
            log.warning("pod_not_started", pod=recipe.wanted.name, code=error.code.value, reason=str(error))
            return SLOWEST_START_PROBE_SECONDS
        point("deployer-agent.after-start")
        self.history, self._trouble = history, ""
        self._observed(await self._runtime.observe(self.uid))  # a start is never shown with the end of the one before
        log.info("pod_started", pod=recipe.wanted.name, namespace=recipe.wanted.namespace, run=run, port=place.port)
        return FIRST_PROBE_SECONDS if self._seen.running else await self._take_end(self._clock.monotonic())

    async def _take_end(self, now: float) -> float:
        end = self._seen.ended or Ended()
        ran = max(0.0, now - self._since)
        self.history = lifecycle.ended(self.history, end, ran, self.order.policy, now)
        name = self.recipe.wanted.name if self.recipe else self.uid
        log.warning("pod_ended", pod=name, exit_code=end.exit_code, signal=end.signal, failures=self.history.failures)
        await self._runtime.record(self.uid, self.as_record())
        return 0.0

    async def _probe(self, now: float) -> float:
        """Ask the engine if that is due; seconds until the next question."""
        health, probe = self._health, self.recipe.probe if self.recipe else None
        if health.hung:
            grace = self.recipe.pod.spec.termination_grace_period_seconds if self.recipe else self._grace
            await self._runtime.stop(self.uid, float(grace))
            return STOP_AGAIN_SECONDS
        if self._seen.ready is not None:
            self._judged(good=self._seen.ready, why="", now=now)
            return LOOK_SECONDS
        if probe is None or self.recipe is None:
            self._judged(good=True, why="", now=now)
            return LOOK_SECONDS
        place = self._seen.place
        if place is None:
            return FIRST_PROBE_SECONDS
        if now < health.due:
            return health.due - now
        path = probe.http_get.path if probe.http_get else None
        why = await self._prober.answers(place, path, max(1, probe.timeout_seconds))
        if self._health is health:
            self._judged(good=not why, why=why, now=self._clock.monotonic())
        pause = self._next_probe(probe.period_seconds)
        health.due = self._clock.monotonic() + pause
        return pause

    def _judged(self, *, good: bool, why: str, now: float) -> None:
        health, probe = self._health, self.recipe.probe if self.recipe else None
        if good:
            health.ready = health.was_ready = True
            health.failures, health.why, health.last_good = 0, "", now
            return
        health.failures += 1
        health.why = why
        if health.failures >= (probe.failure_threshold if probe else 1):
            health.ready = False
        if health.was_ready and now - health.last_good > HUNG_AFTER_SECONDS:
            log.warning("pod_hung", pod_uid=self.uid, reason=why)
            health.hung = True

    def _next_probe(self, period: int) -> float:
        health = self._health
        if health.was_ready:
            return max(1.0, period * random.uniform(0.9, 1.1))  # noqa: S311 - spreads probes
        pause, health.pause = health.pause, min(SLOWEST_START_PROBE_SECONDS, health.pause * 1.5)
        return pause


def _exit_code(last: Ended | None) -> int | None:
    if last is None:
        return None
    return last.exit_code if last.exit_code is not None else lifecycle.UNKNOWN_EXIT


def _ended(body: Any) -> Ended | None:
    if not isinstance(body, dict):
        return None
    lines = body.get("lines") or ()
    return Ended(exit_code=body.get("exitCode"), signal=body.get("signal"), lines=tuple(map(str, lines)))
