"""One node's modelstore agent: asks what the node should hold, fetches what is missing, reports what is there.

Level-triggered: it asks on connect, on a wake and every 10 s, ignores answers older than it has, and reports the full
set when it changed and after a reconnect. A copy that is no longer wanted stays as a cache. Any number of agents live in
one process. Must not talk to the store. Read next: ../drivers/disk.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from dataclasses import dataclass

from services.modelstore.domain.reasons import DeliveryReason, deliver_pause
from services.modelstore.ports import DeliveryError, HeldCopy, Vault
from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import GpubusError, Transient
from shared.faults import point
from shared.queries import DesiredModels, DesiredModelsAnswer, ModelProgress, WantedModel
from shared.reports import ModelsReported, ModelState
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

ASK_SECONDS = 10.0
RETRY_SECONDS = 0.5
ANSWER_SECONDS = 5.0
PROGRESS_SECONDS = 0.25
_TOGETHER_SECONDS = 0.005
_START_GAP = 1000
"""A new start counts on from what is stored and leaves this room for reports of the previous one that are on their way."""
_REPORTED = 256
"""Copies in one report: what a NodeModelStore holds."""


@dataclass(slots=True)
class _Flight:
    """One copy on its way, or one that failed and waits."""

    model: WantedModel
    there: int = 0
    task: asyncio.Task[None] | None = None
    failures: int = 0
    reason: str = ""
    message: str = ""
    due: float = 0.0
    retry_unix: int = 0

    def may_start(self, now: float) -> bool:
        """Nothing runs, the pause is over, and the controller told the files (it tells them a few models at a time)."""
        return self.task is None and self.due <= now and bool(self.model.files)

    def follow(self, model: WantedModel) -> None:
        """Take what the controller says now; another way to the bytes is tried at once."""
        if _way(model) != _way(self.model):
            self.due, self.failures = 0.0, 0
        # What is known already is not told again.
        self.model = model if model.files else model.model_copy(update={"files": self.model.files})


class ModelAgent:
    """One node on one bus client."""

    def __init__(
        self, *, node: str, bus: BusClient, vault: Vault, clock: Clock, machine_id: str = "", spread: float = 0.2
    ) -> None:
        """Nothing happens before `run`; `spread` is the most seconds that a common start is spread over."""
        self.node = node
        self.incarnation = secrets.token_hex(8)
        self._bus = bus
        self._vault = vault
        self._clock = clock
        self._machine_id = machine_id
        self._spread = spread
        self._sequence = 0
        self._listening = False
        self._epoch, self._revision, self._least = "", 0, 0
        self._held: dict[str, HeldCopy] = {}
        self._flights: dict[str, _Flight] = {}
        self._reported: list[ModelState] | None = None
        self._ask_now, self._report_now, self._fly_now = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._refused = ""

    @property
    def answered(self) -> bool:
        """Whether the controller has told this agent what its node should hold."""
        return self._revision > 0 and not self._refused

    def listen(self) -> None:
        """Be woken by the controller and by reconnects."""
        if not self._listening:
            self._listening = True
            self._bus.on_wake(self.node, self._woken)
            self._bus.on_reconnect(self._reconnected)

    async def run(self) -> None:
        """For ever; ends by cancellation, which keeps partial files."""
        self._held = {copy.digest: copy for copy in await self._vault.held()}
        self.listen()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_asking())
            tasks.create_task(self._keep_reporting())
            tasks.create_task(self._keep_fetching(tasks))

    # Asking

    async def _keep_asking(self) -> None:
        await asyncio.sleep(random.uniform(0, self._spread))  # noqa: S311 - spreads a common start
        while True:
            known = await self.ask() and all(flight.model.files for flight in self._flights.values())
            pause = ASK_SECONDS * random.uniform(0.9, 1.1) if known else RETRY_SECONDS  # noqa: S311 - jitter
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ask_now.wait()
            self._ask_now.clear()

    async def ask(self) -> bool:
        """Ask once and act on the answer; whether there was one."""
        question = DesiredModels(
            node=self.node, incarnation=self.incarnation, machine_id=self._machine_id, min_revision=self._least,
            known=[*self._held, *(digest for digest, flight in self._flights.items() if flight.model.files)],
        )  # fmt: skip
        try:
            answer: DesiredModelsAnswer = await self._bus.ask(question, timeout=ANSWER_SECONDS)
        except Transient:
            self._least = 0
            return False
        except GpubusError as error:
            log.warning("desired_not_answered", node=self.node, code=error.code.value, reason=str(error))
            return False
        return self.take(answer)

    def take(self, answer: DesiredModelsAnswer) -> bool:
        """Act on an answer; False for one that says nothing about this agent, or is older than what is held."""
        if answer.refused != self._refused:
            log.warning("desired_refused", node=self.node, reason=answer.refused)
        self._refused = answer.refused
        if answer.refused or answer.revision < max(self._revision, self._least):
            return False
        if answer.epoch != self._epoch or answer.observed_sequence < self._sequence:
            self._epoch, self._reported = answer.epoch, None  # the store may have lost what was reported
        self._sequence = max(self._sequence or answer.observed_sequence + _START_GAP, answer.observed_sequence)
        self._revision = answer.revision
        self._want({model.digest: model for model in answer.models if model.digest not in self._held})
        self._fly_now.set()
        self._report_now.set()
        return True

    def _want(self, wanted: dict[str, WantedModel]) -> None:
        for digest in self._flights.keys() - wanted.keys():
            flight = self._flights.pop(digest)
            if flight.task is not None:
                flight.task.cancel()
        for digest, model in wanted.items():
            self._flights.setdefault(digest, _Flight(model)).follow(model)

    def _woken(self, revision: int) -> None:
        self._least = max(self._least, revision)
        self._ask_now.set()

    def _reconnected(self) -> None:
        self._reported = None
        self._ask_now.set()

    # Fetching

    async def _keep_fetching(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            now = self._clock.monotonic()
            for flight in self._flights.values():
                if flight.may_start(now):
                    flight.task = tasks.create_task(self._fly(flight))
            waits = [f.due - now for f in self._flights.values() if f.task is None and f.due > now]
            running = any(f.task is not None for f in self._flights.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_SECONDS if running else max(0.05, min([*waits, ASK_SECONDS]))):
                    await self._fly_now.wait()
            self._fly_now.clear()
            await self._tell()

    async def _fly(self, flight: _Flight) -> None:
        model = flight.model
        flight.reason, flight.message = "", ""
        self._report_now.set()

        def progress(there: int) -> None:
            flight.there = there

        try:
            copy = await self._vault.fetch(model, progress)
        except DeliveryError as error:
            self._failed(flight, model, error)
        else:
            self._held[model.digest] = copy
            if self._flights.get(model.digest) is flight:
                del self._flights[model.digest]
            log.info("delivery_ready", node=self.node, digest=model.digest, bytes=copy.size_bytes)
        finally:
            flight.task = None
            self._room_again(flight)
        self._fly_now.set()
        self._report_now.set()

    def _failed(self, flight: _Flight, model: WantedModel, error: DeliveryError) -> None:
        flight.failures += 1
        pause = deliver_pause(error.reason, flight.failures) if _way(model) == _way(flight.model) else 0.0
        flight.reason, flight.message = error.reason, error.message
        flight.due = self._clock.monotonic() + pause
        flight.retry_unix = int(self._clock.now().timestamp() + pause)
        about = {"node": self.node, "digest": model.digest, "reason": error.reason, "retry_seconds": pause}
        log.warning("delivery_failed", **about, error_text=error.message)

    def _room_again(self, ended: _Flight) -> None:
        """What found no room beside a delivery that has ended tries again."""
        for flight in self._flights.values():
            if flight is not ended and flight.reason == DeliveryReason.INSUFFICIENT_CAPACITY:
                flight.due = 0.0
                self._fly_now.set()

    async def _tell(self) -> None:
        samples = [
            ModelProgress(
                source=self.node, digest=digest, downloaded_bytes=flight.there, size_bytes=flight.model.size_bytes
            )
            for digest, flight in self._flights.items()
            if flight.task is not None
        ]
        if samples and self._bus.connected:
            with contextlib.suppress(GpubusError):
                await self._bus.tell(*samples)

    # Reporting

    async def _keep_reporting(self) -> None:
        while True:
            await self._report_now.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._report_now.clear()
            if self.answered and not await self.report():
                await asyncio.sleep(RETRY_SECONDS)
                self._report_now.set()

    async def report(self) -> bool:
        """Report the full set if it changed; False when it could not be told."""
        models = self._states()
        if models == self._reported:
            return True
        total, stored, used = await asyncio.to_thread(self._vault.space)
        self._sequence += 1
        point("modelstore-agent.before-report")
        told = ModelsReported(
            node=self.node,
            incarnation=self.incarnation,
            sequence=self._sequence,
            models=models,
            total_bytes=total,
            stored_bytes=stored,
            used_percent=used,
        )
        try:
            await self._bus.report(told)
        except GpubusError as error:
            log.info("report_not_told", node=self.node, reason=str(error))
            return False
        self._reported = models
        return True

    def _states(self) -> list[ModelState]:
        held = [
            ModelState(
                digest=copy.digest,
                state="Ready",
                size_bytes=copy.size_bytes,
                downloaded_bytes=copy.size_bytes,
                source="Hub",
                path=copy.path,
            )
            for copy in self._held.values()
        ]
        flying = [
            ModelState(
                digest=digest,
                state="Failed" if flight.reason else "Downloading",
                size_bytes=flight.model.size_bytes,
                source="Hub",
                reason=flight.reason,
                message=flight.message,
                retry_unix=flight.retry_unix if flight.reason else None,
            )
            for digest, flight in self._flights.items()
        ]
        return sorted([*flying, *held][:_REPORTED], key=lambda state: state.digest)


def _way(model: WantedModel) -> tuple[str, str, str, str]:
    """What decides whether the bytes can be had."""
    return model.endpoint, model.repository, model.revision, model.token
