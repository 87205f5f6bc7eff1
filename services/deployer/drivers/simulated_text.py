"""What the simulated engine says: deterministic words, in the shapes of the OpenAI API.

Pure. Read next: simulated_engine.py.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_SENTENCE = (
    "the model answers with words that follow from the prompt alone so a test can tell what to expect and a load "
    "generator can count tokens without any weights being there at all each word is one token of the simulated engine "
    "which has no opinion no memory beyond its prefix cache and no power bill"
)
WORDS = _SENTENCE.split()
DIMENSIONS = 64
DEFAULT_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, read and checked."""

    model: str
    prompts: tuple[str, ...]
    chat: bool
    count: int = DEFAULT_TOKENS
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    tokens: int = field(default=0)
    """Of all prompts."""


def words(prompt: str, count: int, choice: int = 0) -> Iterator[str]:
    """The answer, word by word; each but the first begins with a space."""
    seed = zlib.crc32(prompt.encode(errors="surrogatepass")) + choice * 17
    for position in range(count):
        word = WORDS[(seed + position * (1 + seed % 7)) % len(WORDS)]
        yield word if position == 0 else f" {word}"


def chat_prompt(messages: list[Mapping[str, Any]]) -> str:
    """Messages as one prompt; parts that are not text count as their type."""
    return "\n".join(f"{message.get('role', '')}: {_content(message.get('content'))}" for message in messages)


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(part.get("text", part.get("type", ""))) for part in content if isinstance(part, dict))
    return ""


def embedding(text: str) -> list[float]:
    """A unit vector that only depends on the text."""
    seed = zlib.crc32(text.encode(errors="surrogatepass"))
    raw = [((seed * (position * 2654435761 + 1)) % 2001 - 1000) / 1000 for position in range(DIMENSIONS)]
    length = sum(value * value for value in raw) ** 0.5 or 1.0
    return [value / length for value in raw]


def base64_embedding(text: str) -> str:
    """The same as little-endian float32, base64: what the OpenAI client asks for."""
    return base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *embedding(text))).decode()


def usage(ask: Ask, completion: int, cached: int) -> dict[str, Any]:
    """The usage object."""
    return {
        "prompt_tokens": ask.tokens,
        "completion_tokens": completion,
        "total_tokens": ask.tokens + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def completion(ask: Ask, identity: str, created: int, cached: int) -> dict[str, Any]:
    """A whole answer."""
    choices, total = [], 0
    for index, (prompt, choice) in enumerate(_choices(ask)):
        text = "".join(words(prompt, ask.count, choice))
        total += ask.count
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if ask.chat else {"text": text}
        choices.append({"index": index, **said, "logprobs": None, "finish_reason": "length"})
    kind = "chat.completion" if ask.chat else "text_completion"
    return {
        "id": identity,
        "object": kind,
        "created": created,
        "model": ask.model,
        "choices": choices,
        "usage": usage(ask, total, cached),
    }


def _choices(ask: Ask) -> Iterator[tuple[str, int]]:
    return ((prompt, choice) for prompt in ask.prompts for choice in range(ask.choices))


class Frames:
    """The server-sent events of one streamed answer; the constant parts are built once."""

    def __init__(self, ask: Ask, identity: str, created: int) -> None:
        self._ask = ask
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        self._head = (
            f'data: {{"id":"{identity}","object":"{kind}","created":{created},"model":{_quoted(ask.model)},"choices":['
        )
        self._parts = [words(prompt, ask.count, choice) for prompt, choice in _choices(ask)]

    def first(self) -> bytes:
        """Roles, for chats."""
        if not self._ask.chat:
            return b""
        frames = (
            self._frame(f'{{"index":{i},"delta":{{"role":"assistant","content":""}},"finish_reason":null}}')
            for i in self._indexes()
        )
        return "".join(frames).encode()

    def tokens(self) -> Iterator[bytes]:
        """One item for every step: the next word of each choice."""
        for step in zip(*self._parts, strict=True):
            yield "".join(self._frame(self._word(index, word)) for index, word in enumerate(step)).encode()

    def last(self, cached: int) -> bytes:
        """Finish reasons, usage when it was asked for, and the end."""
        empty = '"delta":{}' if self._ask.chat else '"text":""'
        frames = [self._frame(f'{{"index":{i},{empty},"finish_reason":"length"}}') for i in self._indexes()]
        if self._ask.include_usage:
            import json

            told = usage(self._ask, self._ask.count * len(self._parts), cached)
            frames.append(f'{self._head}],"usage":{json.dumps(told)}}}\n\n')
        return ("".join(frames) + "data: [DONE]\n\n").encode()

    def _indexes(self) -> range:
        return range(len(self._parts))

    def _word(self, index: int, word: str) -> str:
        said = f'"delta":{{"content":"{word}"}}' if self._ask.chat else f'"text":"{word}"'
        return f'{{"index":{index},{said},"finish_reason":null}}'

    def _frame(self, choice: str) -> str:
        return f"{self._head}{choice}]}}\n\n"


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)
