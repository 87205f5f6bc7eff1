"""Usage out of answers: the `usage` of a body, and of the last frame of a stream. Pure.

A stream is forwarded as it comes, cut at frame borders; only a frame without choices is opened. Read next: openai.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

_BORDERS = (b"\n\n", b"\r\n\r\n")
_MAX_FRAME = 1 << 20


@dataclass(slots=True)
class Usage:
    """Tokens of one request, as the engine counted them."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0


def read_usage(body: Any) -> Usage | None:
    """From a decoded answer; None when the engine told none."""
    told = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(told, dict):
        return None
    details = told.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    whole = _count(told.get("prompt_tokens"))
    if "prompt_tokens" not in told:
        whole = _count(told.get("total_tokens"))
    return Usage(whole, _count(cached), _count(told.get("completion_tokens")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class StreamMeter:
    """Forwards frames and finds the usage in them; with `hide`, the frame that only tells usage is kept back."""

    __slots__ = ("_hide", "_tail", "frames", "usage")

    def __init__(self, *, hide: bool) -> None:
        self._hide = hide
        self._tail = b""
        self.frames = 0
        self.usage: Usage | None = None

    def feed(self, chunk: bytes) -> bytes:
        """What of the stream may go to the client now."""
        if self._tail:
            chunk, self._tail = self._tail + chunk, b""
        if not chunk.endswith(b"\n\n"):
            end = max(chunk.rfind(border) + len(border) if border in chunk else 0 for border in _BORDERS)
            if len(chunk) - end > _MAX_FRAME:
                return chunk  # no stream of frames: not ours to hold
            chunk, self._tail = chunk[:end], chunk[end:]
        self.frames += chunk.count(b"\n\n") or chunk.count(b"\r\n\r\n")
        if b'"usage"' not in chunk or b"prompt_tokens" not in chunk:
            return chunk
        return self._open(chunk)

    def rest(self) -> bytes:
        """What is left when the stream ended."""
        tail, self._tail = self._tail, b""
        return self._open(tail) if tail else b""

    def _open(self, chunk: bytes) -> bytes:
        border = b"\r\n\r\n" if b"\r\n\r\n" in chunk else b"\n\n"
        out = []
        for frame in chunk.split(border):
            body = _data(frame)
            usage = read_usage(body)
            if usage is not None:
                self.usage = usage
                if self._hide and not body.get("choices"):
                    continue
            out.append(frame)
        return border.join(out)

    @property
    def output_seen(self) -> int:
        """Tokens told, else frames counted: about one token each."""
        return self.usage.output_tokens if self.usage is not None else self.frames


def _data(frame: bytes) -> Any:
    if not frame.startswith(b"data:") or b'"usage"' not in frame:
        return None
    try:
        return orjson.loads(frame[5:])
    except orjson.JSONDecodeError:
        return None
