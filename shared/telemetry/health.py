"""The health listener of every process: /livez, /readyz and /metrics over a tiny HTTP server.

Must not know what the process does. Read next: shared/service.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from shared.telemetry.metrics import exposition

READ_SECONDS = 5.0
_MAX_REQUEST = 8192
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_JSON_TYPE = "application/json"


class HealthServer:
    """Serves three paths; `ready` gives each check's name and state."""

    def __init__(self, ready: Callable[[], dict[str, bool]]) -> None:
        self._ready = ready
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one for 0.

        Raises:
            OSError: the port is taken.
        """
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
                writer.write(self._response(method, path.partition("?")[0]))
                await writer.drain()
        except (TimeoutError, ValueError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked like that gets no answer
        finally:
            writer.close()

    def _response(self, method: str, path: str) -> bytes:
        if method not in {"GET", "HEAD"}:
            return _http(405, "Method Not Allowed", b"only GET\n", "text/plain")
        if path == "/livez":
            return _http(200, "OK", b"ok\n", "text/plain")
        if path == "/metrics":
            return _http(200, "OK", exposition(), _METRICS_TYPE)
        if path == "/readyz":
            checks = self._ready()
            ready = all(checks.values())
            body = orjson.dumps({"ready": ready, "checks": checks})
            return _http(200 if ready else 503, "OK" if ready else "Service Unavailable", body, _JSON_TYPE)
        return _http(404, "Not Found", b"try /livez, /readyz or /metrics\n", "text/plain")


def _http(status: int, text: str, body: bytes, content_type: str) -> bytes:
    head = f"HTTP/1.1 {status} {text}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
