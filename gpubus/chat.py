"""`gpubus chat MODEL`: talk to a served model through the gateway, word by word as it comes.

Must not store what is said. Read next: gpubus/rest.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from gpubus.refusal import Refusal
from gpubus.rest import Api, connect, sentence_of
from gpubus.terminal import paint

_DATA = b"data:"
_DONE = b"[DONE]"


def chat(model: str, prompt: str, system: str, max_tokens: int, data_dir: str) -> None:
    """Answer one prompt, or hold a conversation on a terminal (and answer standard input where there is none).

    Raises:
        Refusal: no such model, or no answer.
    """
    api = connect(data_dir)
    said: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    if prompt or not sys.stdin.isatty():
        text = prompt or sys.stdin.read().strip()
        if not text:
            raise Refusal("Say something: -p PROMPT, or text on standard input.")
        _turn(api, model, [*said, {"role": "user", "content": text}], max_tokens)
        return
    print(paint(f"{model}; an empty line or Ctrl-D ends", "dim"))
    while text := _ask():
        said.append({"role": "user", "content": text})
        said.append({"role": "assistant", "content": _turn(api, model, said, max_tokens)})


def _ask() -> str:
    try:
        return input(paint("> ", "cyan")).strip()
    except EOFError:
        return ""


def _turn(api: Api, model: str, said: list[dict[str, str]], max_tokens: int) -> str:
    whole = ""
    for piece in stream(api, model, said, max_tokens):
        print(piece, end="", flush=True)
        whole += piece
    print(flush=True)
    return whole


def stream(api: Api, model: str, said: list[dict[str, str]], max_tokens: int = 0) -> Iterator[str]:
    """The answer's pieces.

    Raises:
        Refusal: the gateway or the engine refused, also in the middle of the stream.
    """
    body: dict[str, Any] = {"model": model, "messages": said, "stream": True}
    if max_tokens:
        body["max_tokens"] = max_tokens
    with api.open("POST", "/v1/chat/completions", body=body, accept="text/event-stream", timeout=300.0) as reply:
        if reply.status >= 400:
            raise Refusal(sentence_of(reply.status, _json(reply.read())))
        while line := reply.readline():
            payload = line.strip().removeprefix(_DATA).strip()
            if not line.startswith(_DATA) or payload == _DONE:
                continue
            yield from _pieces(_json(payload))


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return {}


def _pieces(chunk: Any) -> Iterator[str]:
    if not isinstance(chunk, dict):
        return
    if chunk.get("error"):
        raise Refusal(f"\nThe answer broke off: {sentence_of(500, chunk)}")
    for choice in chunk.get("choices") or ():
        text = (choice.get("delta") or {}).get("content")
        if text:
            yield str(text)
