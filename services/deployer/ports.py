"""What the node part needs from outside: something that runs Pods, and something that asks an engine how it is.

Must not contain logic. Read next: drivers/process.py, drivers/simulated.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from services.deployer.domain.running import Launch, LogPiece, Observation, Place


class Runtime(Protocol):
    """Runs Pods. Every method may be called again with the same effect."""

    name: str

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call back with the uid of a Pod that started, became ready or ended by itself."""
        ...

    def adopt(self) -> Mapping[str, Mapping[str, Any]]:
        """Uid -> last record of every Pod that an earlier agent left, running or not."""
        ...

    async def place(self, uid: str, fixed_port: int | None) -> Place:
        """Choose where the next start listens.

        Raises:
            Unavailable: no port is free.
        """
        ...

    async def start(self, launch: Launch) -> None:
        """Start it.

        Raises:
            FailedPrecondition: something of it still runs; nothing was started.
            Unavailable: the runtime cannot start anything now.
        """
        ...

    async def stop(self, uid: str, grace_seconds: float) -> None:
        """Ask it to end, for good; `observe` says when it has. Later calls only hasten it."""
        ...

    async def observe(self, uid: str) -> Observation:
        """What is there now."""
        ...

    async def record(self, uid: str, record: Mapping[str, Any]) -> None:
        """Replace what `adopt` gives back."""
        ...

    async def read_log(self, uid: str, *, offset: int, tail_lines: int, max_bytes: int, previous: bool) -> LogPiece:
        """A piece of its log: from `offset`, or (-1) the last lines.

        Raises:
            NotFound: there is no log of it here.
        """
        ...

    async def forget(self, uid: str) -> None:
        """Remove what is left of it; nothing while it runs."""
        ...


class Prober(Protocol):
    """Asks a running engine whether it can serve."""

    async def answers(self, place: Place, path: str | None, timeout: float) -> str:
        """Empty when a GET of `path` answers 2xx or 3xx within `timeout` seconds (None: when its port accepts); else why not."""
        ...
