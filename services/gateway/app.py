"""Builds the gateway process: caches, the resource API on its sockets, the owner of its kinds, the bus.

The only file that constructs and connects. Must not decide. Read next: routes/asgi.py, handlers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import generate_latest

from services.gateway.domain.rules import PROTECTED, RULES
from services.gateway.drivers.listener import Listener
from services.gateway.drivers.tls import Tls, server_names
from services.gateway.handlers import Handlers
from services.gateway.loops import registry as worker_registry
from services.gateway.loops import start_feed
from services.gateway.routes.api import Api
from services.gateway.routes.asgi import ResourceApi
from services.gateway.settings import GatewaySettings
from services.gateway.store.namespaces import Namespaces
from services.gateway.store.objects import Objects
from services.gateway.store.principals import Principals, server_key
from services.gateway.store.watch import STORED_KINDS, WatchCache
from shared.bus.router import Router
from shared.service import Plan, Runtime
from shared.store.cache import DocumentCache
from shared.store.leases import run_leased
from shared.store.objects import ObjectWriter
from shared.telemetry.metrics import exposition

SERVICE = "gateway"


async def build(runtime: Runtime[GatewaySettings]) -> Plan:
    """The process's parts, connected; its sockets open once the cache is loaded."""
    settings, clock = runtime.settings, runtime.clock
    bus, store = await runtime.connect_bus(), await runtime.connect_store()
    cache = DocumentCache(store, STORED_KINDS)
    watch = WatchCache(store, cache, clock)
    principals = Principals(cache, server_key(settings.key_secret), settings.admin_token, clock)
    writer = ObjectWriter(store, RULES, clock)
    objects = Objects(store, watch, bus, clock)
    namespaces = Namespaces(store, cache, writer, clock)
    router = Router(SERVICE)
    router.include(Handlers(store, writer, objects, principals, namespaces))
    checks: dict[str, Callable[[], bool]] = {
        "cache": lambda: cache.ready,
        "namespaces": lambda: cache.ready and all(cache.get("Namespace", "", name) for name in PROTECTED),
    }

    def ready() -> dict[str, bool]:
        return {**{name: check() for name, check in checks.items()}, "bus": bus.connected, "store": store.reachable}

    async def metrics() -> bytes:
        return exposition() + generate_latest(worker_registry)

    api = Api(
        watch=watch,
        objects=objects,
        bus=bus,
        principals=principals,
        clock=clock,
        ready=ready,
        metrics=metrics,
        watch_seconds=settings.watch_seconds,
    )
    listener = Listener(ResourceApi(api))
    tls = Tls(settings.data_dir / "tls", server_names(settings.host, settings.tls_names), clock)
    door = await listener.open_unix(settings.socket)

    async def open_tls() -> None:
        port = await listener.open_tls(settings.host, settings.tls_port, await tls.context())
        runtime.log.info("tls_listening", host=settings.host, port=port)

    await bus.on_every_fact(watch.events.take)
    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops={
            "cache": cache.run,
            "namespaces": partial(run_leased, store, "namespaces", namespaces.keep, clock),
            "certificate": tls.keep_fresh,
            "door": door.keep,
            **start_feed(runtime, cache, store),
        },
        before=[open_tls, cache.synced],
        on_stop=[listener.close],
        checks=checks,
    )
