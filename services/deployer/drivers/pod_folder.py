"""The folder of one Pod: what its shim and the agent wrote there, and whether anything still holds its lock.

Owns the file names. Must not start or signal anything. Read next: process.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.deployer.domain.running import Ended, LogPiece, Observation, Place
from services.deployer.drivers.shim import start_ticks
from shared.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable

LAST_LINES = 10
_LINE_LIMIT = 400
_RUNS = "something of this Pod still runs here"
_TAIL_BYTES = 64 * 1024
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PodFolder:
    """One Pod's files."""

    root: Path

    @classmethod
    def of(cls, pods: Path, uid: str) -> PodFolder:
        """The folder of a uid; a uid that is no plain word could leave the directory."""
        if not _UID.fullmatch(uid):
            raise InvalidArgument(f"{uid[:64]!r} is no uid")
        return cls(pods / uid)

    @property
    def lock_path(self) -> Path:
        """Locked (flock) while anything of the Pod may run."""
        return self.root / "lock"

    def lock(self) -> int:
        """Take the lock and return its descriptor.

        Raises:
            FailedPrecondition: something of the Pod may run.
            Unavailable: the folder cannot be written.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"{self.root} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise FailedPrecondition(_RUNS) from error
        if self.alive("engine.json"):
            os.close(descriptor)
            raise FailedPrecondition(_RUNS)
        return descriptor

    def held(self) -> bool:
        """Whether something of the Pod may run: it holds the lock, or is an engine that closed what it inherited."""
        return self._locked() or self.alive("engine.json") > 0

    def _locked(self) -> bool:
        try:
            descriptor = os.open(self.lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def write(self, name: str, body: Mapping[str, Any]) -> None:
        """Replace a JSON file in one step.

        Raises:
            Unavailable: it cannot be written.
        """
        temporary = self.root / f".{name}.agent"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(body, file)
            temporary.replace(self.root / name)
        except OSError as error:
            raise Unavailable(f"{self.root / name} cannot be written: {error.strerror}") from error

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file; empty when there is none, or the host crashed while it was written."""
        try:
            body = json.loads((self.root / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return body if isinstance(body, dict) else {}

    def clear_run(self) -> None:
        """Put the former start's files aside; only with the lock in hand."""
        for name in ("engine.json", "exit.json", "shim.json", "log.1"):
            (self.root / name).unlink(missing_ok=True)
        log = self.root / "log"
        if log.exists():
            log.replace(self.root / "log.previous")

    def alive(self, name: str) -> int:
        """Pid of the process that a file names, if it is still that process; else 0."""
        body = self.read(name)
        pid, start = body.get("pid"), body.get("start")
        return pid if isinstance(pid, int) and start and start_ticks(pid) == start else 0

    def holders(self) -> Iterator[int]:
        """Pids of all processes that have the lock open. Looks through all of /proc: for rare cases."""
        wanted = str(self.lock_path)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and _has_open(entry, wanted):
                yield int(entry.name)

    def observe(self) -> Observation:
        """What is there now."""
        held, order = self.held(), self.read("start.json")
        run = int(order.get("run", 0))
        engine = self.read("engine.json")
        current = engine if engine.get("run") == run else {}
        if held:
            return Observation(running=True, run=run, started_unix=current.get("started"), place=_place(current))
        if not run:
            return Observation()
        end = self.read("exit.json")
        known = end if end.get("run") == run else {}
        lines = tuple(self.tail(LAST_LINES, limit=_LINE_LIMIT))
        ended = Ended(exit_code=known.get("exitCode"), signal=known.get("signal"), lines=lines)
        return Observation(run=run, started_unix=current.get("started"), ended=ended)

    def tail(self, count: int, *, limit: int = 0, previous: bool = False) -> list[str]:
        """The last lines of the log, each cut to `limit` characters when that is not 0."""
        data = self._end_of_log("log.previous" if previous else "log")
        lines = [line.rstrip() for line in data.decode(errors="replace").splitlines()]
        lines = [line for line in lines if line][-count:] if count else []
        return [line[:limit] for line in lines] if limit else lines

    def read_log(self, *, offset: int, tail_lines: int, max_bytes: int, previous: bool) -> LogPiece:
        """See the port."""
        path = self.root / ("log.previous" if previous else "log")
        try:
            size = path.stat().st_size
            if offset < 0:
                text = "".join(f"{line}\n" for line in self.tail(tail_lines, previous=previous))
                return LogPiece(text=text[-max_bytes:], next_offset=size, ended=previous or not self.held())
            with path.open("rb") as file:
                file.seek(offset if offset <= size else 0)
                data = file.read(max_bytes)
                return LogPiece(
                    text=data.decode(errors="replace"),
                    next_offset=file.tell(),
                    ended=file.tell() >= size and (previous or not self.held()),
                )
        except OSError as error:
            raise NotFound("there is no such log on this node") from error

    def remove(self) -> None:
        """Remove everything; nothing while something runs."""
        if not self.held():
            shutil.rmtree(self.root, ignore_errors=True)

    def _end_of_log(self, name: str) -> bytes:
        path = self.root / name
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                return file.read()
        except OSError:
            return b""


def _place(engine: Mapping[str, Any]) -> Place | None:
    body = engine.get("place")
    return Place(**body) if isinstance(body, dict) else None


def _has_open(process: Path, wanted: str) -> bool:
    try:
        return any(os.readlink(link) == wanted for link in (process / "fd").iterdir())  # noqa: PTH115 - a socket's is no path
    except OSError:
        return False
