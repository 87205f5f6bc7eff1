"""A worker put together: the public port, shared with the other workers, and the loop that feeds it.

Neither bus nor store. Read next: asgi.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, NoReturn

from services.gateway.dataplane.access import Access
from services.gateway.dataplane.asgi import DataPlane
from services.gateway.dataplane.feed import Feed
from services.gateway.dataplane.inference import Inference
from services.gateway.dataplane.meter import Meter
from services.gateway.dataplane.passing import Passage
from services.gateway.dataplane.upstream import Pool
from services.gateway.domain.auth import token_hash
from services.gateway.settings import WorkerSettings, feed_path
from shared.errors import Unavailable
from shared.service import Plan, Runtime
from shared.service import main as run_main

ROLE = "gateway-worker"
_KEY_SECONDS = 30.0
_BACKLOG = 2048
_GRACE_SECONDS = 10.0


async def build(runtime: Runtime[WorkerSettings]) -> Plan:
    """Wire, and listen."""
    settings, clock = runtime.settings, runtime.clock
    server_key = await _server_key(settings)
    run = settings.data_dir / "run"
    admin_hash = token_hash(server_key, settings.admin_token) if settings.admin_token else ""
    meter = Meter(run / f"usage-{settings.instance}.spool", clock)
    feed = Feed(
        socket=feed_path(settings.data_dir),
        snapshot=run / "tables.snapshot",
        admin_hash=admin_hash,
        meter=meter,
        name=settings.instance,
        clock=clock,
    )
    feed.load_snapshot()
    pool = Pool()
    access = Access(feed, server_key, clock, settings.max_stale)
    inference = Inference(
        access=access,
        pool=pool,
        meter=meter,
        clock=clock,
        limit=settings.body_limit,
        first_byte=settings.first_byte_seconds,
        idle=settings.idle_seconds,
    )
    door = Door(DataPlane(access, inference, Passage(settings.socket, pool)), settings.host, settings.port)
    return Plan(
        name=ROLE,
        loops={"feed": feed.run, "door": door.keep},
        on_stop=(door.close, meter_flush(meter)),
        checks={
            "tables": lambda: feed.loaded,
            "keys": lambda: feed.stale_seconds <= settings.max_stale,
            "listening": lambda: door.open,
        },
    )


def meter_flush(meter: Meter) -> Any:
    """The last counts go to disk; the next worker of this name sends them."""

    async def flush() -> None:
        meter.flush()

    return flush


class Door:
    """The public listener; workers share the port."""

    def __init__(self, application: DataPlane, host: str, port: int) -> None:
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        from services.gateway.dataplane.protocol import Protocol

        self._config = Config(
            application,
            interface="asgi3",
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
        )
        self._config.load()
        self._state = ServerState()
        self._place = (host, port)
        self._server: asyncio.AbstractServer | None = None
        self.open = False

    async def keep(self) -> None:
        """Listen, for ever."""
        loop = asyncio.get_running_loop()
        host, port = self._place
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise Unavailable(f"port {port} of {host} cannot be listened on: {error.strerror}") from None
        self._server = await loop.create_server(self._protocol, sock=listener, backlog=_BACKLOG)
        self.open = True
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Stop listening, let what runs finish for a while."""
        self.open = False
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            _, late = await asyncio.wait(list(self._state.tasks), timeout=_GRACE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1)  # what they used is still to be counted

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return protocol


async def _server_key(settings: WorkerSettings) -> bytes:
    """The key of token hashes; the gateway process makes it."""
    deadline = asyncio.get_running_loop().time() + _KEY_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        try:
            found = settings.key_secret.read_bytes().strip()
        except OSError:
            found = b""
        if found:
            return found
        await asyncio.sleep(0.05)
    raise Unavailable(
        f"{settings.key_secret} does not appear; is the gateway process running? (pid {os.getpid()} waits)"
    )


def main() -> NoReturn:
    """Run a worker."""
    run_main(ROLE, WorkerSettings, build)
