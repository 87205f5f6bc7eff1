"""A controller that notes on the system-wide monotonic clock when each fact reached its durable handler.

Run by bench/facts.py as a child process. Must not do anything else: its time is what is measured.
"""

from __future__ import annotations

import time

from shared.bus.context import MessageContext
from shared.bus.router import Router, on
from shared.events.workload import WorkloadAdmitted
from shared.service import Plan, Runtime, main
from shared.settings import BaseServiceSettings

NOTES = "arrivals"


class Listener:
    """Writes `name nanoseconds` lines into the data dir."""

    def __init__(self, settings: BaseServiceSettings) -> None:
        self._sink = (settings.data_dir / NOTES).open("a", buffering=1)

    @on(WorkloadAdmitted)
    async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Note the arrival."""
        self._sink.write(f"{fact.name} {time.monotonic_ns()}\n")


async def build(runtime: Runtime[BaseServiceSettings]) -> Plan:
    """Connect and listen."""
    bus, store = await runtime.connect_bus(), await runtime.connect_store()
    router = Router("deployer")
    router.include(Listener(runtime.settings))
    return Plan(name="deployer", bus=bus, store=store, router=router)


if __name__ == "__main__":
    main("deployer", BaseServiceSettings, build)
