"""One start of one Pod: where it listens, what it is told, what is there of it, how it ended.

Pure data. Read next: lifecycle.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
