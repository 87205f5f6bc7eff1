"""The controller put together: the only file that constructs its clients.

Read next: handlers.py, loops.py.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from services.deployer.handlers import Handlers
from services.deployer.loops import RESYNC_LEASE, keep_in_step, renew, watch_losses
from services.deployer.settings import DeployerSettings
from services.deployer.store.deployments import Deployments
from services.deployer.store.manifests import Manifests
from services.deployer.store.nodes import Nodes
from services.deployer.store.pods import Pods
from services.deployer.store.view import KINDS, View
from shared.bus.router import Router
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.store.cache import DocumentCache
from shared.store.leases import run_leased

SERVICE = "deployer"


async def build(runtime: Runtime[DeployerSettings]) -> Plan:
    """Connect and wire."""
    settings, clock = runtime.settings, runtime.clock
    store = await runtime.connect_store()
    bus = await runtime.connect_bus()
    cache = DocumentCache(store, KINDS)
    view = View(cache, clock, settings.replace_after_seconds)
    manifests, nodes = Manifests(store), Nodes(view, bus)
    deployments = Deployments(store, view, manifests, nodes, clock)
    pods = Pods(store, view, deployments, nodes, clock)
    handlers = Handlers(
        store=store, view=view, manifests=manifests, deployments=deployments, pods=pods, nodes=nodes, clock=clock
    )
    router = Router(SERVICE)
    router.include(handlers)
    now = asyncio.Event()
    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops={
            "cache": cache.run,
            "losses": lambda: watch_losses(view, handlers.give_up),
            "resync": lambda: run_leased(
                store, RESYNC_LEASE, lambda _lease: keep_in_step(handlers.resync, settings.resync_seconds, now), clock
            ),
        },
        before=(cache.synced,),
        on_epoch=(lambda: renew(view, store, nodes.wake_all, now),),
        checks={"cache": lambda: cache.ready},
    )


def main() -> NoReturn:
    """Run the controller."""
    run_main(SERVICE, DeployerSettings, build)
