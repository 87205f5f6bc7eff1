"""Answers of the data plane itself: OpenAI error bodies, model lists.

Read next: asgi.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import orjson

from shared.errors import FACES, Code

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Headers = Sequence[tuple[bytes, bytes]]

_JSON = (b"content-type", b"application/json")


async def json(send: Send, status: int, body: Any, headers: Headers = ()) -> None:
    """A JSON answer."""
    raw = orjson.dumps(body)
    told = [_JSON, (b"content-length", b"%d" % len(raw)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": raw})


async def error(
    send: Send,
    code: Code,
    message: str,
    *,
    param: str | None = None,
    retry_after: int | None = None,
    headers: Headers = (),
    status: int | None = None,
    word: str | None = None,
) -> None:
    """An error as the openai clients know it; `status` and `word` (its `code`) where they differ from the code's."""
    face = FACES[code]
    told = list(headers)
    if retry_after is not None:
        told.append((b"retry-after", b"%d" % retry_after))
    # On /v1 a wrong value is a 400 (the resource API says 422).
    number = status or (400 if code is Code.INVALID_ARGUMENT else face.status)
    body = {"message": message, "type": face.openai_type, "param": param, "code": word or face.openai_code}
    await json(send, number, {"error": body}, told)
