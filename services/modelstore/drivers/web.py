"""HTTP requests for pieces of files: redirects, credentials, reuse of connections, and what each refusal means.

The token goes to the host it was given for and nowhere else: a redirect to another host, port or scheme loses it, one
from https to plain http is refused. Standard library only, in threads. Read next: download.py.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from services.modelstore.domain.reasons import DeliveryReason
from services.modelstore.ports import DeliveryError

_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({408, 425, 429})
_DENIED = frozenset({"RepoNotFound", "GatedRepo"})
"""X-Error-Code of a hub that hides a repository behind 404."""
_LONGEST_WAIT = 60.0
_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int | None]
"""Scheme, host, port."""


class Interrupted(Exception):  # noqa: N818 - named for what happened
    """The transfer broke off and may go on where it was; `wait` is what the server asked for, in seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's files are, and the credential for them."""

    endpoint: str
    repository: str
    revision: str
    token: str

    def url(self, path: str) -> str:
        """The address of one file; it names the commit, never a branch."""
        return f"{self.endpoint}/{self.repository}/resolve/{self.revision}/{quote(path)}"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with bytes, checked: what comes begins at `start`."""

    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    origin: Origin
    start: int
    etag: str
    """A strong ETag for If-Range; empty when there is none."""

    @property
    def server(self) -> str:
        """Who answered, for comparing ETags: another server may name the same bytes differently."""
        return f"{self.origin[0]}://{self.origin[1]}:{self.origin[2]}"


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to go on, and the ETag that what is there came with."""

    start: int = 0
    server: str = ""
    etag: str = ""


class Connections:
    """Open connections of one delivery, reused file after file; `abort` ends all of them at once."""

    def __init__(self, stall: float) -> None:
        """`stall` is the most seconds without a byte."""
        self._stall = stall
        self._idle: dict[Origin, list[http.client.HTTPConnection]] = {}
        self._busy: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._aborted = False
        self._tls: ssl.SSLContext | None = None

    def take(self, origin: Origin) -> tuple[http.client.HTTPConnection, bool]:
        """A connection for one request, and whether it was used before (and may be dead without our knowing)."""
        with self._lock:
            if self._aborted:
                raise Interrupted("the delivery ends")
            idle = self._idle.get(origin)
            connection = idle.pop() if idle else self._new(origin)
            self._busy.add(connection)
        return connection, connection.sock is not None

    def give(self, origin: Origin, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read to the end."""
        with self._lock:
            self._busy.discard(connection)
            if connection.sock is not None and not self._aborted:
                self._idle.setdefault(origin, []).append(connection)
                return
        connection.close()

    def drop(self, connection: http.client.HTTPConnection) -> None:
        """Close a connection that cannot be reused."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def abort(self) -> None:
        """Wake every thread that waits for bytes, and close what is idle; from any thread."""
        with self._lock:
            self._aborted = True
            waiting = [connection.sock for connection in self._busy if connection.sock is not None]
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
        for sock in waiting:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended by itself
        for connection in idle:
            connection.close()

    def _new(self, origin: Origin) -> http.client.HTTPConnection:
        scheme, host, port = origin
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._stall)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=self._stall, context=self._tls)


def ask(connections: Connections, source: Source, path: str, size: int, resume: Resume) -> Reply:
    """Ask for a file from some byte on; the server may choose to begin at 0 all the same.

    Raises:
        DeliveryError: asking again will not help soon.
        Interrupted: it may.
    """
    url, token = source.url(path), source.token
    if not (token.isascii() and token.isprintable()):
        raise DeliveryError(
            DeliveryReason.ACCESS_DENIED, "the token has characters that no hub accepts; correct its Secret"
        )
    for _ in range(_REDIRECTS + 1):
        origin, target = _address(url)
        response, connection = _request(connections, origin, target, _headers(origin, token, resume))
        if response.status not in _MOVED:
            return _checked(connections, Reply(response, connection, origin, 0, _etag(response)), path, size, resume)
        connections.drop(connection)
        url, token = _redirected(url, origin, response.headers.get("Location", ""), token)
    raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{_host(source.endpoint)} redirects in circles")


def _request(
    connections: Connections, origin: Origin, target: str, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    while True:
        connection, used = connections.take(origin)
        try:
            connection.request("GET", target, headers=headers)
            return connection.getresponse(), connection
        except (OSError, http.client.HTTPException) as error:
            connections.drop(connection)
            if used and not isinstance(error, TimeoutError):
                continue  # the server had closed it while it was idle
            raise Interrupted(f"{origin[1]} does not answer: {_named(error)}") from None


def _headers(origin: Origin, token: str, resume: Resume) -> dict[str, str]:
    headers = {"User-Agent": "gpubus", "Accept": "*/*", "Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if resume.start:
        headers["Range"] = f"bytes={resume.start}-"
        if resume.etag and resume.server == f"{origin[0]}://{origin[1]}:{origin[2]}":
            headers["If-Range"] = resume.etag
    return headers


def _redirected(url: str, origin: Origin, location: str, token: str) -> tuple[str, str]:
    """The next address, and the token if it may go there."""
    try:
        onward = urljoin(url, location)
    except ValueError:
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, f"{origin[1]} redirects to no address") from None
    following, _ = _address(onward)
    if origin[0] == "https" and following[0] != "https":
        sentence = f"{origin[1]} redirects from https to plain http; that is not followed"
        raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, sentence)
    return onward, token if following == origin else ""


def _address(url: str) -> tuple[Origin, str]:
    try:
        parts = urlsplit(url)
        origin = (parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme))
        parts.hostname and parts.hostname.encode("idna")
    except ValueError:
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, "the source's address cannot be read") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        sentence = f"{parts.scheme or 'no scheme'}: only http and https sources bring bytes"
        raise DeliveryError(DeliveryReason.INVALID_REQUEST, sentence)
    return origin, _target(parts)


def _target(parts: SplitResult) -> str:
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return f"{path}?{quote(parts.query, safe='/%:@!$&()*+,;=~-._?')}" if parts.query else path


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


def _etag(response: http.client.HTTPResponse) -> str:
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') and etag.isascii() else ""


def _checked(connections: Connections, reply: Reply, path: str, size: int, resume: Resume) -> Reply:
    try:
        return _accepted(reply, path, size, resume)
    except (DeliveryError, Interrupted):
        connections.drop(reply.connection)
        raise


def _accepted(reply: Reply, path: str, size: int, resume: Resume) -> Reply:
    response, host = reply.response, reply.origin[1]
    if response.status not in {200, 206}:
        _refuse(response, host, path)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{host} sends {path} encoded, which was not asked for")
    start = resume.start if response.status == 206 else 0
    if response.status == 206:
        _check_range(response, host, path, resume.start, size)
    length = response.length
    if length is not None and length != size - start:
        sentence = f"{host} has {start + length} bytes of {path}, its manifest says {size}"
        raise DeliveryError(DeliveryReason.INTEGRITY_MISMATCH, sentence)
    return Reply(response, reply.connection, reply.origin, start, reply.etag)


def _check_range(response: http.client.HTTPResponse, host: str, path: str, start: int, size: int) -> None:
    told = response.headers.get("Content-Range", "")
    span, _, total = told.removeprefix("bytes ").partition("/")
    if not start or span != f"{start}-{size - 1}" or total not in {str(size), "*"}:
        raise Interrupted(f"{host} answered another range of {path} ({told[:60]!r}) than was asked for")


def _refuse(response: http.client.HTTPResponse, host: str, path: str) -> NoReturn:
    status, code = response.status, response.headers.get("X-Error-Code", "")
    if status in {401, 403} or code in _DENIED:
        sentence = f"{host} answered {status} for {path}: it is not there or the token gives no access to it"
        raise DeliveryError(DeliveryReason.ACCESS_DENIED, sentence)
    if status in _LATER or status >= 500:
        raise Interrupted(f"{host} answered {status}", _wait(response.headers.get("Retry-After", "")))
    if status == 416:
        raise DeliveryError(
            DeliveryReason.INTEGRITY_MISMATCH, f"{host} has fewer bytes of {path} than its manifest says"
        )
    raise DeliveryError(DeliveryReason.SOURCE_UNAVAILABLE, f"{host} answered {status} for {path}")


def _wait(retry_after: str) -> float:
    return min(_LONGEST_WAIT, float(retry_after)) if retry_after.isascii() and retry_after.isdigit() else 0.0


def _named(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
