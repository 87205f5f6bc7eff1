"""Asking an engine whether it is healthy: only a good answer in time is one."""

import asyncio
import contextlib

import pytest

from services.deployer.domain.running import Place
from services.deployer.drivers.engine_http import HttpProber


async def asked(answer: bytes | None, path: str | None = "/health", *, timeout: float = 20) -> tuple[str, list[bytes]]:
    """What the prober says of a server that answers so (None: never)."""
    heard: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(2000))
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        place = Place(host="127.0.0.1", address="127.0.0.1", port=port, path="/r/u")
        told = await HttpProber().answers(place, path, timeout)
        await over.wait()
        return told, heard


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.0 302 Found\r\n\r\n", ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP 503"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP 404"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP answer"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP answer"),
        (b"", "no HTTP answer"),
        (b"x" * 10_000, "no HTTP answer"),
    ],
)
async def test_its_status_decides(answer, why):
    told, heard = await asked(answer)

    assert told == why
    assert heard[0].startswith(b"GET /r/u/health HTTP/1.1\r\n")


async def test_silence_is_no_answer():
    told, _ = await asked(None, timeout=0.1)

    assert told == "no answer within 0.1 s"


async def test_without_a_path_an_open_port_is_enough():
    assert (await asked(b"", None))[0] == ""


async def test_a_closed_port_says_so():
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()

    told = await HttpProber().answers(Place(host="127.0.0.1", address="127.0.0.1", port=port), "/health", 20)

    assert told.startswith(f"port {port}: ")
