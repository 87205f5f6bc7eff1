"""The demo's ear on the bus: facts and delivery progress, from a thread of its own into a queue.

Must not miss the first fact: it listens before any service starts. Read next: gpubus/demo/story.py.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubus.bus import admin_bus
from gpubus.facts import FactLine, read
from gpubus.refusal import Refusal

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of a running delivery."""

    done: int
    total: int


Heard = FactLine | Progress


class Witness:
    """Listens from `begin` to `end`."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._heard: queue.Queue[Heard] = queue.Queue()
        self._listening = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def begin(self) -> None:
        """Start, and return once the server knows.

        Raises:
            Refusal: NATS does not answer.
        """
        self._thread.start()
        if not self._listening.wait(_PATIENCE) or self._failure:
            raise Refusal(self._failure or "NATS did not take the demo's subscription in time.")

    def next(self, seconds: float) -> Heard | None:
        """What was heard next; None when nothing was for that long."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """Stop listening."""
        if self._loop is not None and self._done is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            asyncio.run(self._listen())
        except Refusal as refusal:
            self._failure = refusal.sentence
            self._listening.set()

    async def _listen(self) -> None:
        from shared import subjects
        from shared.queries import ModelProgress

        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()

        async def happened(message: Msg) -> None:
            line = read(message.data)
            if line is not None:
                self._heard.put(line)

        def moved(sample: ModelProgress) -> None:
            self._heard.put(Progress(sample.downloaded_bytes, sample.size_bytes))

        async with admin_bus(self._data_dir) as bus:
            await bus.listen(subjects.of_class("evt"), happened)
            await bus.on_telemetry(ModelProgress, moved)
            self._listening.set()
            await self._done.wait()
