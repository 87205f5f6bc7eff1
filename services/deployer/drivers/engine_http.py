"""Asks engines over HTTP whether they are healthy, with nothing but asyncio.

Must not judge the answer beyond its status. Read next: ../agent/keeper.py.
"""

from __future__ import annotations

import asyncio

from services.deployer.domain.running import Place

_HEAD_LIMIT = 4096


class HttpProber:
    """One short connection a question."""

    async def answers(self, place: Place, path: str | None, timeout: float) -> str:
        """See the port."""
        try:
            async with asyncio.timeout(timeout):
                return await _ask(place, path)
        except TimeoutError:
            return f"no answer within {timeout:g} s"
        except OSError as error:
            return f"port {place.port}: {error.strerror or type(error).__name__}"


async def _ask(place: Place, path: str | None) -> str:
    reader, writer = await asyncio.open_connection(place.address, place.port, limit=_HEAD_LIMIT)
    try:
        if path is None:
            return ""
        target = f"{place.path}{path}"
        host = f"{place.address}:{place.port}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: */*\r\n\r\n".encode())
        line = await reader.readline()
    except ValueError:
        return "no HTTP answer"
    finally:
        writer.close()
    words = line.decode("latin-1").split()
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
        return "no HTTP answer"
    return "" if 200 <= int(words[1]) < 400 else f"HTTP {words[1]}"
