"""The line between the gateway process and its workers: length-prefixed msgpack on a unix socket.

Read next: ../loops.py (one end), ../dataplane/feed.py (the other).
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

_LENGTH = 4
_LONGEST_FRAME = 64 << 20


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """One message.

    Raises:
        ConnectionError: the other side is gone, or does not speak this.
    """
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH))
        if length > _LONGEST_FRAME:
            raise ConnectionError("a frame of the feed is too long")
        return msgspec.msgpack.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ValueError) as error:
        raise ConnectionError("the feed ended") from error


def frame(*message: Any) -> bytes:
    """One message as it travels."""
    raw = msgspec.msgpack.encode(message)
    return len(raw).to_bytes(_LENGTH) + raw
