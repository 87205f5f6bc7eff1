"""A model hub that misbehaves as it is told: what it should do next is said file by file, what it was asked is kept.

Serves the Hugging Face read API. Read next: conftest.py.
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 1000
"""Bytes from which on a file is listed with its sha256."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def start(self) -> int:
        """First byte that was asked for."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])


Trick = Callable[["Call"], None]


class Call:
    """One request to a file, for tricks."""

    def __init__(self, handler: _Handler, content: bytes) -> None:
        self.handler, self.content = handler, content
        self.start = Asked("", "", handler.lower()).start

    def head(self, status: int, length: int | None, **more: str) -> None:
        self.handler.send_response(status)
        if length is not None:
            self.handler.send_header("Content-Length", str(length))
        for name, value in more.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def send(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def reset(self) -> None:
        """End the connection without a farewell."""
        link = self.handler.connection
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.handler.close_connection = True
        self.handler.rfile.close()
        self.handler.wfile.close()
        link.close()

    def whole(self, content: bytes | None = None, *, etag: str = "", ranges: bool = True) -> None:
        """What a good hub answers."""
        content = self.content if content is None else content
        etag = etag or f'"{hashlib.sha256(content).hexdigest()}"'
        start = self.start if ranges and self.handler.lower().get("if-range", etag) == etag else 0
        self.begin(content, start, etag)
        self.send(content[start:])

    def begin(self, content: bytes, start: int, etag: str) -> None:
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        more = {"Content_Range": span} if start else {}
        self.head(206 if start else 200, len(content) - start, ETag=etag, **more)


def cut(count: int, *, ranges: bool = True) -> Trick:
    """Say the whole length, send some bytes, reset the connection."""

    def trick(call: Call) -> None:
        start = call.start if ranges else 0
        call.begin(call.content, start, f'"{hashlib.sha256(call.content).hexdigest()}"')
        call.send(call.content[start : start + count])
        threading.Event().wait(0.2)  # so that a reset does not overtake the bytes
        call.reset()

    return trick


def wait_after(count: int, going: threading.Event, reached: threading.Event) -> Trick:
    """Send some bytes, go on when told."""

    def trick(call: Call) -> None:
        call.begin(call.content, call.start, f'"{hashlib.sha256(call.content).hexdigest()}"')
        call.send(call.content[call.start : call.start + count])
        reached.set()
        if going.wait(30):
            call.send(call.content[call.start + count :])

    return trick


def drip(piece: int, gap: float) -> Trick:
    """Never more than a few bytes at a time."""

    def trick(call: Call) -> None:
        call.begin(call.content, call.start, f'"{hashlib.sha256(call.content).hexdigest()}"')
        for at in range(call.start, len(call.content), piece):
            call.send(call.content[at : at + piece])
            threading.Event().wait(gap)

    return trick


def flipped(offset: int) -> Trick:
    """One byte is another."""

    def trick(call: Call) -> None:
        content = bytearray(call.content)
        content[offset] ^= 1
        call.whole(bytes(content), etag=f'"{hashlib.sha256(call.content).hexdigest()}"')

    return trick


def chunked(pieces: int, *, cut_after: int | None = None, extra: bytes = b"") -> Trick:
    """Without a Content-Length, in pieces; perhaps broken off, perhaps too long."""

    def trick(call: Call) -> None:
        start = call.start
        span = f"bytes {start}-{len(call.content) - 1}/{len(call.content)}"
        more = {"Content_Range": span} if start else {}
        call.head(206 if start else 200, None, Transfer_Encoding="chunked", **more)
        left, step = call.content[start:] + extra, max(1, len(call.content) // pieces)
        for number, at in enumerate(range(0, len(left), step)):
            if number == cut_after:
                threading.Event().wait(0.2)
                call.reset()
                return
            piece = left[at : at + step]
            call.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        call.send(b"0\r\n\r\n")

    return trick


def status(code: int, error: str = "", body: bytes = b"no", **more: str) -> Trick:
    """A refusal."""

    def trick(call: Call) -> None:
        call.head(code, len(body), **({"X_Error_Code": error} if error else {}), **more)
        call.send(body)

    return trick


def redirect(url: str, code: int = 302) -> Trick:
    return lambda call: call.head(code, 0, Location=url)


def says(length: int, body: bytes) -> Trick:
    """A Content-Length that need not be true, then close."""

    def trick(call: Call) -> None:
        call.head(200, length)
        call.send(body)
        call.handler.close_connection = True

    return trick


def other_etag(etag: str, *, heeds_if_range: bool) -> Trick:
    """The file has another ETag than before."""

    def trick(call: Call) -> None:
        if heeds_if_range:
            call.whole(etag=etag)
        else:
            call.begin(call.content, call.start, etag)
            call.send(call.content[call.start :])

    return trick


def plain(call: Call) -> None:
    """A good answer."""
    call.whole()


def no_ranges(call: Call) -> None:
    """All of it whatever was asked for."""
    call.whole(ranges=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    origin: Origin

    def do_GET(self) -> None:
        self.origin.answer(self)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for it

    def lower(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """A client that went away."""


class Origin:
    """One listener with repositories."""

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        handler = type("Handler", (_Handler,), {"origin": self})
        self.server = _Server(("127.0.0.1", port), handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = int(self.server.server_address[1])
        self.url = f"{'https' if tls else 'http'}://localhost:{self.port}"
        self.asked: list[Asked] = []
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.commits: dict[str, str] = {}
        self.tricks: dict[str, deque[Trick]] = defaultdict(deque)
        """By repository and file path (`o/n/w.bin`), `o/n@info`, `o/n@tree`; the last one stays."""
        self.listings: dict[str, list[dict[str, Any]]] = {}
        self._thread = threading.Thread(target=lambda: self.server.serve_forever(0.02), daemon=True)
        self._thread.start()

    def add(self, repository: str, files: dict[str, bytes]) -> str:
        """Offer a repository; returns its commit."""
        self.repositories[repository] = files
        commit = hashlib.sha1(repr((repository, sorted(files.items()))).encode()).hexdigest()
        self.commits[repository] = commit
        return commit

    def will(self, place: str, *tricks: Trick) -> None:
        """What the next answers are; after the last one it behaves."""
        self.tricks[place] = deque(tricks)

    def always(self, place: str, trick: Trick) -> None:
        """What every answer is from now on."""
        self.tricks[place] = deque([trick] * 10_000)

    def files_asked(self, path: str) -> list[Asked]:
        """GETs of files whose path ends so."""
        return [a for a in self.asked if "/resolve/" in a.path and unquote(a.path).endswith(path) and a.method == "GET"]

    def answer(self, handler: _Handler) -> None:
        path = urlsplit(handler.path).path
        self.asked.append(Asked(handler.command, handler.path, handler.lower()))
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["api", "models"]:
            repository = "/".join(parts[2:4])
            kind = "tree" if parts[4:5] == ["tree"] else "info"
            body = self._tree(repository) if kind == "tree" else self._info(repository)
            self._play(f"{repository}@{kind}", handler, body, json_body=True)
        else:
            repository, file = "/".join(parts[:2]), "/".join(parts[4:])
            content = self.repositories.get(repository, {}).get(file)
            self._play(f"{repository}/{file}", handler, content)

    def _play(self, place: str, handler: _Handler, content: bytes | None, *, json_body: bool = False) -> None:
        call = Call(handler, content or b"")
        if self.tricks[place]:
            self.tricks[place].popleft()(call)
        elif content is None:
            status(404, "RepoNotFound" if json_body else "EntryNotFound")(call)
        elif json_body:
            call.head(200, len(content), Content_Type="application/json")
            call.send(content)
        else:
            call.whole()

    def _info(self, repository: str) -> bytes | None:
        if repository not in self.repositories:
            return None
        return json.dumps({"id": repository, "modelId": repository, "sha": self.commits[repository]}).encode()

    def _tree(self, repository: str) -> bytes | None:
        if repository in self.listings:
            return json.dumps(self.listings[repository]).encode()
        if repository not in self.repositories:
            return None
        return json.dumps([entry(path, data) for path, data in self.repositories[repository].items()]).encode()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def entry(path: str, content: bytes) -> dict[str, Any]:
    """As the tree API lists a file."""
    git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    told: dict[str, Any] = {"type": "file", "oid": git, "size": len(content), "path": path}
    if len(content) >= LARGE:
        told["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return told


def raw(body: bytes, kind: str = "application/json", **more: str) -> Trick:
    """Any answer with status 200."""

    def trick(call: Call) -> None:
        call.head(200, len(body), Content_Type=kind, **more)
        call.send(body)

    return trick


def never(gone: threading.Event) -> Trick:
    """No answer until told."""

    def trick(call: Call) -> None:
        gone.wait(30)
        call.handler.close_connection = True

    return trick
