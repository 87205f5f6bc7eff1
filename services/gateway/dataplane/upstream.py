"""Our own HTTP client to engines: httptools on asyncio, kept-alive connections per address, back-pressure.

The HTTP client is where other gateways spend their time. Must not know what is asked. Read next: asgi.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httptools

from services.gateway.dataplane.patience import Patience

_HIGH, _LOW = 256 * 1024, 64 * 1024
_IDLE_PER_ADDRESS = 256

Headers = list[tuple[bytes, bytes]]
Address = tuple[str, int] | str
"""(host, port), or the path of a unix socket."""


class UpstreamError(Exception):
    """The exchange broke.

    `answered`: the engine has begun to answer. `late`: it was silent for too long and may still be at work.
    """

    def __init__(self, message: str, *, answered: bool, late: bool = False) -> None:
        super().__init__(message)
        self.answered = answered
        self.late = late


class Connection(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self, address: Address, patience: Patience, on_lost: Callable[[Connection], None]) -> None:
        self.address = address
        self.patience = patience
        self._on_lost = on_lost
        self._expired = False
        self.transport: Any = None
        self.closed = False
        self.used = False
        self.again = False
        """Whether it has carried an exchange before: the engine may be closing it just now."""
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self, *, bodiless: bool = False) -> None:
        self._bodiless = bodiless
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: Headers = []
        self.chunks: list[bytes] = []
        self.size = 0
        self.headed = self.done = self.paused = self.broken = False
        self.keep = False
        self._sized = False
        self.unsized = False
        """Whether the answer ended with the connection: nobody can tell whether it was whole."""

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
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.broken = True
            self.transport.abort()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by either side; an answer without a length ends here."""
        self.closed = True
        if exc is None and self.headed and not self.done and not self._sized and not self.broken:
            self.done = self.unsized = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._on_lost(self)
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

    def on_message_begin(self) -> None:
        """An answer; one that nobody asked for must not mix with the one that was read."""
        if self.done:
            raise ConnectionError("the engine answered twice")

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
            self._sized = False
            return
        self.headed = True
        if self._bodiless:
            self.done = True
            self.keep = self._sized and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """A piece."""
        if self.done:
            self.keep = False  # the body of an answer that has none
            return
        self.chunks.append(body)
        self.size += len(body)
        if self.size > _HIGH and not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """The end of an answer."""
        if self.headed and not self.done:
            self.done = True
            self.keep = self._parser.should_keep_alive()

    # our side

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def late(self) -> None:
        """Nothing came for too long."""
        self._expired = True
        self.transport.abort()
        self._wake()

    async def _more(self, timeout: float) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        self.patience.begin(self, timeout)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self.patience.end(self)
        if self._expired:
            raise UpstreamError(f"no byte for {timeout:g} s", answered=self.headed, late=True)

    async def exchange(self, head: bytes, body: bytes, timeout: float, *, bodiless: bool = False) -> None:
        """Send a request and wait for the headers of its answer; `bodiless`: it is the answer to a HEAD.

        Raises:
            UpstreamError: closed, or silent for `timeout` seconds.
        """
        self.again = self.used
        self._begin(bodiless=bodiless)
        self.used = True
        self.transport.write(head + body if len(body) < _LOW else head)
        if len(body) >= _LOW:
            self.transport.write(body)
        # An engine may answer before it has read everything, or not read at all: only the answer is waited for.
        while not self.headed:
            if self.closed or self.broken:
                raise UpstreamError("the engine closed the connection", answered=bool(self.status))
            await self._more(timeout)

    async def begun(self, timeout: float) -> None:
        """Wait for the first piece of the body, but not for long.

        Raises:
            UpstreamError: the engine went without having said anything.
        """
        if not self.chunks and not self.done and not self.closed and not self.broken:
            self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._waiter], timeout=timeout)
            self._waiter = None
        nothing = self.closed and (self.unsized or not self.done)
        if not self.chunks and (nothing or self.broken):
            raise UpstreamError("the engine closed the connection before it said anything", answered=False)

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
        self._patience = Patience()

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
        make = partial(Connection, address, self._patience, self._lost)
        try:
            async with asyncio.timeout(self._connect_seconds):
                if isinstance(address, str):
                    _, connection = await loop.create_unix_connection(make, address)
                else:
                    _, connection = await loop.create_connection(make, *address)
        except (OSError, TimeoutError) as error:
            # The error's own text names addresses that are not the clients' business.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else "no such host, or no answer"
            raise UpstreamError(f"cannot connect: {why}", answered=False) from None
        return connection

    def give(self, connection: Connection) -> None:
        """Back; kept when the exchange ended cleanly, closed otherwise, which cancels it at the engine."""
        clean = connection.done and not connection.closed and not connection.broken and not connection.paused
        if clean and connection.keep:
            idle = self._idle.setdefault(connection.address, [])
            if len(idle) < _IDLE_PER_ADDRESS:
                connection.chunks.clear()
                idle.append(connection)
                return
        if connection.transport is not None:
            connection.transport.abort()

    def _lost(self, connection: Connection) -> None:
        idle = self._idle.get(connection.address, [])
        if connection in idle:
            idle.remove(connection)
        if not idle:
            self._idle.pop(connection.address, None)


def head(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The bytes of a request's head."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines.append(b"\r\n")
    return b"".join(lines)
