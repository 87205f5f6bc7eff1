"""A gateway with workers, engines that the test plays byte by byte, and a client that speaks HTTP by hand.

Must not start other services: deployments and Pods are written into the store as the deployer would.
Read next: tests/integration/dataplane.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from shared.clock import SystemClock
from shared.resources.deployment import LABEL_DEPLOYMENT
from shared.store.client import Store
from shared.store.documents import Commit, Put
from tests.support.children import Child
from tests.support.gateway import ADMIN_TOKEN, Gateway
from tests.support.servers import LOOPBACK, free_port
from tests.support.wait import eventually

PATIENCE = 30.0
CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
_names = itertools.count()


# The engine.


@dataclass
class Seen:
    """One request as it arrived at an engine."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    raw: bytes
    connection: int

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> str:
        """A header's one value; empty when there is none."""
        found = self.all(name)
        assert len(found) <= 1, f"{name} was sent {len(found)} times"
        return found[0] if found else ""

    @property
    def body(self) -> Any:
        """As JSON."""
        return json.loads(self.raw)


Behave = Callable[["Engine", Seen, asyncio.StreamWriter], Awaitable[None]]


class Engine:
    """A server on a free port whose every answer is bytes of the test's choice."""

    def __init__(self, behave: Behave | None = None) -> None:
        self.behave = behave or answer_chat
        self.seen: list[Seen] = []
        self.connections = 0
        self.open = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, LOOPBACK, self.port, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.hang_up()
        await eventually(lambda: self.open == 0, PATIENCE)

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in list(self.writers):
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.writers.add(writer)
        number = self.connections
        try:
            while (seen := await _read_request(reader, number)) is not None:
                self.seen.append(seen)
                working = asyncio.ensure_future(self.behave(self, seen, writer))
                # A peer that leaves is noticed while the answer is still being made.
                leaving = asyncio.ensure_future(_left(reader, writer))
                await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
                leaving.cancel()
                if not working.done():
                    working.cancel()
                    return
                working.result()
                if writer.is_closing():
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self.writers.discard(writer)
            writer.close()


async def _left(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while not reader.at_eof() and not writer.transport.is_closing():
        await asyncio.sleep(0.01)


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, OSError):
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    method, target, _ = first.split(" ")
    seen = Seen(method, target, headers, b"", connection)
    if seen.header("transfer-encoding") == "chunked":
        seen.raw = b"".join([part async for part in _chunks(reader)])
    else:
        seen.raw = await reader.readexactly(int(seen.header("content-length") or 0))
    return seen


def frame(body: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def delta(text: str, **more: Any) -> bytes:
    """A frame with a piece of text."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return frame(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    )


USAGE_FRAME = frame(
    {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": USAGE}
)
END_FRAME = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    """As it stands in a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(body: bytes, status: str = "200 OK", headers: str = "", content: str = "application/json") -> bytes:
    """An answer with a length."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: {content}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body
    )


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "naïve 🦉"}, "finish_reason": "stop"}],
        "usage": USAGE,
    }
).encode()


async def answer_chat(_: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
    """What an engine does: whole, or streamed with the usage when that is asked for."""
    body = seen.body
    if not body.get("stream"):
        writer.write(plain(ANSWER))
        return
    writer.write(STREAM_HEAD)
    for text in ("naïve ", "🦉"):
        writer.write(chunk(delta(text)))
        await asyncio.sleep(0)
    if (body.get("stream_options") or {}).get("include_usage"):
        writer.write(chunk(USAGE_FRAME))
    writer.write(chunk(END_FRAME) + b"0\r\n\r\n")
    await writer.drain()


# The client.


@dataclass
class Reply:
    """What a client got."""

    status: int
    headers: list[tuple[str, str]]
    raw: bytes = b""
    whole: bool = True
    """Whether the body ended as its framing says."""
    early: list[int] = field(default_factory=list)
    """Answers of the 100 class before it."""

    def header(self, name: str) -> str:
        """A header's one value; empty when there is none."""
        found = [value for key, value in self.headers if key == name]
        assert len(found) <= 1, f"{name} came {len(found)} times"
        return found[0] if found else ""

    @property
    def body(self) -> Any:
        """As JSON."""
        return json.loads(self.raw)

    @property
    def error(self) -> dict[str, Any]:
        """Of an OpenAI error body, which it must be."""
        assert self.header("content-type").startswith("application/json"), self.raw
        error: dict[str, Any] = self.body["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert error["message"]
        return error

    @property
    def frames(self) -> list[str]:
        """The data of each server-sent event."""
        return [part.removeprefix("data: ") for part in self.raw.decode().split("\n\n") if part.startswith("data: ")]


class Wire:
    """One connection of a client, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Raw bytes."""
        self.writer.write(data)

    async def head(self) -> Reply:
        """The next answer's status and headers."""
        early: list[int] = []
        while True:
            raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
            first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
            status = int(first.split(" ")[1])
            headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            if status >= 200:
                return Reply(status, headers, early=early)
            early.append(status)

    async def reply(self, *, bodiless: bool = False) -> Reply:
        """The next answer, whole or as much of it as comes."""
        got = await self.head()
        return got if bodiless or got.status in {204, 304} else await self.rest(got)

    async def rest(self, got: Reply) -> Reply:
        """The body that belongs to a head."""
        if got.header("transfer-encoding") == "chunked":
            parts: list[bytes] = []
            try:
                async for part in _chunks(self.reader):
                    parts += (part,)
            except (asyncio.IncompleteReadError, ValueError, OSError):
                got.whole = False
            got.raw = b"".join(parts)
            return got
        length = int(got.header("content-length") or 0)
        try:
            got.raw = await asyncio.wait_for(self.reader.readexactly(length), PATIENCE)
        except asyncio.IncompleteReadError as error:
            got.raw, got.whole = error.partial, False
        return got

    async def until(self, mark: bytes) -> bytes:
        """Read on until some bytes came."""
        return await asyncio.wait_for(self.reader.readuntil(mark), PATIENCE)

    async def ended(self) -> bytes:
        """What comes until the other side closes."""
        with contextlib.suppress(ConnectionResetError):
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        return b""


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size = int(await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE), 16)
        data = await asyncio.wait_for(reader.readexactly(size + 2), PATIENCE)
        if not size:
            return
        yield data[:-2]


# The gateway.


class Plane:
    """A gateway process, its workers, and the documents that the deployer would have written."""

    def __init__(self, workers: int = 1, **settings: str) -> None:
        self.gateway = Gateway()
        self.port = free_port()
        self.workers = [self.worker(f"gateway-worker-{number}", **settings) for number in range(workers)]

    def worker(self, name: str, **settings: str) -> Child:
        """A worker process (not started)."""
        given = {
            "GPUBUS_DATA_DIR": str(self.gateway.dir),
            "GPUBUS_ADMIN_TOKEN_FILE": str(self.gateway.dir / "admin-token"),
            "GPUBUS_PORT": str(self.port),
            **settings,
        }
        return Child(self.gateway.dir, name, ("services.gateway", "worker"), given)

    def start(self) -> Plane:
        """Everything; returns when it is ready."""
        self.gateway.start()
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            worker.ready()
        return self

    def close(self) -> None:
        """End everything."""
        for worker in self.workers:
            worker.end()
        self.gateway.close()

    @asynccontextmanager
    async def wire(self, port: int = 0) -> AsyncIterator[Wire]:
        """A client's connection, to the shared port or another."""
        reader, writer = await asyncio.open_connection(LOOPBACK, port or self.port, limit=1 << 26)
        try:
            yield Wire(reader, writer)
        finally:
            writer.close()

    async def ask(
        self, body: Any, *, path: str = CHAT, token: str = ADMIN_TOKEN, headers: str = "", port: int = 0
    ) -> Reply:
        """One POST on a connection of its own."""
        async with self.wire(port) as wire:
            wire.send(post(body, path=path, token=token, headers=headers))
            return await wire.reply()

    async def get(self, path: str, *, token: str = ADMIN_TOKEN, method: str = "GET") -> Reply:
        """One request without a body on a connection of its own."""
        async with self.wire() as wire:
            wire.send(f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode())
            return await wire.reply(bodiless=method == "HEAD")

    async def store(self) -> Store:
        """The store as the deployer has it."""
        return await Store.connect(url=self.gateway.redis.url, service="deployer", instance="test", clock=SystemClock())

    async def serve(self, *ports: int, name: str = "", namespace: str = "default", token: str = "") -> str:
        """Deploy a model whose replicas listen on `ports`; its name, once every worker may know it."""
        name = name or f"model-{next(_names)}"
        store = await self.store()
        try:
            puts = [_deployment(namespace, name), *(_pod(namespace, name, port, token) for port in ports)]
            await store.commit(Commit(puts=puts))
        finally:
            await store.close()
        await eventually(lambda: self.knows(f"{namespace}/{name}", ready=bool(ports)), PATIENCE)
        return name

    async def knows(self, name: str, *, ready: bool) -> bool:
        """Whether the worker that answers has the model in that state."""
        got = await self.get(f"/v1/models/{name}")
        return got.status == 200 and got.body["ready"] is ready


def post(body: Any, *, path: str = CHAT, token: str = ADMIN_TOKEN, headers: str = "") -> bytes:
    """A request's bytes; `headers` are whole lines."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    key = f"authorization: Bearer {token}\r\n" if token else ""
    top = f"POST {path} HTTP/1.1\r\nhost: gateway\r\n{key}content-type: application/json\r\n{headers}"
    return f"{top}content-length: {len(raw)}\r\n\r\n".encode("latin-1") + raw


def chat(model: str, **more: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}


def _deployment(namespace: str, name: str) -> Put:
    role = {"name": "server", "kind": "Server", "replicas": 1, "instanceType": "gpustack--generic-linux-amd64"}
    spec = {"model": {"name": name}, "engine": {"name": "Custom"}, "roles": [role]}
    return Put(
        "ModelDeployment",
        namespace,
        name,
        _body("worker.gpustack.ai/v1", "ModelDeployment", namespace, name, spec),
        None,
    )


def _pod(namespace: str, owner: str, port: int, token: str) -> Put:
    name = f"{owner}-{port}"
    body = _body("v1", "Pod", namespace, name, {"containers": [{"name": "engine", "command": ["engine"]}]})
    body["metadata"]["labels"] = {LABEL_DEPLOYMENT: owner}
    body["status"] = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": ""}],
        "endpoint": {"address": LOOPBACK, "port": port, "token": token},
    }
    return Put("Pod", namespace, name, body, None)


def _body(version: str, kind: str, namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": dict(spec)}
