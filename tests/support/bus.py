"""Looking at a NATS server from outside, and processes of ours as children, for tests of the bus.

Read next: tests/integration/bus/conftest.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import orjson

from tests.support.servers import NatsServer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kept:
    """One message as a stream keeps it."""

    sequence: int
    subject: str
    headers: dict[str, str]
    data: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        """Its CloudEvents envelope."""
        return orjson.loads(self.data)


async def kept(server: NatsServer, stream: str) -> list[Kept]:
    """All messages of a stream, oldest first; empty when it does not exist."""
    client = await nats.connect(server.url, allow_reconnect=False)
    manager = client.jsm()
    found: list[Kept] = []
    try:
        state = (await manager.stream_info(stream)).state
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            try:
                raw = await manager.get_msg(stream, seq=sequence)
            except nats.js.errors.NotFoundError:
                continue
            found.append(Kept(sequence, raw.subject or "", dict(raw.headers or {}), raw.data or b""))
    except nats.js.errors.NotFoundError:
        return []
    finally:
        await client.close()
    return found


async def consumer(server: NatsServer, stream: str, durable: str) -> Any:
    """What the server says about a durable."""
    client = await nats.connect(server.url, allow_reconnect=False)
    try:
        return await client.jsm().consumer_info(stream, durable)
    finally:
        await client.close()


async def forget_everything(server: NatsServer) -> None:
    """Delete every stream."""
    client = await nats.connect(server.url, allow_reconnect=False)
    try:
        for info in await client.jsm().streams_info():
            await client.jsm().delete_stream(str(info.config.name))
    finally:
        await client.close()


class Child:
    """One of our processes, with its log in a file."""

    def __init__(self, log: Path, *arguments: str, **variables: str) -> None:
        self.log = log
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GPUBUS_")}
        environment |= {f"GPUBUS_{key.upper()}": value for key, value in variables.items()}
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, env=environment, stderr=sink, stdout=subprocess.PIPE
            )

    def lines(self) -> list[dict[str, Any]]:
        """Its log so far."""
        return [orjson.loads(line) for line in self.log.read_bytes().splitlines() if line.startswith(b"{")]

    def said(self, event: str) -> list[dict[str, Any]]:
        """Log lines of one event."""
        return [line for line in self.lines() if line["event"] == event]

    def send(self, number: signal.Signals) -> None:
        """Signal it."""
        self.process.send_signal(number)

    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def wait(self, timeout: float = 15) -> int:
        """Its exit status."""
        return self.process.wait(timeout)

    def close(self) -> None:
        """Kill it if it runs."""
        if self.running():
            self.process.kill()
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(10)
        if self.process.stdout:
            self.process.stdout.close()
