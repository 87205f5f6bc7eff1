"""One HTTP exchange over ASGI: what was asked, and how an answer is sent.

Owns size limits, content negotiation and header rules. Must not know resources. Read next: asgi.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson

from services.gateway.domain.status import failure, retry_after
from shared.errors import Cause, GpubusError, InvalidArgument, Malformed, TooLarge
from shared.ids import random_suffix

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

JSON_TYPE = "application/json"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_QUERY_LIMIT = 8192
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f/\\]{1,253}")


class ClientGone(Exception):  # noqa: N818 - nobody is told; the exchange just ends
    """The caller hung up while its body was read."""


class UnsupportedMedia(Malformed):
    """A Content-Type that is not taken here (415)."""


@dataclass(slots=True)
class Request:
    """What was asked."""

    method: str
    segments: tuple[str, ...]
    """The decoded path; no segment is empty, `.`, `..`, or has a slash in it."""
    query: dict[str, str]
    headers: Sequence[tuple[bytes, bytes]]
    receive: Receive
    id: str
    path: str

    def header(self, name: bytes) -> str:
        """The first header of that name; empty when there is none."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")

    def flag(self, name: str) -> bool:
        """A boolean parameter; absent is false.

        Raises:
            Malformed: it is neither true nor false.
        """
        value = self.query.get(name, "")
        if value.lower() not in {"", "0", "1", "true", "false"}:
            raise _parameter(name, "must be true or false")
        return value.lower() in {"1", "true"}

    def number(self, name: str) -> int | None:
        """A non-negative whole parameter; None when absent.

        Raises:
            Malformed: it is none.
        """
        value = self.query.get(name, "")
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 20):
            raise _parameter(name, "must be a whole number")
        return int(value)

    @property
    def media_type(self) -> str:
        """Content-Type without parameters, lower case; JSON when there is none."""
        return self.header(b"content-type").partition(";")[0].strip().lower() or JSON_TYPE

    async def body(self, limit: int) -> bytes:
        """All of the body.

        Raises:
            TooLarge: over `limit` bytes; what is declared too large is not read.
        """
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > limit:
            raise TooLarge(f"the body has {declared} bytes; at most {limit} are taken")
        parts, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise TooLarge(f"the body is over {limit} bytes")
            if not message.get("more_body"):
                return b"".join(parts)

    async def gone(self) -> None:
        """Returns when the caller has hung up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


@dataclass(slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: list[tuple[str, str]] = field(default_factory=list)


def read_request(scope: Scope, receive: Receive) -> Request:
    """The request of an ASGI scope.

    Raises:
        Malformed: a path or query that nobody sends by accident.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    text = scope.get("query_string", b"").decode("latin-1")
    if len(text) > _QUERY_LIMIT:
        raise Malformed("the query string is too long")
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    given = next((value.decode("latin-1") for name, value in headers if name == b"x-request-id"), "")
    identity = given if _REQUEST_ID.fullmatch(given) else f"req-{random_suffix(16)}"
    path = raw.partition(b"?")[0].decode("latin-1")
    query = dict(parse_qsl(text, keep_blank_values=True))
    return Request(scope["method"], _segments(path), query, headers, receive, identity, path)


def _segments(path: str) -> tuple[str, ...]:
    found = []
    for part in path.strip("/").split("/") if path.strip("/") else ():
        try:
            decoded = unquote(part, errors="strict")
        except UnicodeDecodeError:
            raise Malformed("the path is not valid UTF-8") from None
        if decoded in {".", ".."} or not _SEGMENT.fullmatch(decoded):
            raise Malformed("the path has a segment that cannot be a name")
        found.append(decoded)
    return tuple(found)


def json_response(body: Any, status: int = 200, content_type: str = JSON_TYPE) -> Response:
    """An answer of JSON."""
    return Response(status, orjson.dumps(body), content_type)


def error_response(error: GpubusError) -> Response:
    """The Status of an error, with the headers that go with it."""
    body = failure(error)
    if isinstance(error, UnsupportedMedia):
        body |= {"code": 415, "reason": "UnsupportedMediaType"}
    response = json_response(body, body["code"])
    wait = retry_after(error)
    if wait is not None:
        response.headers.append(("retry-after", str(wait)))
    if body["code"] == 401:
        response.headers.append(("www-authenticate", 'Bearer realm="gpubus"'))
    if allow := error.fields.get("allow"):
        response.headers.append(("allow", str(allow)))
    return response


async def send_response(send: Send, response: Response, request_id: str) -> None:
    """Send all of it."""
    await send_head(
        send,
        response.status,
        response.content_type,
        request_id,
        [*response.headers, ("content-length", str(len(response.body)))],
    )
    await send({"type": "http.response.body", "body": response.body})


async def pumped(pump: Awaitable[None], *ends: Awaitable[None]) -> bool:
    """Run `pump` until it or any of `ends` is done; whether it came to its own end. Nothing runs on afterwards."""
    tasks = [asyncio.ensure_future(job) for job in (pump, *ends)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        own, *others = tasks
        if own.done():
            own.result()
        return own.done() and not any(task.done() for task in others)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def send_head(
    send: Send, status: int, content_type: str, request_id: str, headers: Sequence[tuple[str, str]] = ()
) -> None:
    """Send the head; the body follows in pieces."""
    pairs = [
        ("content-type", content_type),
        ("x-request-id", request_id),
        ("cache-control", "no-cache, private"),
        *headers,
    ]
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in pairs]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


def accepts(header: str) -> list[tuple[str, dict[str, str]]]:
    """The media ranges of an Accept header in order of preference, with their parameters."""
    ranges = []
    for position, item in enumerate(header.split(",")[:32]):
        kind, *parameters = (part.strip() for part in item.split(";"))
        pairs = dict(part.partition("=")[::2] for part in parameters if "=" in part)
        ranges.append((-_quality(pairs.pop("q", "1")), position, kind.lower(), pairs))
    return [(kind, pairs) for _, _, kind, pairs in sorted(ranges, key=lambda found: found[:2]) if kind]


def _quality(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _parameter(name: str, sentence: str) -> Malformed:
    return Malformed(f"parameter {name}: {sentence}", (Cause(name, sentence),))


def one_of(name: str, value: str, allowed: Sequence[str], default: str) -> str:
    """A parameter that is one of a few words.

    Raises:
        InvalidArgument: it is another one.
    """
    if not value:
        return default
    if value not in allowed:
        sentence = f"must be one of {', '.join(allowed)}"
        raise InvalidArgument(f"parameter {name}: {sentence}", (Cause(name, sentence, "FieldValueNotSupported"),))
    return value
