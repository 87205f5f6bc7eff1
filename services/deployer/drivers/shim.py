"""The process between the agent and one engine: it holds the Pod's lock, starts the engine once, and writes how it ended.

Run as a file, with `python -S -E shim.py DIRECTORY LOCK_FD`, on a lock that the agent took and handed over: it is never
free between the decision to start and the engine's death, because the engine inherits it. Whoever is killed, the lock
tells whether anything still runs. Files, each replaced whole:

    start.json   what to start: written by the agent before this process exists
    shim.json    {pid, start}: this process
    engine.json  {pid, start, run, started, place}: written by the engine's process itself, before it becomes the engine
    exit.json    {run, exitCode, signal, finished}: the end
    log          the engine's output, appended by the engine itself; cut to `log.1` above a limit

Standard library only, and little of it: one of these waits beside every engine. Read next: process.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICK_SECONDS = 5
"""How often the log's size is looked at."""
COMMAND_NOT_FOUND = 127
COMMAND_NOT_EXECUTABLE = 126
_CAUGHT = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Python ignores some, a shell others for what it starts in the background, and ignored stays ignored through exec."""
_COPY_BYTES = 1 << 20


def write(name: str, body: dict[str, Any]) -> None:
    """Replace a JSON file of the Pod's folder in one step."""
    temporary = f".{name}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(body, file)
    os.replace(temporary, name)  # noqa: PTH105 - pathlib would double this process's memory


def start_ticks(pid: int | str) -> int:
    """When a process began, in clock ticks since boot: with the pid its identity. 0 when it has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            fields = file.read().rpartition(b") ")[2].split()
        return 0 if fields[0] in {b"Z", b"X"} else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def become_engine(order: dict[str, Any], lock: int, log: int) -> None:
    """In the child: a session of its own, default signals, the lock inherited; then the engine's program. Never returns."""
    os.setsid()
    for number in _DEFAULTED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _CAUGHT)
    started = int(time.time())  # noqa: TID251 - shown to people
    identity = {"pid": os.getpid(), "start": start_ticks("self")}
    write("engine.json", {**identity, "run": order["run"], "started": started, "place": order["place"]})
    os.set_inheritable(lock, True)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    argv, wanted, code = order["argv"], order["cwd"], COMMAND_NOT_EXECUTABLE
    try:
        if wanted:
            os.chdir(wanted)
        wanted = argv[0]
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"{wanted}: {error.strerror}\n".encode())
        if wanted == argv[0] and isinstance(error, FileNotFoundError):
            code = COMMAND_NOT_FOUND
    finally:
        os._exit(code)


def kill_group(pid: int, number: int) -> None:
    """Signal the engine's whole group."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def watch(pid: int, grace: float, log: int, limit: int) -> int:
    """Wait for the engine's end, passing on the wish that it ends; its wait status."""
    deadline = 0.0
    while True:
        left = max(0.05, deadline - _now()) if deadline else TICK_SECONDS
        caught = signal.sigtimedwait(_CAUGHT, min(left, TICK_SECONDS))
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            kill_group(pid, signal.SIGKILL)  # not reaped yet, so the group's number cannot be somebody else's
            return os.waitpid(pid, 0)[1]
        if caught is not None and caught.si_signo != signal.SIGCHLD and not deadline:
            kill_group(pid, signal.SIGTERM)
            kill_group(pid, signal.SIGCONT)
            deadline = _now() + grace
        elif deadline and _now() >= deadline:
            kill_group(pid, signal.SIGKILL)
        cut(log, limit)


def cut(log: int, limit: int) -> None:
    """Move the log to `log.1` when it is too long. The engine appends, so it goes on at the new end."""
    size = os.fstat(log).st_size
    if size <= limit:
        return
    copy = os.open("log.1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    source = os.open("log", os.O_RDONLY)
    try:
        os.lseek(source, max(0, size - limit), os.SEEK_SET)
        while piece := os.read(source, _COPY_BYTES):
            os.write(copy, piece)
        os.ftruncate(log, 0)
    finally:
        os.close(copy)
        os.close(source)


def main() -> None:
    """See module."""
    os.chdir(sys.argv[1])
    if os.getpid() != os.getsid(0):
        os.setsid()
    lock = int(sys.argv[2])
    os.set_inheritable(lock, False)
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, _CAUGHT)
    with open("start.json") as file:  # noqa: PTH123 - as above
        order = json.load(file)
    write("shim.json", {"pid": os.getpid(), "start": start_ticks("self")})
    log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    pid = os.fork()
    if pid == 0:
        become_engine(order, lock, log)
    status = watch(pid, order["grace"], log, order["logLimit"])
    code = os.waitstatus_to_exitcode(status)
    finished = int(time.time())  # noqa: TID251 - shown to people
    ended = {"exitCode": code if code >= 0 else 128 - code, "signal": -code if code < 0 else None}
    write("exit.json", {"run": order["run"], "finished": finished, **ended})


def _now() -> float:
    return time.monotonic()  # noqa: TID251 - this process has no other clock


if __name__ == "__main__":
    main()
