"""Short tasks of one connection: how many run at once, and the end of them.

Must not hide errors: what is spawned here answers or logs its own. Read next: shared/bus/client.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskPool:
    """Strong references to running tasks, so that none is collected, and a bound on their number."""

    def __init__(self, limit: int = 256) -> None:
        self._room = asyncio.Semaphore(limit)
        self._running: set[asyncio.Task[None]] = set()

    async def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work; waits while the limit is reached, which slows the sender down."""
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._run(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drain(self, timeout: float) -> None:
        """Wait for what runs, then cancel the rest. `timeout` is seconds."""
        running = list(self._running)
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._room.release()
