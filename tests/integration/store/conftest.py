"""An empty Redis for each test, and stores that are closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from shared.clock import SystemClock
from shared.store.client import Store, StoreOptions
from tests.support.servers import RedisServer

Connect = Callable[..., Awaitable[Store]]


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    redis_server.flush()
    return redis_server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A Redis that the test may kill, freeze and cut."""
    server = RedisServer(fsync="always")
    server.start()
    yield server
    server.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def make(
            server: RedisServer, service: str = "scheduler", instance: str = "one", url: str = "", **options: Any
        ) -> Store:
            store = await Store.connect(
                url=url or server.url,
                service=service,
                instance=instance,
                clock=SystemClock(),
                options=StoreOptions(**options),
            )
            stack.push_async_callback(store.close)
            return store

        yield make


@pytest.fixture
async def store(server: RedisServer, connect: Connect) -> Store:
    return await connect(server)
