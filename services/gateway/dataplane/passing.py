"""Everything that is not /v1, handed to the gateway process over its unix socket and streamed both ways.

Read next: ../routes/asgi.py, which answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from services.gateway.dataplane import answers
from services.gateway.dataplane.answers import Receive, Send
from services.gateway.dataplane.upstream import Connection, Headers, Pool, UpstreamError, head
from services.gateway.dataplane.watching import Watch
from services.gateway.domain.status import failure
from shared.errors import Unavailable

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_ANSWER_SECONDS = 65.0
"""A write waits for its owner for a while; a watch has bookmarks."""
_SILENCE_SECONDS = 4000.0


class Passage:
    """One gateway process."""

    def __init__(self, socket: Path, pool: Pool) -> None:
        self._address = str(socket)
        self._pool = pool

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass one request."""
        for fresh in (False, True):
            if await self._pass(scope, receive, send, fresh=fresh):
                return
        sentence = "the control plane is away on this host; models are still served under /v1"
        await _refuse(send, sentence)

    async def _pass(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, *, fresh: bool) -> bool:
        """One attempt; False when nothing was sent to the client and a fresh connection may do better."""
        try:
            connection = await self._pool.take(self._address, fresh=fresh)
        except UpstreamError:
            return False
        try:
            with Watch(receive, connection) as watch:
                try:
                    await _ask(connection, scope, receive, watch)
                except UpstreamError:
                    # A request body is gone once it was read; only those without one are asked again.
                    return watch.gone or (not fresh and scope["method"] not in {"GET", "HEAD"} and await _lost(send))
                try:
                    await _answer(connection, send)
                except UpstreamError as error:
                    if not watch.gone:
                        raise ConnectionError(str(error)) from None  # the client must see that this is not the whole
        finally:
            self._pool.give(connection)
        return True


async def _lost(send: Send) -> bool:
    sentence = (
        "the control plane went away before it answered; whether the write happened is unknown, look and try again"
    )
    await _refuse(send, sentence)
    return True


async def _refuse(send: Send, sentence: str) -> None:
    """As the resource API answers: its clients read a Status."""
    await answers.json(send, 503, failure(Unavailable(sentence)), [(b"retry-after", b"1")])


async def _ask(connection: Connection, scope: MutableMapping[str, Any], receive: Receive, watch: Watch) -> None:
    # `expect` was answered by this listener.
    headers: Headers = [header for header in scope["headers"] if header[0] not in HOP_BY_HOP and header[0] != b"expect"]
    sized = any(name == b"content-length" for name, _ in headers)
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    chunked = not sized and scope["method"] in {"POST", "PUT", "PATCH", "DELETE"}
    if chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    opening = head(scope["method"].encode(), target, headers)
    sending = asyncio.ensure_future(_send_body(connection, receive, chunked=chunked)) if sized or chunked else None
    try:
        await connection.exchange(opening, b"", _ANSWER_SECONDS, bodiless=scope["method"] == "HEAD")
        if sending is not None and not sending.done():
            await asyncio.wait([sending], timeout=_ANSWER_SECONDS)
        watch.start()
    finally:
        if sending is not None:
            sending.cancel()


async def _send_body(connection: Connection, receive: Receive, *, chunked: bool) -> None:
    while True:
        message = await receive()
        if message["type"] != "http.request":
            connection.transport.abort()
            return
        body = message.get("body", b"")
        if body:
            connection.send(b"%x\r\n%b\r\n" % (len(body), body) if chunked else body)
            await connection.drained()
        if not message.get("more_body"):
            if chunked:
                connection.send(b"0\r\n\r\n")
            return


async def _answer(connection: Connection, send: Send) -> None:
    headers = [header for header in connection.headers if header[0] not in HOP_BY_HOP]
    await send({"type": "http.response.start", "status": connection.status, "headers": headers})
    async for chunk in connection.body(_SILENCE_SECONDS):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
