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
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.ASCII)
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_TREE = re.compile(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_BACKLOG = 256
_BIND_SECONDS = 2.0


@dataclass(eq=False)
class _Refused(Exception):  # noqa: N818 - an answer, not an error
    status: int
    code: str
    message: str


class HubServer:
    """One ASGI callable over one folder."""

    def __init__(self, folder: HubFolder) -> None:
        self._folder = folder

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            await self._serve(unquote(scope["path"]), scope["method"], headers, send)
        except _Refused as refused:
            extra: Headers = [(b"x-error-code", refused.code.encode()), (b"x-error-message", refused.message.encode())]
            await _json(send, refused.status, {"error": refused.message}, extra)

    async def _serve(self, path: str, method: str, headers: dict[str, str], send: Send) -> None:
        if method not in {"GET", "HEAD"}:
            raise _Refused(405, "MethodNotAllowed", "this hub is read-only; import with `gpubus hub add`")
        if match := _TREE.fullmatch(path):
            _, files = self._found(match[1], match[2])
            await _json(send, 200, [file.entry() for file in files])
        elif match := _INFO.fullmatch(path):
            commit, files = self._found(match[1], match[2] or "main")
            info: dict[str, Any] = {"id": match[1], "modelId": match[1], "sha": commit, "private": False, "tags": []}
            await _json(send, 200, info | {"siblings": [{"rfilename": file.path} for file in files]})
        elif match := _RESOLVE.fullmatch(path):
            commit, files = self._found(match[1], match[2])
            file = next((file for file in files if file.path == match[3]), None)
            if file is None:
                raise _Refused(404, "EntryNotFound", f"{match[1]} has no file {match[3]} at {match[2]}")
            await self._file(match[1], commit, file, method, headers, send)
        else:
            raise _Refused(404, "NotFound", "not a path of the model hub's read API")

    def _found(self, repository: str, revision: str) -> tuple[str, tuple[HubFile, ...]]:
        if not self._folder.holds(repository):
            raise _Refused(404, "RepoNotFound", f"{repository} is not in this hub; import it with `gpubus hub add`")
        commit = self._folder.commit(repository, revision)
        if commit is None:
            raise _Refused(404, "RevisionNotFound", f"{repository} has no revision {revision}")
        return commit, self._folder.files(repository, commit)

    async def _file(
        self, repository: str, commit: str, file: HubFile, method: str, headers: dict[str, str], send: Send
    ) -> None:
        etag = f'"{file.etag}"'
        told: Headers = [
            (b"etag", etag.encode()),
            (b"x-repo-commit", commit.encode()),
            (b"accept-ranges", b"bytes"),
            (b"content-type", b"application/octet-stream"),
        ]
        if file.large:
            told += [(b"x-linked-etag", etag.encode()), (b"x-linked-size", str(file.size).encode())]
        asked = headers.get("range", "") if headers.get("if-range", etag) == etag else ""
        start, end = _span(asked, file.size)
        if start > end and file.size:
            raise _Refused(416, "RangeNotSatisfiable", f"the file has {file.size} bytes")
        partial = bool(asked) and file.size > 0
        if partial:
            told.append((b"content-range", f"bytes {start}-{end}/{file.size}".encode()))
        told.append((b"content-length", str(end - start + 1).encode()))
        await send({"type": "http.response.start", "status": 206 if partial else 200, "headers": told})
        if method == "GET":
            await self._bytes(repository, commit, file, start, end, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _bytes(self, repository: str, commit: str, file: HubFile, start: int, end: int, send: Send) -> None:
        with self._folder.path(repository, commit, file).open("rb") as source:
            source.seek(start)
            left = end - start + 1
            while left > 0:
                chunk = await asyncio.to_thread(source.read, min(_CHUNK, left))
                if not chunk:
                    return  # shorter on disk than imported: the client sees the missing bytes
                left -= len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _span(asked: str, size: int) -> tuple[int, int]:
    """First and last byte of a Range header; everything when there is none or it cannot be read."""
    match = _RANGE.fullmatch(asked)
    if match is None or not (match[1] or match[2]):
        return 0, size - 1
    if not match[1]:
        return max(0, size - int(match[2])), size - 1
    return int(match[1]), min(size - 1, int(match[2])) if match[2] else size - 1


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
        listener.close()


async def keep_hub(root: Path, host: str, port: int) -> None:
    """Serve the local hub as soon as no other copy on this host does; for ever."""
    folder = HubFolder(root)
    while True:
        listener = bind(host, port)
        if listener is not None:
            log.info("hub_listening", host=host, port=port)
            await serve(folder, listener)
        await asyncio.sleep(_BIND_SECONDS)
