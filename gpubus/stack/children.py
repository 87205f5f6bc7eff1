"""One supervised process: start, readiness, end, back-off, repair. A small state machine on the monotonic clock.

Standard library only. Must not decide about the stack. Read next: gpubus/supervisor.py.
"""

from __future__ import annotations

import signal
import subprocess
from enum import Enum
from typing import Any

from gpubus.datadir import DataDir
from gpubus.environment import inherited, parse
from gpubus.procs import identity
from gpubus.stack.plan import ProcessPlan
from gpubus.stack.probes import answers
from shared.clock import Clock, rfc3339

FIRST_BACKOFF, LAST_BACKOFF = 0.2, 10.0
HEALTHY_AFTER, HEALTHY_BACKOFFS = 30.0, 5
"""Seconds it ran, or times its next pause, after which an end is no crash loop: a kill -9 now and then costs no waiting."""


class State(Enum):
    """Where a process is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "restarting"
    DONE = "done"


class Child:
    """One process of the plan and, while it runs, its pid."""

    def __init__(self, plan: ProcessPlan, where: DataDir, clock: Clock, kept: tuple[int, ...]) -> None:
        self.plan = plan
        self.state = State.WAITING
        self.ends = 0
        self.starts = 0
        self.last_exit = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._where = where
        self._clock = clock
        self._kept = kept
        self._identity = ""
        self._since = ""
        self._started = 0.0
        self._due = 0.0
        self._backoff = FIRST_BACKOFF
        self._was_ready = False
        self._notes: list[str] = []

    def start(self) -> None:
        """Spawn it in a session of its own: a Ctrl-C in the caller's terminal is not for it."""
        env = inherited() | self._settings() | self.plan.own
        path = self._where.log(self.plan.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("ab") as log:
                self.process = subprocess.Popen(
                    self.plan.argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    cwd=self._where.root, pass_fds=self._kept, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self.last_exit = f"cannot be started: {error}"
            self._later()
            return
        self._identity = identity(self.process.pid)
        self._since = rfc3339(self._clock.now())
        self._started = self._clock.monotonic()
        self.starts += 1
        self._was_ready = self.plan.ready_by == "start"
        self.state = State.READY if self._was_ready else State.STARTING

    def _settings(self) -> dict[str, str]:
        try:
            return parse(self._where.env_file(self.plan.name).read_text())
        except FileNotFoundError:
            return {}

    def probe(self) -> bool:
        """Ask once whether it is ready; True when it has just become so."""
        if not answers(self.plan, self._where):
            return False
        self.state = State.READY
        self._was_ready = True
        return True

    def reap(self) -> None:
        """Notice that it ended."""
        if self.process is None or self.process.poll() is None:
            return
        code = self.process.returncode
        self.process = None
        self._identity = ""
        self.last_exit = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if self.plan.ready_by == "exit" and code == 0:
            self.state = State.DONE
            return
        if code > 0 and not self._was_ready and self.plan.repair:
            self._repair()
        self._later()

    def _repair(self) -> None:
        """Let the repair command look at what the process refused; its output lines are told to the user."""
        told = subprocess.run(
            self.plan.repair, env=inherited(), capture_output=True, text=True, check=False, cwd=self._where.root
        )
        self._notes += told.stdout.splitlines()
        if told.returncode == 0 and told.stdout:
            self.ends -= 1

    def _later(self) -> None:
        enough = min(HEALTHY_AFTER, HEALTHY_BACKOFFS * self._backoff)
        healthy = self._was_ready and self._clock.monotonic() - self._started >= enough
        self._backoff = FIRST_BACKOFF if healthy else self._backoff
        self.ends = 1 if healthy else self.ends + 1
        self._due = self._clock.monotonic() + self._backoff
        self._backoff = min(LAST_BACKOFF, self._backoff * 2)
        self.state = State.BACKOFF

    def due(self) -> bool:
        """Whether the back-off is over."""
        return self._clock.monotonic() >= self._due

    def seconds_until_due(self) -> float:
        """What is left of the back-off."""
        return max(0.0, self._due - self._clock.monotonic())

    def take_notes(self) -> list[str]:
        """Sentences for the user since last asked."""
        notes, self._notes = self._notes, []
        return notes

    def describe(self) -> dict[str, Any]:
        """For state.json."""
        return {
            "pid": self.process.pid if self.process else 0,
            "identity": self._identity,
            "state": self.state.value,
            "since": self._since,
            "starts": self.starts,
            "last_exit": self.last_exit,
            "port": self.plan.port,
            "ready_by": self.plan.ready_by,
            "stage": self.plan.stage,
        }

    @property
    def name(self) -> str:
        """For shutdown."""
        return self.plan.name

    def alive(self) -> bool:
        """Whether it runs now."""
        self.reap_quietly()
        return self.process is not None

    def reap_quietly(self) -> None:
        """Collect the exit without planning a restart: the stack is ending."""
        if self.process is not None and self.process.poll() is not None:
            code = self.process.returncode
            self.last_exit = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self.process = None
            self._identity = ""
            self.state = State.DONE

    def send(self, number: signal.Signals) -> None:
        """Signal it."""
        if self.process is not None:
            self.process.send_signal(number)
