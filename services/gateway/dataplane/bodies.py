"""The body of a request, read up to a limit.

Read next: inference.py.
"""

from __future__ import annotations

from services.gateway.dataplane.answers import Headers, Receive


class TooLongBody(Exception):  # noqa: N818 - an answer, not an error of ours
    """More bytes than a request may have."""


class ClientGone(Exception):  # noqa: N818 - not an error
    """Nobody waits for the answer any more."""


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLongBody: more than `limit` bytes; when the headers say so, nothing is read (nor asked for by 100 Continue).
        ClientGone: it left before the end.
    """
    for name, value in headers:
        if name == b"content-length" and int(value) > limit:
            raise TooLongBody
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body") and message["type"] == "http.request" and len(body) <= limit:
        return body
    parts, size = [body], len(body)
    while True:
        if message["type"] != "http.request":
            raise ClientGone
        if size > limit:
            raise TooLongBody
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
