"""One node's deployer agent: asks what the node should run, makes it so, and reports what runs.

Level-triggered: it asks on connect, on a wake and every 10 s, ignores answers older than it has, and reports the full
set when it changed, after a reconnect and in a new epoch. It never stops anything because nobody answers.
Any number of them live in one process. Must not talk to the store. Read next: keeper.py.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from services.deployer.agent.keeper import PodKeeper
from services.deployer.agent.sequence import Sequence
from services.deployer.ports import Prober, Runtime
from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import GpubusError, NotFound, Transient
from shared.faults import point
from shared.queries import DesiredPods, DesiredPodsAnswer, LogAnswer, ReadLog, WantedPod
from shared.reports import PodsReported, PodState
from shared.resources.base import from_validation
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

ASK_SECONDS = 10.0
RETRY_SECONDS = 0.5
ANSWER_SECONDS = 5.0
_TOGETHER_SECONDS = 0.005
"""Changes this close together are one report."""
GRACE_AT_DOWN_SECONDS = 10.0
"""The longest that the end of the whole stack waits for one Pod."""


@dataclass(slots=True)
class _Talk:
    """What the controller said last, and what it was told last."""

    epoch: str = ""
    revision: int = 0
    least: int = 0
    """An answer that is not this new is worth nothing: the agent was woken for a newer one."""
    refused: str = ""
    reported: list[PodState] | None = None
    """None: whatever is there must be reported."""


class PodAgent:
    """One node on one bus client."""

    def __init__(
        self,
        *,
        node: str,
        bus: BusClient,
        runtime: Runtime,
        prober: Prober,
        clock: Clock,
        machine_id: str,
        data_dir: Path | None = None,
        spread: float = 0.2,
    ) -> None:
        """Nothing happens before `run`.

        Args:
            node: Its name.
            bus: Connected as the node's user.
            runtime: Runs its Pods; used by this agent alone.
            prober: Asks engines how they are.
            clock: For waiting, and for times that people see.
            machine_id: What the node's discovery agent says of the host.
            data_dir: Where sequence numbers are remembered; None keeps nothing on disk (simulated nodes).
            spread: The most seconds over which a common start or reconnect of many agents is spread.
        """
        self.node = node
        self.incarnation = secrets.token_hex(8)
        self.refusal = ""
        """Why nothing may be started here; empty when it may."""
        self.keepers: dict[str, PodKeeper] = {}
        self._bus = bus
        self._runtime, self._prober, self._clock = runtime, prober, clock
        self._machine_id, self._data_dir, self._spread = machine_id, data_dir, spread
        self._sequence = _sequence(node, clock, data_dir)
        self._talk = _Talk()
        self._ask_now, self._report_now = asyncio.Event(), asyncio.Event()
        self._listening = False
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._unnamed: frozenset[str] = frozenset()
        """Pods that the last answer neither wants nor asks to be confirmed."""

    @property
    def answered(self) -> bool:
        """Whether the controller has told this agent what its node should run."""
        return self._talk.revision > 0 and not self._talk.refused

    def listen(self) -> None:
        """Be woken by the controller and by reconnects, and answer for logs."""
        if self._listening:
            return
        self._listening = True
        self._bus.on_wake(self.node, self._woken)
        self._bus.on_reconnect(self._reconnected)
        self._bus.answer(ReadLog, self.node, self.read_log)

    async def run(self) -> None:
        """For ever; ends by cancellation, which leaves everything running."""
        await self._adopt()
        self.listen()
        async with asyncio.TaskGroup() as tasks:
            self._tasks, self._running = tasks, {}
            tasks.create_task(self._keep_asking())
            tasks.create_task(self._keep_reporting())

    async def close(self) -> None:
        """At the end of the process: stop the Pods if the whole stack ends, else leave them to the next agent."""
        if self._data_dir is None or not (self._data_dir / "run" / "stopping").exists():
            return
        log.info("pods_stopping", node=self.node, count=len(self.keepers))
        await asyncio.gather(*(self._end(uid) for uid in self.keepers))

    async def read_log(self, query: ReadLog) -> LogAnswer:
        """A piece of a Pod's log."""
        if query.uid not in self.keepers:
            raise NotFound("that Pod is not on this node")
        piece = await self._runtime.read_log(
            query.uid,
            offset=query.offset,
            tail_lines=query.tail_lines,
            max_bytes=min(query.max_bytes, 1 << 20),
            previous=query.previous,
        )
        return LogAnswer(text=piece.text, next_offset=piece.next_offset, ended=piece.ended)

    # Asking

    async def _keep_asking(self) -> None:
        await asyncio.sleep(random.uniform(0, self._spread))  # noqa: S311 - spreads a common start
        while True:
            known = await self.ask()
            pause = ASK_SECONDS * random.uniform(0.9, 1.1) if known else RETRY_SECONDS  # noqa: S311 - as above
            try:
                async with asyncio.timeout(pause):
                    await self._ask_now.wait()
            except TimeoutError:
                continue
            finally:
                self._ask_now.clear()

    async def ask(self) -> bool:
        """Ask once and act on the answer; whether there was one."""
        question = DesiredPods(
            node=self.node, incarnation=self.incarnation, machine_id=self._machine_id, min_revision=self._talk.least
        )
        try:
            answer: DesiredPodsAnswer = await self._bus.ask(question, timeout=ANSWER_SECONDS)
        except Transient:
            self._talk.least = 0  # nobody there now, or nobody that new: everything goes on as it is
            return False
        except GpubusError as error:
            log.warning("desired_not_answered", node=self.node, code=error.code.value, reason=str(error))
            return False
        return self.take(answer)

    def take(self, answer: DesiredPodsAnswer) -> bool:
        """Act on an answer; False for one that says nothing about this agent, or is older than what is held."""
        if answer.refused != self._talk.refused:
            log.warning("desired_refused", node=self.node, reason=answer.refused)
        self._talk.refused = answer.refused
        if answer.refused or answer.revision < max(self._talk.revision, self._talk.least):
            return False
        if answer.epoch != self._talk.epoch:
            self._talk.epoch, self._talk.reported = answer.epoch, None
        self._talk.revision = answer.revision
        for wanted in answer.pods:
            self._want(wanted)
        stopping = {stop.uid: float(stop.grace_seconds) for stop in answer.stopping}
        for uid, grace in stopping.items():
            self._keeper(uid).cancel(grace)
        named = stopping.keys() | {wanted.uid for wanted in answer.pods}
        for uid in self.keepers.keys() - named:
            self.keepers[uid].cancel(self._grace_of(uid))
        self._unnamed = frozenset(self.keepers.keys() - named)
        for uid in self.keepers:
            self._start_keeper(uid)
        self._report_now.set()
        return True

    # Reporting

    async def _keep_reporting(self) -> None:
        while True:
            await self._report_now.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._report_now.clear()
            if not self.answered:
                continue
            await self._forget()
            if not await self.report():
                await asyncio.sleep(RETRY_SECONDS)
                self._report_now.set()

    async def report(self) -> bool:
        """Report everything if it is not what was reported last; False when the bus did not take it."""
        states = [state for _, keeper in sorted(self.keepers.items()) if (state := keeper.state()) is not None]
        if states == self._talk.reported:
            return True
        epoch = self._talk.epoch
        message = PodsReported(
            node=self.node, incarnation=self.incarnation, sequence=self._sequence.next(), epoch=epoch, pods=states
        )
        point("deployer-agent.before-report")
        try:
            await self._bus.report(message)
        except GpubusError as error:
            log.warning("report_not_stored", node=self.node, code=error.code.value)
            return False
        if epoch == self._talk.epoch:
            self._talk.reported = states
        return True

    async def _forget(self) -> None:
        """Drop what runs no more and nobody asks for: not wanted, not to be confirmed."""
        for uid in list(self._unnamed):
            keeper = self.keepers.get(uid)
            if keeper is None or not keeper.confirmed:
                continue
            task = self._running.pop(uid, None)
            if task is not None:
                task.cancel()
            await self._runtime.forget(uid)
            del self.keepers[uid]
            self._unnamed = self._unnamed - {uid}

    # Pods

    async def _adopt(self) -> None:
        """Take up what an earlier agent left; nothing is started or stopped before the controller has spoken."""
        self._runtime.on_change(self._pod_changed)
        for uid, record in self._runtime.adopt().items():
            self._keeper(uid).adopt(record)
        await asyncio.gather(*(keeper.look() for keeper in self.keepers.values()))
        if self.keepers:
            log.info("pods_adopted", node=self.node, count=len(self.keepers))

    def _keeper(self, uid: str) -> PodKeeper:
        keeper = self.keepers.get(uid)
        if keeper is None:
            keeper = self.keepers[uid] = PodKeeper(
                uid=uid,
                node=self.node,
                runtime=self._runtime,
                prober=self._prober,
                clock=self._clock,
                changed=self._report_now.set,
            )
        return keeper

    def _start_keeper(self, uid: str) -> None:
        if uid not in self._running and self._tasks is not None:
            self._running[uid] = self._tasks.create_task(self.keepers[uid].run())

    def _want(self, wanted: WantedPod) -> None:
        try:
            held = wanted.model_copy(update={"hold": self.refusal}) if self.refusal else wanted
            self._keeper(wanted.uid).want(held)
        except ValidationError as error:  # one Pod that cannot be read must not hold up the others
            log.warning("pod_unreadable", pod_uid=wanted.uid, reason=str(from_validation(error)))

    def _grace_of(self, uid: str) -> float:
        recipe = self.keepers[uid].recipe
        return float(recipe.pod.spec.termination_grace_period_seconds) if recipe is not None else 30.0

    async def _end(self, uid: str) -> None:
        grace = min(GRACE_AT_DOWN_SECONDS, self._grace_of(uid))
        while (await self._runtime.observe(uid)).running:
            await self._runtime.stop(uid, grace)
            await asyncio.sleep(0.1)

    def _pod_changed(self, uid: str) -> None:
        keeper = self.keepers.get(uid)
        if keeper is not None:
            keeper.poke()

    async def _woken(self, revision: int) -> None:
        self._talk.least = max(self._talk.least, revision)
        self._ask_now.set()

    async def _reconnected(self) -> None:
        self._talk.reported = None
        await asyncio.sleep(random.uniform(0, self._spread))  # noqa: S311 - spreads a common reconnect
        self._ask_now.set()
        self._report_now.set()


def _sequence(node: str, clock: Clock, data_dir: Path | None) -> Sequence:
    path = data_dir / "run" / f"deployer-agent-{node}.sequence" if data_dir is not None else None
    return Sequence(path, int(clock.now().timestamp()))
