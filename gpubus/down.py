"""`gpubus down`: everything of a data dir's stack ends, also when its supervisor was killed; a second time it says so.

Standard library only: it must be quick. Must not touch a process that it cannot prove to be the stack's.
Read next: gpubus/stack/shutdown.py.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from gpubus.datadir import DataDir, write, write_json
from gpubus.procs import Process, command_line, holders, identity, pause
from gpubus.refusal import Refusal
from gpubus.stack.endings import end
from gpubus.stack.plan import STOP_SERVERS
from gpubus.stack.pods import running_pods, stop_pods
from gpubus.stack.refusals import is_held, recorded, supervisor_of
from gpubus.stack.shutdown import stop_stack
from shared.clock import SystemClock

PATIENCE = 95.0
"""Seconds for the supervisor's orderly stop: more than the sum of its stages."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What `down` found and did."""

    ran: bool
    killed: tuple[str, ...] = ()


def down(where: DataDir) -> Stopped:
    """Stop the stack of this data dir.

    Raises:
        Refusal: something of it could not be stopped.
    """
    if not is_held(where):
        killed = tuple(stop_pods(where)) if running_pods(where) else ()
        _forget(where)
        return Stopped(ran=False, killed=killed)
    supervisor = supervisor_of(where)
    if supervisor is not None and supervisor.alive():
        write(where.stopping, "")
        supervisor.send(signal.SIGTERM)
        supervisor.send(signal.SIGCONT)
        _wait_for(supervisor)
    killed = () if not is_held(where) else tuple(_stop_orphans(where, supervisor))
    if is_held(where):
        left = "; ".join(f"{pid} ({command_line(pid)[:60]})" for pid in holders(where.lock))
        raise Refusal(f"Some processes of {where.root} could not be stopped: {left}.")
    _forget(where)
    return Stopped(ran=True, killed=killed)


def _wait_for(supervisor: Process) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while supervisor.alive() and clock.monotonic() < deadline:
        pause(0.02)


def _stop_orphans(where: DataDir, supervisor: Process | None) -> list[str]:
    """Stop what a dead (or hung) supervisor left: first what its records name, then whoever still holds the lock."""
    if supervisor is not None:
        supervisor.send(signal.SIGKILL)
    late = stop_stack(where, [(stage, 10.0 if stage == STOP_SERVERS else 20.0, one) for stage, one in recorded(where)])
    rest = [Process(f"pid {pid}", pid, identity(pid)) for pid in holders(where.lock)]
    return late + end([(10.0, one) for one in rest])


def _forget(where: DataDir) -> None:
    where.stopping.unlink(missing_ok=True)
    if where.pids.exists():
        write_json(where.pids, {}, 0o644)
