"""How a process lives: settings, connections with patience, loops, readiness, and an orderly end on SIGTERM.

Owns start and drain order, and the second of the two places that catch unknown exceptions: a loop that fails is logged
and started again. Must not know any service.
Read next: services/scheduler/app.py for a `build`.
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from shared import faults, subjects
from shared.bus.client import BusClient
from shared.bus.lean import hidden
from shared.clock import Clock, SystemClock
from shared.errors import GpubusError, Transient
from shared.settings import BaseServiceSettings, describe
from shared.telemetry import logging as telemetry_logging
from shared.telemetry import metrics, tracing
from shared.telemetry.health import HealthServer
from shared.telemetry.logging import Logger, get_logger

if TYPE_CHECKING:
    from shared.bus.broker import RouterRunner
    from shared.bus.relay import Relay
    from shared.bus.router import Router
    from shared.store.client import Store

T = TypeVar("T")
S = TypeVar("S", bound=BaseServiceSettings)
Loop = Callable[[], Awaitable[None]]
log = get_logger(__name__)

RESTART_SECONDS = (0.2, 1.0, 5.0, 15.0)
"""Pauses before a failed loop starts again; the last one repeats."""
HEALTHY_SECONDS = 60.0
"""A loop that ran this long starts over with the shortest pause."""
JITTER = 0.3
_RETRY_SECONDS = 0.5
_FLUSH_SECONDS = 2.0
_POLL_SECONDS = 0.5
"""How often the epoch is compared and the outbox watched while draining."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What one process consists of, as its `build` returns it."""

    name: str
    bus: BusClient | None = None
    store: Store | None = None
    router: Router | None = None
    loops: dict[str, Loop] = field(default_factory=dict)
    """Started first, started again with backoff when they raise, not when they return."""
    before: Sequence[Loop] = ()
    """Awaited after the loops have started and before messages are taken (e.g. a cache's `synced`)."""
    on_stop: Sequence[Loop] = ()
    """Awaited while draining, after handlers and loops have ended and before connections close."""
    on_epoch: Sequence[Loop] = ()
    """Awaited when the store began a new epoch: what was computed from the old one is void."""
    checks: dict[str, Callable[[], bool]] = field(default_factory=dict)
    """More conditions of readiness, by name."""


class Runtime(Generic[S]):
    """What `build` builds with: settings, clock, logger, and connections made with patience."""

    def __init__(self, role: str, settings: S, clock: Clock) -> None:
        self.role = role
        self.settings = settings
        self.clock = clock
        self.log: Logger = get_logger(role)

    async def connect_store(self, service: str = "") -> Store:
        """The store, waiting for Redis up to `connect_seconds`.

        Raises:
            GpubusError: it did not answer in time, or is unfit; the message says what to change.
        """
        with hidden("opentelemetry.sdk"):  # redis-py would load it for metrics of its own: 2 MB
            from shared.store.client import Store

        url = self.settings.redis_url_with_password
        return await self._patiently(
            lambda: Store.connect(
                url=url, service=service or self.role, instance=self.settings.instance, clock=self.clock
            )
        )

    async def connect_bus(self, user: str = "") -> BusClient:
        """The bus as `user` (default: the service, or the node of an agent), waiting up to `connect_seconds`.

        Raises:
            GpubusError: it did not answer in time, or is too old.
        """
        settings = self.settings
        return await BusClient.connect(
            url=settings.nats_url,
            user=user or (self.role if self.role in subjects.SERVICES else subjects.node_user(settings.node)),
            seed_file=settings.nats_seed_file,
            ca_file=settings.nats_ca_file,
            name=f"{self.role}/{settings.instance}",
            service=self.role,
            timeout=settings.connect_seconds,
            clock=self.clock,
        )

    async def _patiently(self, connect: Callable[[], Awaitable[Store]]) -> Store:
        until = self.clock.monotonic() + self.settings.connect_seconds
        while True:
            try:
                return await connect()
            except Transient as error:
                if self.clock.monotonic() > until:
                    raise
                log.info("store_not_there_yet", code=error.code.value, error_text=str(error))
                await asyncio.sleep(_RETRY_SECONDS)


Build = Callable[[Runtime[S]], Awaitable[Plan]]


def main(role: str, settings_type: type[S], build: Build[S]) -> NoReturn:
    """Run a process until SIGTERM; the exit status is 0 after a drain, 1 when it could not start or lost the bus."""
    try:
        settings = settings_type.load()
    except GpubusError as error:
        sys.stderr.write(f"{role}: {error}\n")
        sys.exit(1)
    if "--print-settings" in sys.argv[1:]:
        for name, value, description in describe(settings):
            sys.stdout.write(f"{name}={value}  # {description}\n")
        sys.exit(0)
    import uvloop

    telemetry_logging.configure(role, settings.instance, settings.log_level)
    sys.exit(uvloop.run(run(role, settings, build)))


async def run(role: str, settings: S, build: Build[S]) -> int:
    """`main` inside a loop; the exit status."""
    try:
        tracing.configure(settings.traces, role, settings.instance)
        faults.arm(settings.faults, settings.instance)
        process = Process(Runtime(role, settings, SystemClock()))
        return await process.run(build)
    except GpubusError as error:
        log.error("start_failed", code=error.code.value, error_text=str(error))  # noqa: TRY400 - a sentence for a person
        return 1
    except Exception:  # nothing else would say why in the log's form
        log.exception("start_failed")
        return 1


class Process(Generic[S]):
    """One process from start to drain."""

    def __init__(self, runtime: Runtime[S]) -> None:
        self._runtime = runtime
        self._plan: Plan | None = None
        self._relay: Relay | None = None
        self._runner: RouterRunner | None = None
        self._serving = False
        self._stopping = asyncio.Event()
        self._health = HealthServer(self.ready)

    def ready(self) -> dict[str, bool]:
        """Each condition of readiness."""
        plan = self._plan
        checks = {"serving": self._serving and not self._stopping.is_set()}
        if plan is not None:
            checks |= {name: check() for name, check in plan.checks.items()}
            if plan.bus is not None:
                checks["bus"] = plan.bus.connected
            if plan.store is not None:
                checks["store"] = plan.store.reachable
        return checks

    async def run(self, build: Build[S]) -> int:
        """Start, serve until a signal, drain; the exit status."""
        settings = self._runtime.settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        port = await self._health.start(settings.health_host, settings.health_port)
        log.info("starting", health_port=port)
        plan = await self._until_stopped(build(self._runtime))
        if plan is None:
            return 0
        self._plan = plan
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(self._loop(name, body)) for name, body in self._loops(plan).items()]
            await self._until_stopped(self._serve(plan))
            await self._stopped(plan)
            await self._drain(plan, loops)
        return 1 if plan.bus is not None and plan.bus.lost.is_set() else 0

    def _loops(self, plan: Plan) -> dict[str, Loop]:
        loops = dict(plan.loops)
        if plan.store is not None and plan.router is not None and plan.bus is not None:
            from shared.bus.relay import Relay

            self._relay = Relay(plan.store, plan.bus, self._runtime.clock)
            loops |= {"relay": self._relay.run, "outbox_metrics": self._relay.measure}
        if plan.store is not None and plan.on_epoch:
            loops["epoch"] = self._watch_epoch
        return loops

    async def _serve(self, plan: Plan) -> None:
        for waiting in plan.before:
            await waiting()
        if plan.router is not None and plan.bus is not None:
            from shared.bus.broker import RouterRunner

            self._runner = RouterRunner(
                plan.bus, plan.router, self._runtime.clock, self._runtime.settings.drain_seconds
            )
            await self._runner.start()
        self._serving = True
        trim_memory()
        log.info("ready")

    async def _until_stopped(self, work: Awaitable[T]) -> T | None:
        """The result, or None when a signal came first."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    async def _stopped(self, plan: Plan) -> None:
        waits = [asyncio.ensure_future(self._stopping.wait())]
        if plan.bus is not None:
            waits.append(asyncio.ensure_future(plan.bus.lost.wait()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _drain(self, plan: Plan, loops: Sequence[asyncio.Task[None]]) -> None:
        self._stopping.set()
        log.info("draining")
        try:
            async with asyncio.timeout(self._runtime.settings.drain_seconds):
                if self._runner is not None:
                    await self._runner.stop()
                await self._flushed(plan)
                await _ended(loops)
                for call in plan.on_stop:
                    await call()
        except TimeoutError:
            log.warning("drain_cut_short", seconds=self._runtime.settings.drain_seconds)
        except Exception:  # the connections are closed whatever an on_stop does
            log.exception("drain_failed")
        await _ended(loops)
        await self._close(plan)
        log.info("stopped")

    async def _flushed(self, plan: Plan) -> None:
        """What the last handlers committed leaves with us when it can; else the next copy relays it."""
        if self._relay is None or plan.bus is None or not plan.bus.connected:
            return
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                while await self._relay.depth():  # noqa: ASYNC110 - another copy may be the one that publishes
                    await asyncio.sleep(0.05)
        except (TimeoutError, Transient):
            log.info("outbox_left_to_others")

    async def _close(self, plan: Plan) -> None:
        await self._health.stop()
        if plan.bus is not None:
            await plan.bus.close()
        if plan.store is not None:
            await plan.store.close()
        tracing.flush()

    async def _loop(self, name: str, body: Loop) -> None:
        clock, failures = self._runtime.clock, 0
        while True:
            started = clock.monotonic()
            try:
                await body()
            except GpubusError as error:
                log.warning("loop_failed", loop=name, code=error.code.value, error_text=str(error))
            except Exception:  # one broken loop must not end the others; it is logged with its stack
                log.exception("loop_failed", loop=name)
            else:
                return
            failures = 1 if clock.monotonic() - started > HEALTHY_SECONDS else failures + 1
            metrics.loop_restarts.labels(self._runtime.role, name).inc()
            await asyncio.sleep(_pause(failures))

    async def _watch_epoch(self) -> None:
        plan = self._plan
        assert plan is not None, "loops start after build"
        assert plan.store is not None, "only a process with a store watches its epoch"
        known = plan.store.epoch
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if plan.store.epoch != known:
                known = plan.store.epoch
                log.warning("epoch_changed", epoch=known)
                for call in plan.on_epoch:
                    await call()


def _pause(failures: int) -> float:
    step = RESTART_SECONDS[min(failures, len(RESTART_SECONDS)) - 1]
    return step * (1 + JITTER * random.random())  # noqa: S311 - spreads restarts, guards nothing


async def _ended(loops: Sequence[asyncio.Task[None]]) -> None:
    for task in loops:
        task.cancel()
    if loops:
        await asyncio.wait(loops)


def trim_memory() -> None:
    """After start nothing that was imported is garbage: collect once, spare later collections the walk, give back the rest.

    Measured: a start that had to compile its modules keeps 12 MB less.
    """
    import ctypes

    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)
