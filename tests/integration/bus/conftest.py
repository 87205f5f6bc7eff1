"""A NATS server with our streams, empty for each test; connections, stores, routers and children closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from shared.bus.broker import RouterRunner
from shared.bus.client import BusClient
from shared.bus.router import Router
from shared.bus.streams import migrate
from shared.clock import SystemClock
from shared.store.client import Store
from tests.support.bus import Child, forget_everything
from tests.support.servers import NatsServer, RedisServer

Connect = Callable[..., Awaitable[BusClient]]
Serve = Callable[..., Awaitable[RouterRunner]]
Spawn = Callable[..., Child]
CLOCK = SystemClock()


@pytest.fixture
async def server(nats_server: NatsServer) -> NatsServer:
    await forget_everything(nats_server)
    await migrate(nats_server.url)
    return nats_server


@pytest.fixture
async def own_server() -> AsyncIterator[NatsServer]:
    """One that the test may kill, freeze and restore."""
    server = NatsServer()
    server.start()
    await migrate(server.url)
    yield server
    server.close()


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    redis_server.flush()
    return redis_server


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def connect(closing: AsyncExitStack) -> Connect:
    async def make(server: NatsServer, user: str = "scheduler", **more: Any) -> BusClient:
        bus = await BusClient.connect(url=server.url, user=user, **{"timeout": 5.0, **more})
        closing.push_async_callback(bus.close, 1.0)
        return bus

    return make


@pytest.fixture
def serve(connect: Connect, closing: AsyncExitStack) -> Serve:
    async def make(
        server: NatsServer, handlers: object, service: str = "deployer", bus: BusClient | None = None
    ) -> RouterRunner:
        router = Router(service)
        router.include(handlers)
        runner = RouterRunner(bus or await connect(server, service), router, CLOCK, drain_seconds=1.0)
        await runner.start()
        closing.push_async_callback(runner.stop)
        return runner

    return make


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[Store]:
    store = await Store.connect(url=redis.url, service="scheduler", instance="one", clock=CLOCK)
    yield store
    await store.close()


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    children: list[Child] = []

    def make(*arguments: str, **variables: str) -> Child:
        child = Child(tmp_path / f"child-{len(children)}.log", *arguments, **variables)
        children.append(child)
        return child

    yield make
    for child in children:
        child.close()
