"""Our own HTTP client to engines: httptools on asyncio, kept-alive connections per address, back-pressure.

The HTTP client is where other gateways spend their time. Must not know what is asked. Read next: asgi.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httptools

_HIGH, _LOW = 256 * 1024, 64 * 1024
_IDLE_PER_ADDRESS = 256

Headers = list[tuple[bytes, bytes]]
Address = tuple[str, int] | str
"""(host, port), or the path of a unix socket."""


class UpstreamError(Exception):
    """The exchange broke; `sent_nothing` tells that the engine cannot have begun to answer."""

    def __init__(self, message: str, *, answered: bool) -> None:
        super().__init__(message)
        self.answered = answered


class Connection(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.closed = False
        self.used = False
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: Headers = []
        self.chunks: list[bytes] = []
        self.size = 0
        self.headed = self.done = self.paused = self.broken = False
        self.keep = False
        self._sized = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer; between exchanges they are nobody's, and the connection goes."""
        if self.done or not self.used:
            self.transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.broken = True
            self.transport.abort()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio
        """Closed by either side; an answer without a length ends here."""
        self.closed = True
        if self.headed and not self.done and not self._sized and not self.broken:
            self.done = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._wake()

    def pause_writing(self) -> None:
        """The engine reads slower than we write."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It caught up."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    # httptools' side

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        lower = name.lower()
        if lower in {b"content-length", b"transfer-encoding"}:
            self._sized = True
        self.headers.append((lower, value))

    def on_headers_complete(self) -> None:
        """All headers; answers of the 100 class are not the answer."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers.clear()
            return
        self.headed = True

    def on_body(self, body: bytes) -> None:
        """A piece."""
        self.chunks.append(body)
        self.size += len(body)
        if self.size > _HIGH and not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """The end of an answer."""
        if self.headed:
            self.done = True
            self.keep = self._parser.should_keep_alive()

    # our side

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self, timeout: float) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._waiter
        except TimeoutError:
            self.transport.abort()
            raise UpstreamError(f"no byte for {timeout:g} s", answered=self.headed) from None
        finally:
            self._waiter = None

    async def exchange(self, head: bytes, body: bytes, timeout: float) -> None:
        """Send a request and wait for the headers of its answer."""
        self._begin()
        self.used = True
        self.transport.write(head + body if len(body) < _LOW else head)
        if len(body) >= _LOW:
            self.transport.write(body)
        if self._drained is not None:
            await self._drained
        while not self.headed:
            if self.closed or self.broken:
                raise UpstreamError("the engine closed the connection", answered=bool(self.status))
            await self._more(timeout)

    async def body(self, timeout: float) -> AsyncIterator[bytes]:
        """The answer's pieces as they come."""
        while True:
            if self.chunks:
                chunk = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
                self.chunks.clear()
                self.size = 0
                if self.paused:
                    self.paused = False
                    self.transport.resume_reading()
                yield chunk
            elif self.done:
                return
            elif self.closed or self.broken:
                raise UpstreamError("the engine broke off in the middle of its answer", answered=True)
            else:
                await self._more(timeout)

    async def read(self, timeout: float) -> bytes:
        """The whole answer."""
        if self.done and len(self.chunks) <= 1:
            return self.chunks[0] if self.chunks else b""
        return b"".join([chunk async for chunk in self.body(timeout)])

    def send(self, data: bytes) -> None:
        """A piece of a request body that is sent as it comes."""
        self.transport.write(data)

    async def drained(self) -> None:
        """Until the engine took what was written."""
        if self._drained is not None:
            await self._drained


class Pool:
    """Connections by address."""

    def __init__(self, *, connect_seconds: float = 5.0) -> None:
        self._idle: dict[Address, list[Connection]] = {}
        self._connect_seconds = connect_seconds

    async def take(self, address: Address, *, fresh: bool = False) -> Connection:
        """A connection that is ours until `give`.

        Raises:
            UpstreamError: nobody listens there.
        """
        idle = self._idle.get(address)
        while idle and not fresh:
            connection = idle.pop()
            if not connection.closed:
                return connection
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_seconds):
                if isinstance(address, str):
                    _, connection = await loop.create_unix_connection(Connection, address)
                else:
                    _, connection = await loop.create_connection(Connection, *address)
        except (OSError, TimeoutError) as error:
            raise UpstreamError(f"cannot connect: {error or type(error).__name__}", answered=False) from None
        return connection

    def give(self, address: Address, connection: Connection) -> None:
        """Back; kept when the exchange ended cleanly, closed otherwise, which cancels it at the engine."""
        if connection.done and connection.keep and not connection.closed and not connection.broken:
            idle = self._idle.setdefault(address, [])
            if len(idle) < _IDLE_PER_ADDRESS:
                connection.chunks.clear()
                idle.append(connection)
                return
        if connection.transport is not None:
            connection.transport.abort()

    def forget(self, live: Iterable[Address]) -> None:
        """Close what leads to addresses that are gone."""
        for address in self._idle.keys() - set(live):
            for connection in self._idle.pop(address):
                connection.transport.abort()


def head(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The bytes of a request's head."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines.append(b"\r\n")
    return b"".join(lines)
