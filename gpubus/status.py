"""`gpubus status`: the stack's processes, as they are now.

Asks each process itself whether it is ready. Must not change anything. Read next: gpubus/supervisor.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpubus.datadir import DataDir, read_json
from gpubus.procs import Process, memory_kib
from gpubus.stack.plan import load
from gpubus.stack.pods import running_pods
from gpubus.stack.probes import answers
from gpubus.stack.refusals import is_held, supervisor_of
from gpubus.terminal import age, table
from shared.clock import SystemClock

_HEAD = ("PROCESS", "PID", "UPTIME", "READY", "RESTARTS", "MEMORY")


def show(where: DataDir) -> int:
    """Print the table; 0 when the stack runs, else 1."""
    if not is_held(where):
        print(f"not running: {where.root}")
        return 1
    state = read_json(where.state)
    rows = [_supervisor_row(where)] + [_row(where, name, entry) for name, entry in state.get("processes", {}).items()]
    print(table(_HEAD, [row for row in rows if row]))
    total = sum(memory_kib(pid) for pid in read_json(where.pids).values())
    pods = len(running_pods(where))
    print(
        f"\n{total / 1024:.0f} MiB in all, {pods} {'Pod' if pods == 1 else 'Pods'} running, phase {state.get('phase', 'unknown')}"
    )
    url = where.exports().get("GPUBUS_URL")
    if url:
        print(url)
    return 0


def _supervisor_row(where: DataDir) -> tuple[str, ...]:
    supervisor = supervisor_of(where)
    if supervisor is None or not supervisor.alive():
        return ("supervisor", "-", "-", "gone", "-", "-")
    return ("supervisor", str(supervisor.pid), "-", "yes", "0", _memory(supervisor.pid))


def _row(where: DataDir, name: str, entry: dict[str, Any]) -> tuple[str, ...]:
    if entry.get("ready_by") == "exit":
        return ()
    pid = int(entry.get("pid") or 0)
    restarts = str(max(0, int(entry.get("starts", 1)) - 1))
    if not Process(name, pid, str(entry.get("identity", ""))).alive():
        return (name, "-", "-", f"no ({entry.get('last_exit') or entry.get('state')})", restarts, "-")
    return (name, str(pid), _uptime(str(entry.get("since", ""))), _ready(where, name), restarts, _memory(pid))


def _uptime(since: str) -> str:
    return age((SystemClock().now() - datetime.fromisoformat(since)).total_seconds()) if since else "-"


def _ready(where: DataDir, name: str) -> str:
    plan = next((process for process in load(where).processes if process.name == name), None)
    return "yes" if plan and answers(plan, where) else "no"


def _memory(pid: int) -> str:
    return f"{memory_kib(pid) / 1024:.0f} MiB"
