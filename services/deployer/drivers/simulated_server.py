"""Simulated engines behind HTTP: many under path prefixes of one listener, or one alone as a child process.

`python -m services.deployer.drivers.simulated_server --model M --port P` is what engine Simulated runs on a real node.
Read next: simulated.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from services.deployer.drivers.simulated_cost import Cost
from services.deployer.drivers.simulated_engine import Receive, Send, SimulatedEngine

if TYPE_CHECKING:
    import uvicorn

BACKLOG = 4096
_NOT_FOUND = b'{"error":{"message":"no such replica","type":"NotFoundError","param":null,"code":404}}'


class SimulatedHost:
    """One listener for any number of replicas."""

    def __init__(self) -> None:
        self.port = 0
        self._replicas: dict[str, SimulatedEngine] = {}
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Future[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `port` then says where."""
        listener = _listener(host, port)
        self.port = listener.getsockname()[1]
        self._server = server(self.answer)
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[listener]))
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - uvicorn tells in no other way
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        """Stop listening; running answers are cut off."""
        if self._server is not None and self._serving is not None:
            self._server.force_exit = self._server.should_exit = True
            await self._serving

    def mount(self, name: str, engine: SimulatedEngine) -> str:
        """Serve a replica; the path prefix of its endpoint."""
        self._replicas[name] = engine
        return f"/r/{name}"

    def unmount(self, name: str) -> None:
        """Serve it no more; what it is answering goes on."""
        self._replicas.pop(name, None)

    async def answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI callable: `/r/<name>/...` goes to that replica."""
        path: str = scope["path"]
        name, slash, rest = path[3:].partition("/") if path.startswith("/r/") else ("", "", "")
        engine = self._replicas.get(name)
        if engine is None:
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_NOT_FOUND)).encode())]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": _NOT_FOUND})
            return
        await engine(slash + rest, scope["method"], receive, send)


def server(app: Any) -> uvicorn.Server:
    """A uvicorn server that leaves signals to the process it runs in."""
    import uvicorn

    class Quiet(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", interface="asgi3", log_config=None, access_log=False, backlog=BACKLOG,
        server_header=False, date_header=False, timeout_keep_alive=75,
    )  # fmt: skip
    return Quiet(config)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The engine's flags; ones of the engines that it plays are not known here and ignored."""
    parser = argparse.ArgumentParser(prog="simulated-engine", allow_abbrev=False)
    parser.add_argument("--model", default="model")
    parser.add_argument("--engine", default="Simulated", help="whose metrics names")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--start-seconds", type=float, default=0.0)
    parser.add_argument("--prefill-rate", type=float, default=0.0, help="tokens a second, 0: at once")
    parser.add_argument("--decode-rate", type=float, default=0.0, help="tokens a second of one answer, 0: at once")
    parser.add_argument("--crowding", type=float, default=0.05)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--cache-blocks", type=int, default=4096)
    parser.add_argument("--exit-after", type=float, default=0.0, help="seconds after which it ends by itself, 0: never")
    parser.add_argument("--exit-code", type=int, default=1)
    return parser.parse_known_args(argv)[0]


def cost_of(options: argparse.Namespace, start_seconds: float = 0.0) -> Cost:
    """The cost model that the flags describe."""
    return Cost(
        start_seconds=options.start_seconds or start_seconds,
        prefill_rate=options.prefill_rate,
        decode_rate=options.decode_rate,
        crowding=options.crowding,
        block_size=max(1, options.block_size),
        cache_blocks=max(1, options.cache_blocks),
    )


async def serve_alone(options: argparse.Namespace, token: str) -> int:
    """One replica at the root of its own port, until a signal or its own end; the exit status."""
    import signal

    engine = SimulatedEngine(options.model, engine=options.engine, cost=cost_of(options), token=token)

    async def answer(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await engine(scope["path"], scope["method"], receive, send)

    running, ended = server(answer), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    serving = asyncio.ensure_future(running.serve(sockets=[_listener(options.host, options.port)]))
    loop.call_later(engine.cost.start_seconds, setattr, engine, "ready", True)
    status = 0
    try:
        async with asyncio.timeout(options.exit_after or None):
            await ended.wait()
    except TimeoutError:
        status = options.exit_code
    running.should_exit = True
    await serving
    return status


def main() -> None:
    """The stand-alone server."""
    import os
    import sys

    import uvloop

    token = os.environ.get("GPUBUS_REPLICA_TOKEN", "")  # noqa: TID251 - an engine has no settings
    sys.exit(uvloop.run(serve_alone(arguments(sys.argv[1:]), token)))


def _listener(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


if __name__ == "__main__":
    main()
