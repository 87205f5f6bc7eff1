"""Usage out of answers: the `usage` of a body, and of the last frame of a stream. Pure.

A stream is forwarded as it comes, cut at frame borders; only a frame that tells usage is opened. Read next: openai.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

_BORDERS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_BORDER = re.compile(rb"(\r\n\r\n|\n\n|\r\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
# Engines that were asked for usage write `"usage": null` in every other chunk.
_TOLD = re.compile(rb'"usage"\s*:\s*\{')
_MAX_FRAME = 1 << 20
_END = b"[DONE]"


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

    __slots__ = ("_hide", "_tail", "ended", "frames", "usage")

    def __init__(self, *, hide: bool) -> None:
        self._hide = hide
        self._tail = b""
        self.ended = False
        """Whether the engine said that this is all."""
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
        return self._look(chunk) if chunk else b""

    def rest(self) -> bytes:
        """What is left when the stream ended."""
        tail, self._tail = self._tail, b""
        return self._look(tail) if tail else b""

    def _look(self, chunk: bytes) -> bytes:
        self.frames += (chunk.count(b"\ndata:") or chunk.count(b"\rdata:")) + chunk.startswith(b"data:")
        if _END in chunk and _data_of_last(chunk) == _END:
            self.ended = True
            self.frames -= 1
        if b'"usage"' in chunk and _TOLD.search(chunk):
            return self._open(chunk)
        return chunk

    def _open(self, chunk: bytes) -> bytes:
        parts = _BORDER.split(chunk)
        out: list[bytes] = []
        for place in range(0, len(parts), 2):
            frame, border = parts[place], b"".join(parts[place + 1 : place + 2])
            body = _loads(_data(frame)) if b'"usage"' in frame else None
            usage = read_usage(body)
            if body is not None and usage is not None:
                self.usage = usage
                if self._hide and not body.get("choices"):
                    continue
            out += (frame, border)
        return b"".join(out)

    @property
    def output_seen(self) -> int:
        """Tokens told, else frames counted: about one token each."""
        return self.usage.output_tokens if self.usage is not None else self.frames


def error_frame(message: str, kind: str, code: str) -> bytes:
    """The last frame of a stream that broke: clients raise it as the error that it is."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return b"data: %b\n\n" % orjson.dumps(body)


def _data(frame: bytes) -> bytes:
    """The data of one frame, whatever comments and other fields stand around it."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(frame) if line.startswith(b"data:")]
    return b"\n".join(lines)


def _data_of_last(chunk: bytes) -> bytes:
    frames = [frame for frame in _BORDER.split(chunk)[::2] if frame]
    return _data(frames[-1]).strip() if frames else b""


def _loads(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
