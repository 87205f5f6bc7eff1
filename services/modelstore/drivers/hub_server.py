"""The local hub over HTTP: Hugging Face's read API for the repositories of a folder.

Serves model info, tree, HEAD and GET of files with ETag, Range and If-Range. Must not write. Read next: hub_folder.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from services.modelstore.domain.hub import HubFile
from services.modelstore.drivers.hub_folder import HubFolder
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_CHUNK = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
# Matched before %-escapes are read: a revision or name may hold an escaped slash.
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_TREE = re.compile(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)/?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_UNSAFE = re.compile(r"[^ -~]")
"""What a header's value must not hold."""
_BACKLOG = 256
_BIND_SECONDS = 2.0


@dataclass(eq=False)
class _Refused(Exception):  # noqa: N818 - an answer, not an error
    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    """One request and where its answer goes."""

    method: str
    headers: dict[str, str]
    send: Send
    gone: asyncio.Future[None]
    """Done when the client left."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One file of one commit."""

    repository: str
    commit: str
    file: HubFile


class HubServer:
    """One ASGI callable over one folder."""

    def __init__(self, folder: HubFolder) -> None:
        self._folder = folder

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            path = scope["raw_path"].decode("latin-1").partition("?")[0]
            await self._serve(path, _Call(scope["method"], headers, send, gone))
        except _Refused as refused:
            told = _UNSAFE.sub("?", refused.message).encode()  # names in it are whatever the caller sent
            extra: Headers = [(b"x-error-code", refused.code.encode()), (b"x-error-message", told), *refused.headers]
            await _json(send, refused.status, {"error": refused.message}, extra)
        finally:
            gone.cancel()

    async def _serve(self, path: str, call: _Call) -> None:
        if call.method not in {"GET", "HEAD"}:
            raise _Refused(405, "MethodNotAllowed", "this hub is read-only; import with `gpubus hub add`")
        if match := _TREE.fullmatch(path):
            _, _, files = self._found(match)
            await _json(call.send, 200, [file.entry() for file in files])
        elif match := _INFO.fullmatch(path):
            repository, commit, files = self._found(match)
            info: dict[str, Any] = {"id": repository, "modelId": repository, "sha": commit, "private": False}
            siblings = [{"rfilename": file.path} for file in files]
            await _json(call.send, 200, info | {"tags": [], "siblings": siblings})
        elif match := _RESOLVE.fullmatch(path):
            repository, commit, files = self._found(match)
            wanted = unquote(match[3])
            file = next((file for file in files if file.path == wanted), None)
            if file is None:
                raise _Refused(404, "EntryNotFound", f"{repository} has no file {wanted} at {commit}")
            await self._file(_Place(repository, commit, file), call)
        else:
            raise _Refused(404, "NotFound", "not a path of the model hub's read API")

    def _found(self, match: re.Match[str]) -> tuple[str, str, tuple[HubFile, ...]]:
        repository, revision = unquote(match[1]), unquote(match[2] or "main")
        if not self._folder.holds(repository):
            raise _Refused(404, "RepoNotFound", f"{repository} is not in this hub; import it with `gpubus hub add`")
        commit = self._folder.commit(repository, revision)
        if commit is None:
            raise _Refused(404, "RevisionNotFound", f"{repository} has no revision {revision}")
        return repository, commit, self._folder.files(repository, commit)

    async def _file(self, place: _Place, call: _Call) -> None:
        file, etag = place.file, f'"{place.file.etag}"'
        told: Headers = [
            (b"etag", etag.encode()),
            (b"x-repo-commit", place.commit.encode()),
            (b"accept-ranges", b"bytes"),
            (b"content-type", b"application/octet-stream"),
        ]
        if file.large:
            told += [(b"x-linked-etag", etag.encode()), (b"x-linked-size", str(file.size).encode())]
        heeded = call.headers.get("if-range", etag) == etag
        span = _span(call.headers.get("range", ""), file.size) if heeded else None
        start, end = span or (0, file.size - 1)
        if span:
            told.append((b"content-range", f"bytes {start}-{end}/{file.size}".encode()))
        told.append((b"content-length", str(end - start + 1).encode()))
        await call.send({"type": "http.response.start", "status": 206 if span else 200, "headers": told})
        if call.method == "GET":
            await self._bytes(place, start, end, call)
        await call.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _bytes(self, place: _Place, start: int, end: int, call: _Call) -> None:
        with self._folder.path(place.repository, place.commit, place.file).open("rb") as source:
            source.seek(start)
            left = end - start + 1
            while left > 0 and not call.gone.done():  # nobody is told when the client left
                chunk = await asyncio.to_thread(source.read, min(_CHUNK, left))
                if not chunk:
                    return  # shorter on disk than imported: the client sees the missing bytes
                left -= len(chunk)
                await call.send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _disconnected(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _span(asked: str, size: int) -> tuple[int, int] | None:
    """First and last byte of a Range header; None, which is all of the file, when there is none or it cannot be read.

    Raises:
        _Refused: the file has no such bytes.
    """
    match = _RANGE.fullmatch(asked)
    if match is None or not (match[1] or match[2]) or (match[1] and match[2] and int(match[1]) > int(match[2])):
        return None
    if match[1]:
        start, end = int(match[1]), min(size - 1, int(match[2])) if match[2] else size - 1
    else:
        start, end = max(0, size - int(match[2])), size - 1
    if start > end:
        told = ((b"content-range", f"bytes */{size}".encode()),)
        raise _Refused(416, "RangeNotSatisfiable", f"the file has {size} bytes", told)
    return start, end


async def _json(send: Send, status: int, body: Any, extra: Headers | None = None) -> None:
    raw = json.dumps(body).encode()
    headers: Headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *(extra or [])]})
    await send({"type": "http.response.body", "body": raw})


def bind(host: str, port: int) -> socket.socket | None:
    """The listener; None while another copy on this host has it."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        return None
    listener.listen(_BACKLOG)
    return listener


async def serve(folder: HubFolder, listener: socket.socket) -> None:
    """Serve until cancelled."""
    import uvicorn

    config = uvicorn.Config(
        HubServer(folder), log_config=None, access_log=False, lifespan="off", server_header=False, http="httptools"
    )
    server = uvicorn.Server(config)
    try:
        await server._serve([listener])  # noqa: SLF001 - serve() would take the service's signals
    finally:
        server.should_exit = True
        for accepting in getattr(server, "servers", ()):  # none before it started
            accepting.close()
        for connection in tuple(server.server_state.connections):
            connection.shutdown()
        listener.close()


async def keep_hub(root: Path, host: str, port: int) -> None:
    """Serve the local hub as soon as no other copy on this host does; for ever."""
    folder = HubFolder(root)
    told = False
    while True:
        listener = bind(host, port)
        if listener is None and not told:
            log.info("hub_port_taken", host=host, port=port)
            told = True
        if listener is not None:
            log.info("hub_listening", host=host, port=port)
            await serve(folder, listener)
        await asyncio.sleep(_BIND_SECONDS)
