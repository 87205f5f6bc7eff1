"""The data plane's one ASGI callable: /v1 here, everything else passed to the gateway process.

Nothing is awaited but the client, the engine and bounded waits. Read next: inference.py, upstream.py.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import MutableMapping
from typing import Any

from services.gateway.dataplane import answers
from services.gateway.dataplane.access import Access
from services.gateway.dataplane.answers import Receive, Send
from services.gateway.dataplane.inference import Inference
from services.gateway.dataplane.passing import Passage
from services.gateway.domain.openai import INFERENCE
from services.gateway.domain.routing import find_model, shown_name, unknown_model, usable_models
from services.gateway.domain.tables import Key, Model
from shared.errors import Code, Unauthenticated, Unavailable

# An id must be unique, not secret: a number behind this process's own random mark.
_PROCESS = secrets.token_hex(6).encode()
_NUMBERS = itertools.count(1)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_ALLOW = {True: (b"allow", b"POST, OPTIONS"), False: (b"allow", b"GET, HEAD, OPTIONS")}


class DataPlane:
    """One worker's application."""

    def __init__(self, access: Access, inference: Inference, passage: Passage) -> None:
        self._access = access
        self._inference = inference
        self._passage = passage

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        if path in INFERENCE:
            await self._infer(scope, receive, send, path)
        elif path == "/v1/models" or path.startswith("/v1/models/"):
            await self._models(scope, send, path.removeprefix("/v1/models").removeprefix("/"))
        elif path == "/v1" or path.startswith("/v1/"):
            sentence = f"{path} is not served; there are /v1/models and {', '.join(sorted(INFERENCE))}"
            await answers.error(send, Code.NOT_FOUND, sentence, word="unknown_url")
        elif path == "/livez":
            await answers.json(send, 200, "ok")
        else:
            await self._passage(scope, receive, send)

    async def _infer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, path: str) -> None:
        if scope["method"] != "POST":
            await self._wrong_method(scope, send, inference=True)
            return
        key = await self._key(scope, send)
        if key is None:
            return
        await self._inference(path, key, scope["headers"], request_id(scope["headers"]), receive, send)

    async def _key(self, scope: MutableMapping[str, Any], send: Send) -> Key | None:
        """Who asks; None when that was answered with an error."""
        try:
            return self._access.key(scope["headers"])
        except Unauthenticated as error:
            sentence = f"{error.message}; send Authorization: Bearer <key>"
            await answers.error(send, Code.UNAUTHENTICATED, sentence, headers=[(b"www-authenticate", b"Bearer")])
        except Unavailable as error:
            await answers.error(send, Code.UNAVAILABLE, error.message, retry_after=1)
        return None

    async def _models(self, scope: MutableMapping[str, Any], send: Send, name: str) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            await self._wrong_method(scope, send, inference=False)
            return
        key = await self._key(scope, send)
        if key is None:
            return
        index = self._access.index
        if not name:
            found = [_shown(self._access, key, model) for model in usable_models(index, key)]
            await answers.json(send, 200, {"object": "list", "data": found})
            return
        model = find_model(index, key, name)
        if model is None:
            await answers.error(send, Code.NOT_FOUND, unknown_model(name))
            return
        await answers.json(send, 200, _shown(self._access, key, model))

    async def _wrong_method(self, scope: MutableMapping[str, Any], send: Send, *, inference: bool) -> None:
        allow = _ALLOW[inference]
        if scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": [allow]})
            await send({"type": "http.response.body", "body": b""})
            return
        sentence = f"{scope['method']} is not a method of {scope['path']}; use {allow[1].decode()}"
        await answers.error(send, Code.UNIMPLEMENTED, sentence, headers=[allow])


def request_id(headers: answers.Headers) -> bytes:
    """The client's own id when it is a harmless one, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value
    return b"%b%08x" % (_PROCESS, next(_NUMBERS))


def _shown(access: Access, key: Key, model: Model) -> dict[str, Any]:
    name = shown_name(access.index, key, model)
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": model.namespace,
        "ready": bool(model.endpoints),
    }
