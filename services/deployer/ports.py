"""What the node part needs from outside: something that runs Pods, and something that asks an engine how it is.

Must not contain logic. Read next: drivers/process.py, drivers/simulated.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one start of a Pod will listen, and what proves that it is that one."""

    host: str
    """What the engine binds."""
    address: str
    """What others connect to."""
    port: int
    path: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start of one Pod."""

    uid: str
    run: int
    """Rises with every start of this Pod."""
    place: Place
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    working_dir: str = ""
    grace_seconds: int = 30
    engine: str = ""
    served_model: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)
    """What `adopt` gives back after the agent was started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a start ended."""

    exit_code: int | None = None
    """None when nobody saw it."""
    signal: int | None = None
    lines: tuple[str, ...] = ()
    """The end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is there of one Pod now."""

    running: bool = False
    """Something of it may run: nothing else may be started in its place."""
    run: int = 0
    """The start that this is about; 0: it was never started."""
    started_unix: int | None = None
    place: Place | None = None
    ready: bool | None = None
    """None: must be asked with a probe."""
    ended: Ended | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """A piece of a log."""

    text: str
    next_offset: int
    ended: bool = False
    """Nothing will be added."""


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
