"""A controller small enough to see through, run as a child: obeys SubmitWorkload slowly, commits a fact, relays.

Read next: tests/integration/bus/test_service.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import Field

from shared.bus.context import MessageContext
from shared.bus.router import Router, command
from shared.commands.workload import SubmitWorkload
from shared.events.workload import WorkloadQueued
from shared.service import Plan, Runtime, main
from shared.settings import BaseServiceSettings
from shared.store.client import Store
from shared.store.documents import Commit


class SmallSettings(BaseServiceSettings):
    work_seconds: float = Field(default=0.0, description="How long one command takes.")
    loop_fails: bool = Field(default=False, description="Whether the extra loop raises.")
    secret_word: str = Field(default="", description="Not for eyes.", json_schema_extra={"secret": True})


class Handlers:
    def __init__(self, store: Store, directory: Path, seconds: float) -> None:
        self._store = store
        self._directory = directory
        self._seconds = seconds

    @command(SubmitWorkload)
    async def submit_workload(self, order: SubmitWorkload, ctx: MessageContext) -> None:
        self._write("started", order.name)
        await asyncio.sleep(self._seconds)
        fact = WorkloadQueued(namespace=order.namespace, name=order.name, uid=order.uid)
        await self._store.commit(Commit(facts=(fact,), mark=ctx.mark()))
        self._write("done", order.name)

    def _write(self, what: str, name: str) -> None:
        with (self._directory / what).open("a") as sink:
            sink.write(f"{name}\n")


async def build(runtime: Runtime[SmallSettings]) -> Plan:
    bus, store = await runtime.connect_bus(), await runtime.connect_store()
    settings = runtime.settings
    router = Router("scheduler")
    router.include(Handlers(store, settings.data_dir, settings.work_seconds))
    runs = 0

    async def extra() -> None:
        nonlocal runs
        runs += 1
        runtime.log.info("extra_loop_ran", runs=runs)
        if settings.loop_fails:
            raise ZeroDivisionError

    async def stopped() -> None:
        runtime.log.info("on_stop_called")

    return Plan(
        name="scheduler",
        bus=bus,
        store=store,
        router=router,
        loops={"extra": extra},
        on_stop=[stopped],
        checks={"extra": lambda: runs > 0},
    )


if __name__ == "__main__":
    main("scheduler", SmallSettings, build)
