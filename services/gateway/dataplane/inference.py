"""One request to a model: checked, routed to the least busy replica, forwarded as bytes, counted.

Must not wait for anything but the client and the engine. Read next: ../domain/streaming.py, ../domain/routing.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.gateway.dataplane import answers
from services.gateway.dataplane.access import Access
from services.gateway.dataplane.answers import Headers, Receive, Send
from services.gateway.dataplane.bodies import ClientGone, TooLongBody, read_body
from services.gateway.dataplane.meter import Meter
from services.gateway.dataplane.passing import HOP_BY_HOP
from services.gateway.dataplane.upstream import Connection, Pool, UpstreamError, head
from services.gateway.dataplane.watching import Watch
from services.gateway.domain import openai
from services.gateway.domain.routing import find_model, is_ambiguous, pick, unknown_model
from services.gateway.domain.streaming import StreamMeter, Usage, error_frame, read_usage
from services.gateway.domain.tables import Endpoint, Key, Model
from shared.clock import Clock
from shared.errors import FACES, Code

REPLICA = b"x-gpubus-replica"
_TRIES = 3
_DROPPED = HOP_BY_HOP | {REPLICA, b"server", b"date", b"x-request-id"}
_FORWARDED = frozenset({b"accept", b"traceparent", b"tracestate", b"user-agent"})
_FIRST_PIECE_SECONDS = 2.0
"""An engine that fails within this time of beginning a stream gets an honest status, or another engine asked."""


@dataclass(slots=True)
class Call:
    """One request on its way."""

    path: str
    key: Key
    model: Model
    body: bytes
    headers: Headers
    request_id: bytes
    stream: bool
    hide: bool
    outcome: str = "cancelled"
    usage: Usage | None = None
    begun: bool = False
    """Whether the client was sent anything."""
    tried: set[Endpoint] = field(default_factory=set)


class Inference:
    """The road from a body to an answer."""

    def __init__(
        self, *, access: Access, pool: Pool, meter: Meter, clock: Clock, limit: int, first_byte: float, idle: float
    ) -> None:
        self._access = access
        self._pool = pool
        self._meter = meter
        self._clock = clock
        self._limit = limit
        self._first_byte = first_byte
        self._idle = idle
        self._busy: defaultdict[Endpoint, int] = defaultdict(int)
        self._stale: set[Endpoint] = set()
        self._turn = 0

    async def __call__(
        self, path: str, key: Key, headers: Headers, request_id: bytes, receive: Receive, send: Send
    ) -> None:
        """Answer one request."""
        started = self._clock.monotonic()
        try:
            call = await self._prepare(path, key, headers, request_id, receive, send)
        except ClientGone:
            return
        except TooLongBody:
            await answers.error(send, Code.TOO_LARGE, f"the body has more than {self._limit} bytes")
            return
        except openai.BadRequest as error:
            await answers.error(send, Code.INVALID_ARGUMENT, error.message, param=error.param)
            return
        if call is None:
            return
        try:
            await self._deliver(call, receive, send)
        finally:
            self._meter.add(key, call.model, call.outcome, call.usage, self._clock.monotonic() - started)

    async def _prepare(
        self, path: str, key: Key, headers: Headers, request_id: bytes, receive: Receive, send: Send
    ) -> Call | None:
        raw = await read_body(headers, receive, self._limit)
        body = openai.decode(raw)
        name = openai.check(path, body)
        model = find_model(self._access.index, key, name)
        if model is None:
            await self._unknown(key, name, send)
            return None
        stream = bool(body.get("stream"))
        hide = stream and not (body.get("stream_options") or {}).get("include_usage")
        if hide or name != model.name:
            raw = openai.rewritten(raw, model.name, ask_usage=hide)
        return Call(path, key, model, raw, headers, request_id, stream, hide)

    async def _unknown(self, key: Key, name: str, send: Send) -> None:
        if is_ambiguous(self._access.index, key, name):
            sentence = f"several namespaces serve {name!r}; write NAMESPACE/{name}"
            await answers.error(send, Code.INVALID_ARGUMENT, sentence, param="model")
            return
        await answers.error(send, Code.NOT_FOUND, unknown_model(name), param="model")

    async def _deliver(self, call: Call, receive: Receive, send: Send) -> None:
        failure: UpstreamError | None = None
        for _ in range(_TRIES):
            endpoint = self._pick(call)
            if endpoint is None:
                break
            try:
                if await self._held(call, endpoint, receive, send):
                    return
            except UpstreamError as error:
                failure = error
                if error.answered or error.late:
                    break
            call.tried.add(endpoint)
        call.outcome = "upstream_error"
        why = failure or call.model.waiting or "no replica is ready"
        sentence = f"{call.model.name} cannot answer now: {why}"
        if failure is not None and failure.late:
            await answers.error(send, Code.DEADLINE_EXCEEDED, sentence)
            return
        await answers.error(send, Code.UNAVAILABLE, sentence, retry_after=1, status=502 if failure else None)

    async def _held(self, call: Call, endpoint: Endpoint, receive: Receive, send: Send) -> bool:
        self._busy[endpoint] += 1
        try:
            return await self._try(call, endpoint, receive, send)
        finally:
            self._busy[endpoint] -= 1
            if not self._busy[endpoint]:
                del self._busy[endpoint]

    def _pick(self, call: Call) -> Endpoint | None:
        self._turn += 1
        # Tables may have moved on since an endpoint failed.
        endpoints = self._access.index.by_place.get((call.model.namespace, call.model.name), call.model).endpoints
        return pick(endpoints, self._busy, call.tried | (self._stale & set(endpoints)), self._turn)

    async def _try(self, call: Call, endpoint: Endpoint, receive: Receive, send: Send) -> bool:
        """One endpoint; False when another one should be asked."""
        address = (endpoint.host, endpoint.port)
        connection = await self._pool.take(address)
        try:
            return await self._exchange(call, endpoint, connection, receive, send)
        except UpstreamError as error:
            # Engines close idle connections; one that did so just now has not seen the request.
            if not connection.again or error.answered or error.late:
                raise
        connection = await self._pool.take(address, fresh=True)
        return await self._exchange(call, endpoint, connection, receive, send)

    async def _exchange(
        self, call: Call, endpoint: Endpoint, connection: Connection, receive: Receive, send: Send
    ) -> bool:
        try:
            with Watch(receive, connection) as watch:
                watch.start()
                try:
                    await self._ask(call, endpoint, connection)
                    if _another(connection, endpoint):
                        self._stale.add(endpoint)
                        return False
                    await self._answer(call, connection, send)
                except UpstreamError as error:
                    if not watch.gone and not call.begun:
                        raise
                    if not watch.gone:
                        await _broke(call, error, send)
                if watch.gone:
                    call.outcome = "cancelled"
            return True
        finally:
            self._pool.give(connection)

    async def _ask(self, call: Call, endpoint: Endpoint, connection: Connection) -> None:
        headers = [
            (b"host", _host(endpoint)),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(call.body)),
            (b"x-request-id", call.request_id),
        ]
        headers += [header for header in call.headers if header[0] in _FORWARDED]
        if endpoint.token:
            headers.append((REPLICA, endpoint.token.encode()))
        opening = head(b"POST", f"{endpoint.path}{call.path}".encode(), headers)
        await connection.exchange(opening, call.body, self._first_byte)

    async def _answer(self, call: Call, connection: Connection, send: Send) -> None:
        good = connection.status < 400
        streamed = call.stream and good
        headers = [
            header
            for header in connection.headers
            if header[0] not in _DROPPED and not (streamed and header[0] == b"content-length")
        ]
        headers.append((b"x-request-id", call.request_id))
        if streamed:
            await self._stream(call, connection, headers, send)
            return
        body = await connection.read(self._idle)
        told = _loads(body)
        if connection.unsized and told is None:
            raise UpstreamError("the engine closed the connection in the middle of its answer", answered=True)
        call.usage = read_usage(told) if good else None
        call.outcome = "ok" if good else "client_error" if connection.status < 500 else "upstream_error"
        await send({"type": "http.response.start", "status": connection.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, call: Call, connection: Connection, headers: Headers, send: Send) -> None:
        await connection.begun(_FIRST_PIECE_SECONDS)
        call.begun = True
        await send({"type": "http.response.start", "status": connection.status, "headers": headers})
        meter = StreamMeter(hide=call.hide)
        try:
            async for piece in _pieces(meter, connection, self._idle):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            call.outcome = "ok"
        except UpstreamError:
            if not meter.ended:
                raise
            call.outcome = "ok"  # it said that this was all, and went
        finally:
            call.usage = meter.usage or Usage(output_tokens=meter.output_seen)
        await send({"type": "http.response.body", "body": b""})


async def _broke(call: Call, error: UpstreamError, send: Send) -> None:
    """The client has a part of the stream: it gets the error as the last frame, and no end marker."""
    call.outcome = "upstream_error"
    face = FACES[Code.UNAVAILABLE]
    frame = error_frame(f"{call.model.name} broke off: {error}", face.openai_type, face.openai_code or "")
    await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _pieces(meter: StreamMeter, connection: Connection, idle: float) -> AsyncIterator[bytes]:
    async for chunk in connection.body(idle):
        piece = meter.feed(chunk)
        if piece:
            yield piece
    rest = meter.rest()
    if connection.unsized and meter.frames and not meter.ended:
        raise UpstreamError("the engine closed the connection before the end of its stream", answered=True)
    if rest:
        yield rest


def _host(endpoint: Endpoint) -> bytes:
    name = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{name}:{endpoint.port}".encode()


def _another(connection: Connection, endpoint: Endpoint) -> bool:
    """Whether the one who answers says that it is not this replica."""
    if not endpoint.token:
        return False
    told = next((value for name, value in connection.headers if name == REPLICA), None)
    return told is not None and told != endpoint.token.encode()


def _loads(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
