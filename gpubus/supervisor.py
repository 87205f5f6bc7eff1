"""The supervisor: starts the planned processes in order, restarts what ends, stops all in order on SIGTERM.

Run as `python -m gpubus.supervisor DATA_DIR [LOCK_FD ...]`. Standard library only and no event loop: it idles in every
stack, so its memory counts. Must not know what the processes do. Killed, it leaves them running.
Read next: gpubus/stack/children.py (one process's life), gpubus/stack/shutdown.py (the order of the end).
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from gpubus.datadir import DataDir, write_json
from gpubus.procs import identity
from gpubus.stack.children import Child, State
from gpubus.stack.logs import rotate
from gpubus.stack.plan import StackPlan, load
from gpubus.stack.shutdown import stop_stack
from shared.clock import SystemClock, rfc3339

_PROBE_EVERY = 0.05
_LOOK_AFTER_LOGS = 60.0
_IDLE = 3600.0


class Supervisor:
    """One stack's life, from the first start to an orderly end."""

    def __init__(self, where: DataDir, plan: StackPlan, kept: tuple[int, ...] = ()) -> None:
        self._where = where
        self._clock = SystemClock()
        self._plan = plan
        self._children = {p.name: Child(p, where, self._clock, kept) for p in plan.processes}
        self._notes: list[str] = []
        self._phase = "starting"
        self._reason = ""
        self._stop = False
        self._told: dict[str, Any] = {}
        self._next_logs = self._clock.monotonic() + _LOOK_AFTER_LOGS
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Until told to stop; 1 when starting was given up."""
        wake = self._listen_to_signals()
        try:
            while not self._stop:
                self._step()
                self._tell()
                for key, _ in self._selector.select(self._patience()):
                    os.read(key.fd, 512)
        finally:
            self._selector.unregister(wake)
        self._end()
        return 1 if self._reason else 0

    def _listen_to_signals(self) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        self._selector.register(reader, selectors.EVENT_READ)
        return reader

    def _told_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop = True

    def _step(self) -> None:
        for child in self._children.values():
            child.reap()
            self._notes += child.take_notes()
            if self._may_start(child):
                child.start()
            elif child.state is State.STARTING and child.probe() and child.starts > 1:
                self._run_again(child.plan.name)
        self._judge()
        if self._clock.monotonic() >= self._next_logs:
            self._next_logs = self._clock.monotonic() + _LOOK_AFTER_LOGS
            rotate(self._where)

    def _run_again(self, server: str) -> None:
        """A server came back, perhaps with an older store: what runs once after it runs again (declaring streams)."""
        for child in self._children.values():
            if child.state is State.DONE and server in child.plan.after:
                child.state = State.WAITING

    def _may_start(self, child: Child) -> bool:
        if child.state is State.WAITING:
            return all(self._ready(name) for name in child.plan.after)
        return child.state is State.BACKOFF and child.due()

    def _ready(self, name: str) -> bool:
        child = self._children.get(name)
        return child is None or child.state in {State.READY, State.DONE}

    def _judge(self) -> None:
        if self._phase != "starting":
            return
        if all(self._ready(name) for name in self._children):
            self._phase = "ready"
            return
        for child in self._children.values():
            if child.ends >= (2 if child.plan.ready_by in {"nats", "redis"} else self._plan.give_up):
                self._reason = f"{child.plan.name} ended {child.ends} times while starting ({child.last_exit})"
                self._phase = "failed"
                self._stop = True

    def _patience(self) -> float:
        if any(self._may_start(child) for child in self._children.values()):
            return 0.0
        states = {child.state for child in self._children.values()}
        if State.STARTING in states:
            return _PROBE_EVERY
        due = min((c.seconds_until_due() for c in self._children.values() if c.state is State.BACKOFF), default=_IDLE)
        return max(0.0, min(due, self._next_logs - self._clock.monotonic()))

    def _tell(self) -> None:
        """Write what changed: pids for everybody, state for `up`, `down` and `status`."""
        me = os.getpid()
        running = {c.plan.name: c.process for c in self._children.values() if c.process is not None}
        state = {
            "phase": self._phase,
            "reason": self._reason,
            "notes": self._notes,
            "supervisor": {"pid": me, "identity": identity(me)},
            "processes": {child.plan.name: child.describe() for child in self._children.values()},
        }
        if state == self._told:
            return
        before, self._told = self._told, state
        write_json(self._where.state, state)
        pids = {"supervisor": me, **{name: process.pid for name, process in running.items()}}
        if not before or pids != self._pids_of(before):
            write_json(self._where.pids, pids, 0o644)

    def _pids_of(self, state: dict[str, Any]) -> dict[str, int]:
        seen = {name: entry["pid"] for name, entry in state["processes"].items() if entry["pid"]}
        return {"supervisor": state["supervisor"]["pid"], **seen}

    def _end(self) -> None:
        if self._phase != "failed":
            self._phase = "stopping"
        self._tell()
        print(f"{rfc3339(self._clock.now())} stopping {self._reason}", flush=True)
        late = stop_stack(self._where, [(c.plan.stage, c.plan.patience, c) for c in self._children.values()])
        for child in self._children.values():
            child.reap()
        self._notes += [f"{name} did not end in time and was killed" for name in late]
        self._phase = "failed" if self._reason else "stopped"
        self._tell()
        write_json(self._where.pids, {}, 0o644)
        self._where.stopping.unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """`DATA_DIR` and the descriptors to pass on to every process (the lock)."""
    where = DataDir(Path(arguments[0]))
    kept = tuple(int(number) for number in arguments[1:])
    os.umask(0o077)
    plan = load(where)
    if not plan.processes:
        print(f"no plan in {where.plan}", file=sys.stderr)
        return 1
    return Supervisor(where, plan, kept).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
