"""Starting a supervisor and waiting for its stack: what `up`, `agent` and tests share.

Must not decide what runs. Read next: gpubus/supervisor.py.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from gpubus.datadir import DataDir, read_json
from gpubus.down import down
from gpubus.environment import inherited
from gpubus.procs import Process, identity, pause
from gpubus.refusal import Refusal
from gpubus.stack.logs import tail
from gpubus.stack.plan import python
from shared.clock import SystemClock

READY_WITHIN = 60.0
_LOOK_EVERY = 0.03

Tell = Callable[[str], None]


def spawn_supervisor(where: DataDir, held: int, reservations: Sequence[socket.socket] = ()) -> Process:
    """Start the supervisor of the plan in `run/plan.json`; it gets the lock, for every process, and the port reservations."""
    kept = [held, *(reservation.fileno() for reservation in reservations)]
    where.state.unlink(missing_ok=True)
    where.stopping.unlink(missing_ok=True)
    where.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    with where.log("supervisor").open("ab") as log:
        started = subprocess.Popen(
            [*python("gpubus.supervisor", where.root), str(held)],
            env=inherited(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=kept, start_new_session=True,
            cwd=where.root,
        )  # fmt: skip
    for reservation in reservations:
        reservation.close()
    # The supervisor outlives this command: nobody here will ever wait for it.
    started.returncode = 0
    return Process("supervisor", started.pid, identity(started.pid))


def wait_ready(where: DataDir, supervisor: Process, tell: Tell) -> tuple[str, ...]:
    """Wait until every process is ready, telling each name once; what the supervisor noted.

    Raises:
        Refusal: it failed, or was not ready in time; the sentence ends with the right log's last lines.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + READY_WITHIN
    seen: set[str] = set()
    while True:
        state = read_json(where.state)
        _tell_ready(state, seen, tell)
        if state.get("phase") == "ready":
            return tuple(state.get("notes", ()))
        if state.get("phase") == "failed" or not supervisor.alive():
            raise Refusal(_why_failed(where, read_json(where.state)))
        if clock.monotonic() > deadline:
            raise Refusal(_why_late(where, state))
        pause(_LOOK_EVERY)


def _tell_ready(state: dict[str, Any], seen: set[str], tell: Tell) -> None:
    for name, entry in state.get("processes", {}).items():
        if entry["state"] in {"ready", "done"} and name not in seen:
            seen.add(name)
            tell(name)


def _why_failed(where: DataDir, state: dict[str, Any]) -> str:
    reason = state.get("reason") or "the supervisor ended while starting"
    name = str(reason).partition(" ")[0]
    log = where.log(name if name in state.get("processes", {}) else "supervisor")
    return "\n".join([f"The stack did not start: {reason}; {log} ends with:", *(f"  {line}" for line in tail(log))])


def _why_late(where: DataDir, state: dict[str, Any]) -> str:
    late = [name for name, entry in state.get("processes", {}).items() if entry["state"] not in {"ready", "done"}]
    lines = [f"  {name}: {line}" for name in late[:3] for line in tail(where.log(name), 3)]
    return "\n".join(
        [f"Not ready within {READY_WITHIN:.0f} s: {', '.join(late)}; their logs in {where.logs} end with:", *lines]
    )


def interruptible() -> None:
    """Let SIGTERM and SIGHUP end a start as Ctrl-C does: what was started is taken down."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def hold(where: DataDir, supervisor: Process) -> str:
    """Stay in the foreground until the stack ends or this command is told to end; what happened, as a sentence."""
    told: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        told.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)
    while not told and supervisor.alive():
        pause(0.2)
    if told:
        down(where)
        return "stopped"
    reason = read_json(where.state).get("phase")
    return (
        "stopped by another `gpubus down`" if reason == "stopped" else "the supervisor is gone; `gpubus down` cleans up"
    )
