"""A fake inference engine: the OpenAI API over a cost model, as a bare ASGI callable.

Deterministic text, real shapes, the metrics and cache blocks of the engine that it plays. It is the other end of the
gateway's benchmarks, so nothing on the way is slower than it must be. Must not import anything of the platform.
Read next: simulated_server.py and simulated.py, which run it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import orjson

from services.deployer.drivers import simulated_text as text
from services.deployer.drivers.simulated_cost import BlocksChanged, Cost, PrefixCache, tokens_of
from services.deployer.drivers.simulated_metrics import Counts, exposition
from services.deployer.drivers.simulated_requests import BadRequest, ask_of, decode, inputs_of
from services.deployer.drivers.simulated_text import Ask

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

REPLICA_HEADER = b"x-gpubus-replica"
_JSON: Header = (b"content-type", b"application/json")
_EVENTS: Header = (b"content-type", b"text/event-stream; charset=utf-8")
_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
_BODY_LIMIT = 64 * 1024 * 1024
_YIELD_EVERY = 16
"""Chunks that cost no time are sent in such groups before others get their turn."""


class SimulatedEngine:
    """One replica. Call it with paths that begin at its own root."""

    def __init__(
        self,
        model: str,
        *,
        engine: str = "vLLM",
        cost: Cost | None = None,
        token: str = "",
        blocks: BlocksChanged | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self.cost = cost or Cost()
        self.counts = Counts()
        self.cache = PrefixCache(self.cost, blocks)
        self.ready = False
        self._ids = count(1)
        self._created = 0
        mark = (REPLICA_HEADER, token.encode())
        self._json, self._events, self._text = (
            [_JSON, mark],
            [_EVENTS, mark, (b"cache-control", b"no-cache")],
            [_TEXT, mark],
        )
        self._posts = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embeddings,
        }

    async def __call__(self, path: str, method: str, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            if path in self._posts:
                await self._post(path, method, receive, send)
            else:
                await self._get(path, method, send)
        except BadRequest as error:
            await _answer(send, error.status, self._json, error.body())

    async def _post(self, path: str, method: str, receive: Receive, send: Send) -> None:
        if method != "POST":
            raise BadRequest("use POST", status=405)
        if not self.ready:
            raise BadRequest("the engine is starting", status=503)
        await self._posts[path](decode(await _body(receive)), receive, send)

    async def _get(self, path: str, method: str, send: Send) -> None:
        if method not in {"GET", "HEAD"}:
            raise BadRequest(f"{path} is not served", status=404)
        if path in {"/health", "/v1/health"}:
            await _answer(
                send,
                200 if self.ready else 503,
                self._json,
                b'{"status":"ok"}' if self.ready else b'{"status":"loading model"}',
            )
        elif path in {"/v1/models", "/models"}:
            listed = {"id": self.model, "object": "model", "created": self._created, "owned_by": self.engine.lower()}
            await _answer(send, 200, self._json, orjson.dumps({"object": "list", "data": [listed]}))
        elif path == "/metrics":
            cache = self.cache
            body = exposition(
                self.counts,
                engine=self.engine,
                model=self.model,
                usage=cache.usage,
                queries=cache.queries,
                hits=cache.hits,
            )
            await _answer(send, 200, self._text, body)
        elif path == "/version":
            await _answer(send, 200, self._json, b'{"version":"simulated"}')
        else:
            raise BadRequest(f"{path} is not served", status=404)

    async def _chat(self, body: Mapping[str, Any], receive: Receive, send: Send) -> None:
        await self._complete(ask_of(body, self.model, chat=True), "chatcmpl", receive, send)

    async def _completion(self, body: Mapping[str, Any], receive: Receive, send: Send) -> None:
        await self._complete(ask_of(body, self.model, chat=False), "cmpl", receive, send)

    async def _embeddings(self, body: Mapping[str, Any], receive: Receive, send: Send) -> None:  # noqa: ARG002 - shape
        texts, encoded = inputs_of(body, self.model)
        make: Callable[[str], Any] = text.base64_embedding if encoded else text.embedding
        data = [{"object": "embedding", "index": i, "embedding": make(item)} for i, item in enumerate(texts)]
        tokens = sum(max(1, len(tokens_of(item))) for item in texts)
        self.counts.prompt_tokens += tokens
        self.counts.finished += 1
        used = {"prompt_tokens": tokens, "total_tokens": tokens}
        await _answer(
            send, 200, self._json, orjson.dumps({"object": "list", "data": data, "model": self.model, "usage": used})
        )

    async def _complete(self, ask: Ask, kind: str, receive: Receive, send: Send) -> None:
        identity = f"{kind}-{next(self._ids):08x}"
        cached = sum(self.cache.take(tokens_of(prompt)) for prompt in ask.prompts)
        self.counts.running += 1
        done = False
        try:
            waited = self.cost.prefill_seconds(max(0, ask.tokens - cached))
            self.counts.first_token_seconds += waited
            if ask.stream:
                done = await self._stream(ask, identity, cached, waited, receive, send)
            else:
                done = await self._whole(ask, identity, cached, waited, receive, send)
        finally:
            self.counts.running -= 1
            self.counts.prompt_tokens += ask.tokens
            self.counts.finished += done
            self.counts.aborted += not done

    async def _whole(self, ask: Ask, identity: str, cached: int, waited: float, receive: Receive, send: Send) -> bool:
        seconds = waited + self.cost.token_seconds(self.counts.running) * ask.count
        if seconds and await _left(receive, seconds):
            return False
        self.counts.generated_tokens += ask.count * ask.choices * len(ask.prompts)
        await _answer(send, 200, self._json, orjson.dumps(text.completion(ask, identity, self._created, cached)))
        return True

    async def _stream(self, ask: Ask, identity: str, cached: int, waited: float, receive: Receive, send: Send) -> bool:
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            frames = text.Frames(ask, identity, self._created)
            await send({"type": "http.response.start", "status": 200, "headers": self._events})
            await asyncio.sleep(waited)
            if first := frames.first():
                await send({"type": "http.response.body", "body": first, "more_body": True})
            for number, frame in enumerate(frames.tokens()):
                seconds = self.cost.token_seconds(self.counts.running)
                if seconds or number % _YIELD_EVERY == 0:
                    await asyncio.sleep(seconds)
                if gone.done():
                    return False
                self.counts.generated_tokens += ask.choices * len(ask.prompts)
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": frames.last(cached)})
        finally:
            gone.cancel()
        return True


async def _answer(send: Send, status: int, headers: list[Header], body: bytes) -> None:
    sized = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    parts, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _BODY_LIMIT:
            raise BadRequest("the body is too large", status=413)
    return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _left(receive: Receive, seconds: float) -> bool:
    """Wait; True as soon as the client goes."""
    try:
        async with asyncio.timeout(seconds):
            await _disconnected(receive)
    except TimeoutError:
        return False
    return True
