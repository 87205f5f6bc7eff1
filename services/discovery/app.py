"""The controller put together: the only file that constructs its clients.

Read next: handlers.py, loops.py.
"""

from __future__ import annotations

from typing import NoReturn

from services.discovery.domain.liveness import Liveness
from services.discovery.domain.rules import RULES
from services.discovery.handlers import Handlers
from services.discovery.loops import SWEEPER_LEASE, Sweeper, keep_clean, keep_listening
from services.discovery.settings import DiscoverySettings
from services.discovery.store import NodeStore
from shared.bus.router import Router
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.store.cache import DocumentCache
from shared.store.leases import run_leased
from shared.store.objects import ObjectWriter

SERVICE = "discovery"


async def build(runtime: Runtime[DiscoverySettings]) -> Plan:
    """Connect and wire."""
    clock = runtime.clock
    store = await runtime.connect_store()
    bus = await runtime.connect_bus()
    nodes = NodeStore(store)
    liveness = Liveness(clock.monotonic(), runtime.settings.silence_seconds)
    cache = DocumentCache(store, ["Node"])
    handlers = Handlers(nodes, ObjectWriter(store, RULES, clock), cache, liveness, clock)
    sweeper = Sweeper(nodes=nodes, cache=cache, liveness=liveness, bus=bus, clock=clock)
    router = Router(SERVICE)
    router.include(handlers)

    async def wake_all() -> None:
        """Agents say at once what a store that lost writes has forgotten."""
        for seat in sweeper.seats():
            await bus.wake(seat.name, 0)

    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops={
            "cache": cache.run,
            "listen": lambda: keep_listening(liveness, bus, clock),
            "sweep": lambda: run_leased(store, SWEEPER_LEASE, sweeper.run, clock),
            "clean": lambda: keep_clean(nodes, handlers.remove_orphan),
        },
        before=(cache.synced,),
        on_epoch=(wake_all,),
        checks={"cache": lambda: cache.ready},
    )


def main() -> NoReturn:
    """Run the controller."""
    run_main(SERVICE, DiscoverySettings, build)
