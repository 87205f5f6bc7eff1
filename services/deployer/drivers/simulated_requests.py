"""Reads requests to the simulated engine as strictly as the real ones do.

Pure. Read next: simulated_engine.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from services.deployer.drivers.simulated_cost import tokens_of
from services.deployer.drivers.simulated_text import DEFAULT_TOKENS, Ask, chat_prompt

MOST_TOKENS = 100_000
MOST_CHOICES = 128


class BadRequest(Exception):  # noqa: N818 - what the client is told
    """What is wrong and which parameter; `status` is HTTP's."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code

    def body(self) -> bytes:
        """As OpenAI says it."""
        kind = "NotFoundError" if self.status == 404 else "invalid_request_error"
        told = {"message": str(self), "type": kind, "param": self.param, "code": self.code or self.status}
        return orjson.dumps({"error": told})


def decode(body: bytes) -> Mapping[str, Any]:
    """A JSON object."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise BadRequest("the body is not a JSON object")
    return decoded


def check_model(body: Mapping[str, Any], served: str) -> str:
    """The model that is asked for must be the one that is served."""
    model = body.get("model", served)
    if model != served:
        raise BadRequest(f"The model `{model}` does not exist.", "model", 404, "model_not_found")
    return served


def ask_of(body: Mapping[str, Any], served: str, *, chat: bool) -> Ask:
    """One completion request."""
    model = check_model(body, served)
    prompts = (_chat(body),) if chat else _prompts(body)
    stream = body.get("stream") or False
    options = body.get("stream_options") or {}
    if not isinstance(stream, bool):
        raise BadRequest("must be true or false", "stream")
    if options and not stream:
        raise BadRequest("only with stream", "stream_options")
    if not isinstance(options, dict) or not isinstance(options.get("include_usage", False), bool):
        raise BadRequest("include_usage must be true or false", "stream_options")
    return Ask(
        model=model,
        prompts=prompts,
        chat=chat,
        count=_number(body, ("max_completion_tokens", "max_tokens"), DEFAULT_TOKENS, MOST_TOKENS),
        choices=_number(body, ("n",), 1, MOST_CHOICES),
        stream=stream,
        include_usage=bool(options.get("include_usage")),
        tokens=sum(max(1, len(tokens_of(prompt))) for prompt in prompts),
    )


def inputs_of(body: Mapping[str, Any], served: str) -> tuple[list[str], bool]:
    """Texts to embed and whether they are wanted in base64."""
    check_model(body, served)
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if isinstance(texts, list) and texts and all(isinstance(token, int) for token in texts):
        texts = [texts]
    if not isinstance(texts, list) or not texts:
        raise BadRequest("must be a text, a list of texts, or tokens", "input")
    return [text if isinstance(text, str) else " ".join(map(str, text)) for text in texts], body.get(
        "encoding_format"
    ) == "base64"


def _chat(body: Mapping[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadRequest("must be a list of at least one message", "messages")
    return chat_prompt(messages)


def _prompts(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = body.get("prompt")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise BadRequest("must be a text, a list of texts, or tokens", "prompt")
    if all(isinstance(token, int) for token in texts):
        texts = [texts]
    if any(isinstance(item, list) and any(not isinstance(t, int) or t < 0 for t in item) for item in texts):
        raise BadRequest("token ids are numbers of 0 and above", "prompt")
    return tuple(item if isinstance(item, str) else " ".join(map(str, item)) for item in texts)


def _number(body: Mapping[str, Any], names: tuple[str, ...], default: int, most: int) -> int:
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise BadRequest(f"must be a whole number from 1 to {most}", name)
        return value
    return default
