"""A TCP relay between a client and a server that loses answers, holds them back, or cuts the line.

Read next: tests/integration/store/test_lost_answers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LOOPBACK = "127.0.0.1"


class Proxy:
    """Counts what passes; `lose_answer_to(text)` drops the connection after the next request that contains it."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.lost = 0
        self.on_loss: Callable[[], None] = lambda: None
        """Called when the server has answered and nobody will hear it."""
        self._target = target_port
        self._marks: list[bytes] = []
        self._links: set[asyncio.StreamWriter] = set()

    def lose_answer_to(self, text: bytes, times: int = 1) -> None:
        """The next `times` requests that contain the text reach the server, their answers reach nobody."""
        self._marks += [text] * times

    def cut(self) -> None:
        """Drop every connection."""
        for link in list(self._links):
            link.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            writer.transport.abort()
            return
        self._links |= {writer, server_writer}
        muted = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forward(reader, server_writer, muted))
                tasks.create_task(self._answer(server_reader, writer, muted))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._links -= {writer, server_writer}
            writer.transport.abort()
            server_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: asyncio.Event) -> None:
        while data := await reader.read(1 << 20):
            for mark in self._marks:
                if mark in data:
                    self._marks.remove(mark)
                    self.lost += 1
                    muted.set()
                    break
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, muted: asyncio.Event) -> None:
        while data := await reader.read(1 << 20):
            if muted.is_set():
                self.on_loss()
                break
            writer.write(data)
            await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a loopback port."""
    proxy = Proxy(port)
    listener = await asyncio.start_server(proxy.serve, LOOPBACK, 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        proxy.cut()
        await asyncio.sleep(0.01)
