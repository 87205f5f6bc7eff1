"""What a request to /v1 must look like before it is sent on; anything else is the engine's to judge. Pure.

Read next: services/gateway/dataplane/asgi.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

_MAX_STOPS = 4
_MAX_INPUTS = 2048
# "model" with at least one letter escaped.
_ESCAPED_MODEL = re.compile(
    rb'"(?!model")' + b"".join(rb"(?:%c|\\u00%02x)" % (letter, letter) for letter in b"model") + rb'"\s*:',
    re.IGNORECASE,
)


@dataclass(eq=False)
class BadRequest(Exception):  # noqa: N818 - an answer, not an error of ours
    """A 400 that names the parameter."""

    message: str
    param: str | None = None

    def __str__(self) -> str:
        return self.message


def _too_deep() -> BadRequest:
    return BadRequest("the body is nested too deeply")


def decode(raw: bytes) -> dict[str, Any]:
    """The body.

    Raises:
        BadRequest: not a JSON object, or `model` is given twice.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    # What is checked here must be what the engine reads: parsers differ in which of two they take.
    written = raw.count(b'"model"') + (len(_ESCAPED_MODEL.findall(raw)) if b"\\u00" in raw else 0)
    if written > 1 and _twice(raw):
        raise BadRequest("model is given twice", "model")
    return body


def _twice(raw: bytes) -> bool:
    import json

    found: list[bool] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found[:] = [sum(name == "model" for name, _ in items) > 1]
        return {}

    try:
        # Numbers are not looked at: Python refuses to read very long ones.
        json.loads(raw, object_pairs_hook=pairs, parse_int=len, parse_float=len)
    except RecursionError:
        raise _too_deep() from None
    return found[0]  # the outermost object is read last


def rewritten(raw: bytes, model: str, *, ask_usage: bool) -> bytes:
    """The body with another model name, and asking for usage: every other value stays as the client wrote it.

    Raises:
        BadRequest: nested too deeply.
    """
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        fields["model"] = msgspec.Raw(orjson.dumps(model))
        if ask_usage:
            given = fields.get("stream_options")
            options = msgspec.json.decode(given, type=dict[str, msgspec.Raw] | None) if given else None
            asked = {**(options or {}), "include_usage": msgspec.Raw(b"true")}
            fields["stream_options"] = msgspec.Raw(msgspec.json.encode(asked))
        return msgspec.json.encode(fields)
    except RecursionError:
        raise _too_deep() from None


def check(path: str, body: Mapping[str, Any]) -> str:
    """The model's name, when the request may be sent on.

    Raises:
        BadRequest: a parameter is missing or of the wrong type.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is required: the name of a served model, see /v1/models", "model")
    _CHECKS[path](body)
    for name in ("max_tokens", "max_completion_tokens", "n"):
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise BadRequest(f"{name} must be a whole number of at least 1", name)
    _check_stream(body)
    _check_stop(body.get("stop"))
    return model


def _check_stream(body: Mapping[str, Any]) -> None:
    stream, options = body.get("stream"), body.get("stream_options")
    if stream is not None and not isinstance(stream, bool):
        raise BadRequest("stream must be true or false", "stream")
    if options is None:
        return
    if not stream:
        raise BadRequest("stream_options needs stream: true", "stream_options")
    if not isinstance(options, dict) or not isinstance(options.get("include_usage", False), bool | None):
        raise BadRequest("stream_options.include_usage must be true or false", "stream_options")


def _check_stop(stop: Any) -> None:
    if stop is None or (isinstance(stop, str) and stop):
        return
    good = isinstance(stop, list) and len(stop) <= _MAX_STOPS and all(isinstance(s, str) and s for s in stop)
    if not good:
        raise BadRequest(f"stop must be a text or up to {_MAX_STOPS} texts, none of them empty", "stop")


def _check_chat(body: Mapping[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list with at least one message", "messages")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise BadRequest("every message must be an object with a role", "messages")


def _check_completion(body: Mapping[str, Any]) -> None:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt must be a text, or a list of texts or tokens", "prompt")
    flat = [token for item in prompt for token in (item if isinstance(item, list) else [item])]
    if any(
        isinstance(token, bool) or not isinstance(token, int | str) or (isinstance(token, int) and token < 0)
        for token in flat
    ):
        raise BadRequest("prompt holds something that is neither a text nor a token id", "prompt")


def _check_embeddings(body: Mapping[str, Any]) -> None:
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    if not isinstance(given, list) or not given:
        raise BadRequest("input must be a text, or a list of texts or tokens", "input")
    if len(given) > _MAX_INPUTS:
        raise BadRequest(f"input holds {len(given)} items, at most {_MAX_INPUTS} are taken", "input")


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "/v1/chat/completions": _check_chat,
    "/v1/completions": _check_completion,
    "/v1/embeddings": _check_embeddings,
}
INFERENCE = frozenset(_CHECKS)
