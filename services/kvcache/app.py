"""The controller put together: the only file that constructs its clients.

Read next: handlers.py, loops.py.
"""

from __future__ import annotations

from typing import NoReturn

from services.kvcache.domain.index import PrefixIndex
from services.kvcache.handlers import Handlers
from services.kvcache.loops import RESYNC_LEASE, keep_in_step, tend
from services.kvcache.settings import KvcacheSettings
from services.kvcache.store import CacheStore
from shared.bus.router import Router
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.store.leases import run_leased

SERVICE = "kvcache"


async def build(runtime: Runtime[KvcacheSettings]) -> Plan:
    """Connect and wire."""
    clock = runtime.clock
    store = await runtime.connect_store()
    bus = await runtime.connect_bus()
    index = PrefixIndex(runtime.settings.index_max_blocks)
    objects = CacheStore(store)
    handlers = Handlers(store, objects, index, clock)
    router = Router(SERVICE)
    router.include(handlers)
    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops={
            "resync": lambda: run_leased(
                store, RESYNC_LEASE, lambda lease: keep_in_step(lease, handlers.resync), clock
            ),
            "tend": lambda: tend(index, objects),
        },
    )


def main() -> NoReturn:
    """Run the controller."""
    run_main(SERVICE, KvcacheSettings, build)
