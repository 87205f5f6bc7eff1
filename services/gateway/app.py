"""Builds the gateway process: caches, the resource API on its sockets, the owner of its kinds, the bus.

The only file that constructs and connects. Must not decide. Read next: routes/asgi.py, handlers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import generate_latest

from services.gateway.domain.rules import PROTECTED, RULES
from services.gateway.drivers.listener import Door, Listener
from services.gateway.drivers.tls import Tls, server_names
from services.gateway.handlers import Handlers
from services.gateway.loops import Feeder
from services.gateway.loops import registry as worker_registry
from services.gateway.routes.api import Api
from services.gateway.routes.asgi import ResourceApi
from services.gateway.settings import GatewaySettings, feed_path
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
    feeder = Feeder(settings, cache, store, Door(feed_path(settings.data_dir)))
    writer, objects = ObjectWriter(store, RULES, clock), Objects(store, watch, bus, clock, feeder.confirmed)
    namespaces = Namespaces(store, cache, writer, clock)
    router = Router(SERVICE)
    router.include(Handlers(store, writer, objects, principals, namespaces))
    checks = _checks(cache)
    api = Api(
        watch=watch,
        objects=objects,
        bus=bus,
        principals=principals,
        clock=clock,
        ready=lambda: {**{n: ok() for n, ok in checks.items()}, "bus": bus.connected, "store": store.reachable},
        metrics=_metrics,
        watch_seconds=settings.watch_seconds,
    )
    doors = await Doors.open(runtime, api)
    await bus.on_every_fact(watch.events.take)
    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops={
            "cache": cache.run,
            "namespaces": partial(run_leased, store, "namespaces", namespaces.keep, clock),
            **doors.loops,
            **feeder.loops,
        },
        before=[doors.open_tls, cache.synced],
        on_stop=[doors.listener.close],
        checks=checks,
    )


class Doors:
    """Where the resource API is served: the unix socket of the workers, and TLS."""

    def __init__(self, runtime: Runtime[GatewaySettings], listener: Listener, door: Door) -> None:
        settings = runtime.settings
        self.listener = listener
        self._runtime = runtime
        self._tls = Tls(settings.data_dir / "tls", server_names(settings.host, settings.tls_names), runtime.clock)
        self.loops = {"certificate": self._tls.keep_fresh, "door": door.keep}

    @classmethod
    async def open(cls, runtime: Runtime[GatewaySettings], api: Api) -> Doors:
        """The unix socket, open; TLS opens later."""
        listener = Listener(ResourceApi(api))
        return cls(runtime, listener, await listener.open_unix(runtime.settings.socket))

    async def open_tls(self) -> None:
        """Listen with TLS; the certificate is made first when there is none."""
        host, port = self._runtime.settings.host, self._runtime.settings.tls_port
        port = await self.listener.open_tls(host, port, await self._tls.context())
        self._runtime.log.info("tls_listening", host=host, port=port)


def _checks(cache: DocumentCache) -> dict[str, Callable[[], bool]]:
    return {
        "cache": lambda: cache.ready,
        "namespaces": lambda: cache.ready and all(cache.get("Namespace", "", name) for name in PROTECTED),
    }


async def _metrics() -> bytes:
    """This process's own, and what the workers of this host told it."""
    return exposition() + generate_latest(worker_registry)
