"""Sockets that an ASGI application is served on: a TLS port and the unix socket of the workers.

uvicorn's httptools protocol without uvicorn's Server: that one wakes ten times a second for ever, also when nobody asks.
Must not know the application. Read next: services/gateway/app.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

KEEP_ALIVE_SECONDS = 75
_BACKLOG = 1024
_CLAIM_SECONDS = 2.0
_GRACE_SECONDS = 3.0


class Listener:
    """The listening sockets of one application."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._config = Config(
            application,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: list[asyncio.AbstractServer] = []
        self._door: Door | None = None

    async def open_tls(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen with TLS; copies of the gateway may share the port. The port, which is a free one for 0.

        Raises:
            OSError: the port is taken.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            self._protocol, host, port, ssl=context, reuse_port=True, backlog=_BACKLOG, ssl_handshake_timeout=10
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def open_unix(self, path: Path) -> Door:
        """Listen on a unix socket; `Door.keep` makes it the one that is found under `path`."""
        self._door = Door(path)
        server = await asyncio.get_running_loop().create_unix_server(
            self._protocol, str(self._door.own), backlog=_BACKLOG
        )
        self._door.own.chmod(0o600)
        self._servers.append(server)
        return self._door

    async def close(self) -> None:
        """Stop listening, let short requests finish, end the rest (watches have no end of their own)."""
        if self._door is not None:
            self._door.leave()
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        # A watch would go on until its client leaves.
        running = list(self._state.tasks)
        if running:
            _, late = await asyncio.wait(running, timeout=_GRACE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1)

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return protocol


class Door:
    """One well-known path that several copies listen behind: a link to the socket of one that lives."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = path
        self.own = path.with_name(f"{path.stem}-{os.getpid()}.sock")
        self.own.unlink(missing_ok=True)

    async def keep(self) -> None:
        """Take the path over whenever nobody answers behind it; for ever."""
        while True:
            if not self._mine() and not await self._answers():
                self._claim()
            await asyncio.sleep(_CLAIM_SECONDS)

    def leave(self) -> None:
        """Remove what is ours, so that another copy takes over."""
        if self._mine():
            self.path.unlink(missing_ok=True)
        self.own.unlink(missing_ok=True)

    def _mine(self) -> bool:
        return self.path.is_symlink() and self.path.readlink() == Path(self.own.name)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(str(self.path))
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    def _claim(self) -> None:
        if self.path.is_symlink():
            # What a killed copy left behind.
            (self.path.parent / self.path.readlink()).unlink(missing_ok=True)
        fresh = self.own.with_suffix(".link")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(self.own.name)
        fresh.replace(self.path)
