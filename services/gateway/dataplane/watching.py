"""Notices that a client went, and cancels its work at the engine by closing that connection.

Read next: asgi.py.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from services.gateway.dataplane.answers import Receive
from services.gateway.dataplane.upstream import Connection

_PATIENCE_SECONDS = 0.05
"""Most answers are quicker; they are not worth a task."""


class Watch:
    """For the time of one exchange."""

    def __init__(self, receive: Receive, connection: Connection) -> None:
        self._receive = receive
        self._connection = connection
        self._task: asyncio.Future[None] | None = None
        self.gone = False

    def start(self) -> None:
        """From a moment on; the request's body must have been read."""
        self._connection.patience.begin(self, _PATIENCE_SECONDS)

    def late(self) -> None:
        """The answer takes its time."""
        self._task = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if not self._connection.done and self._connection.transport is not None:
            self._connection.transport.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.patience.end(self)
        if self._task is not None:
            self._task.cancel()
