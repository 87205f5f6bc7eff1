"""One simulated node's place on the fleet's shared connection, which can be cut off as a real node can.

Cut off, it hears nothing and what it says goes nowhere, while what runs on it goes on. Must not know what the node says.
Read next: gpubus/fleet.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shared.bus.client import BusClient
from shared.clock import Clock
from shared.errors import Unavailable
from shared.messages.base import Message, Query, Report, Telemetry

Woken = Callable[[int], Awaitable[None] | None]


class NodeBus(BusClient):
    """A BusClient over somebody else's connection."""

    def __init__(self, shared: BusClient, node: str, clock: Clock) -> None:
        super().__init__(shared.connection, clock)
        self.node = node
        self.cut = False
        self._returned: list[Callable[[], Awaitable[None] | None]] = []

    @property
    def connected(self) -> bool:
        """See base."""
        return not self.cut and super().connected

    async def set_cut(self, *, cut: bool) -> None:
        """Cut the node off, or let it return; a return is a reconnect to its agents."""
        if cut == self.cut:
            return
        self.cut = cut
        if not cut:
            for callback in self._returned:
                waiting = callback()
                if waiting is not None:
                    await waiting

    def on_reconnect(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """See base."""
        self._returned.append(callback)
        super().on_reconnect(lambda: None if self.cut else callback())

    def on_wake(self, node: str, callback: Woken) -> asyncio.Future[None]:
        """See base."""
        return super().on_wake(node, lambda revision: None if self.cut else callback(revision))

    def answer(self, cls: type[Any], node: str, handler: Callable[[Any], Awaitable[Message]]) -> asyncio.Future[None]:
        """See base; cut off, it answers after nobody waits any more."""

        async def reachable(query: Any) -> Message:
            if self.cut:
                await asyncio.sleep(_NOBODY_WAITS_SECONDS)
                raise Unavailable(f"node {self.node} is cut off")
            return await handler(query)

        return super().answer(cls, node, reachable)

    async def ask(self, query: Query, timeout: float = 2.0) -> Any:
        """See base."""
        self._require()
        return await super().ask(query, timeout)

    async def report(self, report: Report, timeout: float = 5.0) -> None:
        """See base."""
        self._require()
        await super().report(report, timeout)

    async def tell(self, *telemetry: Telemetry) -> None:
        """See base."""
        if not self.cut:
            await super().tell(*telemetry)

    def _require(self) -> None:
        if self.cut:
            raise Unavailable(f"node {self.node} is cut off")


_NOBODY_WAITS_SECONDS = 10.0
