"""The plan: which processes a stack has, in which order they start and stop, how one sees that each is ready.

Written to `run/plan.json` by `up`, read by the supervisor. Standard library only. Read next: gpubus/supervisor.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpubus.datadir import DataDir, read_json, write_json

ReadyBy = Literal["http", "nats", "redis", "exit", "start"]

STOP_PODS, STOP_SERVICES, STOP_SERVERS = 0, 1, 2
"""Stages of `down`: who stops Pods, then everybody who needs the servers, then the servers."""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process of the stack."""

    name: str
    argv: list[str]
    ready_by: ReadyBy = "http"
    """http: `/readyz` on `port`; nats, redis: the server greets on `port`; exit: ended with 0 (runs once); start: at once."""
    port: int = 0
    after: list[str] = field(default_factory=list)
    """Names that must be ready before the first start; restarts do not wait."""
    stage: int = STOP_SERVICES
    repair: list[str] = field(default_factory=list)
    """Run when the process refused to start (ended by itself, not by a signal, before it was ready); its lines are notes."""
    own: dict[str, str] = field(default_factory=dict)
    """Settings of this one process beside its env file, which a second copy shares: its name and health port."""
    patience: float = 20.0
    """Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class StackPlan:
    """All of them, in start order."""

    processes: list[ProcessPlan]
    give_up: int = 5
    """Ends of one process before the stack was ever ready, after which starting is given up."""

    def names(self) -> list[str]:
        """In start order."""
        return [process.name for process in self.processes]

    def write(self, where: DataDir) -> None:
        """Leave it for the supervisor."""
        write_json(where.plan, asdict(self))


def load(where: DataDir) -> StackPlan:
    """Read what `write` left; a missing or torn plan is an empty one."""
    body = read_json(where.plan)
    return StackPlan([_process(entry) for entry in body.get("processes", ())], int(body.get("give_up", 5)))


def _process(entry: dict[str, Any]) -> ProcessPlan:
    known = ProcessPlan.__dataclass_fields__
    return ProcessPlan(**{name: value for name, value in entry.items() if name in known})


def env_text(settings: dict[str, str]) -> str:
    """An env file for `env $(cat FILE) python -m ...`: one NAME=value a line; a value with white space cannot be said."""
    bad = [name for name, value in settings.items() if any(ch.isspace() for ch in value)]
    if bad:
        message = f"settings with white space in them: {', '.join(bad)}"
        raise ValueError(message)
    return "".join(f"{name}={value}\n" for name, value in sorted(settings.items()))


def python(*words: str | Path) -> Sequence[str]:
    """A command line for one of our own modules, with this interpreter."""
    import sys

    return [sys.executable, "-m", *map(str, words)]
