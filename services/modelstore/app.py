"""The controller put together: the only file that constructs its clients and drivers.

Read next: handlers.py, loops.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from services.modelstore.domain.rules import RULES
from services.modelstore.drivers.hub_folder import HubFolder
from services.modelstore.drivers.hub_server import keep_hub
from services.modelstore.drivers.huggingface import HuggingFaceSource
from services.modelstore.drivers.simulated import SimulatedSource
from services.modelstore.handlers import Handlers
from services.modelstore.loops import KEEPER_LEASE, RESOLVER_LEASE, Keeper, Resolver, SourceFor
from services.modelstore.ports import ModelSource, ReadToken
from services.modelstore.settings import ModelstoreSettings
from services.modelstore.store import ArtifactStore
from shared.bus.client import BusClient
from shared.bus.router import Router
from shared.queries import ReadSecret, SecretAnswer
from shared.resources.access import SETTINGS, SETTINGS_NAMESPACE, Setting
from shared.service import Plan, Runtime
from shared.service import main as run_main
from shared.store.cache import DocumentCache
from shared.store.leases import run_leased
from shared.store.objects import ObjectWriter

SERVICE = "modelstore"
KINDS = ("ModelArtifact", "NodeModelStore", "Workload", "ModelDeployment", "Node", "Setting")
ENDPOINT = "model-artifact-huggingface-endpoint"


def hub_root(data_dir: Path) -> Path:
    """Where the local hub's repositories are."""
    return data_dir / "models" / "hub"


async def build(runtime: Runtime[ModelstoreSettings]) -> Plan:
    """Connect and wire."""
    settings, clock = runtime.settings, runtime.clock
    store = await runtime.connect_store()
    bus = await runtime.connect_bus()
    artifacts = ArtifactStore(store)
    cache = DocumentCache(store, KINDS)
    read_token, source_for = _token_reader(bus), _sources(settings, cache)
    resolver = Resolver(store=artifacts, cache=cache, source_for=source_for, read_token=read_token, clock=clock)
    keeper = Keeper(artifacts, cache)
    router = Router(SERVICE)
    router.include(
        Handlers(
            store=artifacts,
            cache=cache,
            writer=ObjectWriter(store, RULES, clock),
            bus=bus,
            read_token=read_token,
            hub_endpoint=settings.hub_endpoint,
            progress=keeper.progress,
            clock=clock,
        )
    )
    loops: dict[str, Callable[[], Awaitable[None]]] = {
        "cache": cache.run,
        "resolve": lambda: run_leased(store, RESOLVER_LEASE, resolver.run, clock),
        "keep": lambda: run_leased(store, KEEPER_LEASE, keeper.run, clock),
    }
    if settings.hub_port:
        loops["hub"] = lambda: keep_hub(hub_root(settings.data_dir), settings.hub_host, settings.hub_port)
    return Plan(
        name=SERVICE,
        bus=bus,
        store=store,
        router=router,
        loops=loops,
        before=(cache.synced,),
        checks={"cache": lambda: cache.ready},
    )


def _sources(settings: ModelstoreSettings, cache: DocumentCache) -> SourceFor:
    folder = HubFolder(hub_root(settings.data_dir))
    timeout = settings.hub_timeout_seconds
    local = HuggingFaceSource(settings.hub_endpoint, timeout=timeout, told="")
    remote: dict[str, HuggingFaceSource] = {}  # an administrator changes the endpoint seldom: they stay few

    def source_for(repository: str) -> ModelSource:
        if settings.hub_endpoint and folder.holds(repository):
            return local
        if settings.simulated_hub:
            return SimulatedSource(settings.simulated_model_size)
        chosen = cache.read("Setting", SETTINGS_NAMESPACE, ENDPOINT, Setting)
        endpoint = chosen.spec.value if chosen is not None and chosen.spec.value else SETTINGS[ENDPOINT]
        if endpoint not in remote:
            remote[endpoint] = HuggingFaceSource(endpoint, timeout=timeout)
        return remote[endpoint]

    return source_for


def _token_reader(bus: BusClient) -> ReadToken:
    async def read_token(namespace: str, name: str) -> str:
        answer: SecretAnswer = await bus.ask(ReadSecret(namespace=namespace, name=name, keys=["token"]))
        return answer.data.get("token", "")

    return read_token


def main() -> NoReturn:
    """Run the controller."""
    run_main(SERVICE, ModelstoreSettings, build)
