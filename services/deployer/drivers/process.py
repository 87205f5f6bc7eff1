"""The process runtime: each Pod is a child process of this host under its shim.

Owns ports, spawning, signals. A start hands the Pod's lock to the shim, so two never run, whoever is killed when.
Must not decide when anything starts. Read next: shim.py, pod_folder.py.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.deployer.domain.running import Launch, LogPiece, Observation, Place
from services.deployer.drivers.pod_folder import PodFolder
from shared.clock import Clock
from shared.errors import Unavailable
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

LOG_LIMIT_BYTES = 16 * 1024 * 1024
_SHIM = Path(__file__).with_name("shim.py")
_CODE_ROOT = Path(__file__).resolve().parents[3]
_OWN = "GPUBUS_"
_KILL_AFTER_SECONDS = 2.0
"""Beyond the grace: the shim should have killed by then."""


class ProcessRuntime:
    """Runs Pods below one directory; any number of them in one process."""

    name = "process"

    def __init__(
        self, pods: Path, *, clock: Clock, host: str = "127.0.0.1", address: str = "", log_limit: int = LOG_LIMIT_BYTES
    ) -> None:
        """`host` is what engines bind, `address` what others connect to (the same when empty)."""
        self._pods = pods.resolve()
        self._clock = clock
        self._host = host
        self._address = address or host
        self._log_limit = log_limit
        self._changed: Callable[[str], None] = lambda _uid: None
        self._watched: dict[str, int] = {}
        """Uid -> descriptor that tells the end of its shim or engine."""
        self._children: dict[str, int] = {}
        """Uid -> pid of a shim that this process must reap."""
        self._stopping: dict[str, float] = {}
        """Uid -> when it was first asked to end."""
        self._reserved: dict[str, int] = {}

    def on_change(self, callback: Callable[[str], None]) -> None:
        """See the port."""
        self._changed = callback

    def adopt(self) -> Mapping[str, Mapping[str, Any]]:
        """See the port."""
        if not self._pods.is_dir():
            return {}
        found = {entry.name: PodFolder(entry) for entry in sorted(self._pods.iterdir()) if entry.is_dir()}
        for uid in found:
            self._watch(uid)
        return {uid: folder.read("pod.json") for uid, folder in found.items()}

    async def place(self, uid: str, fixed_port: int | None) -> Place:
        """See the port."""
        port = self._free_port(uid) if fixed_port is None else self._fixed_port(fixed_port)
        return Place(host=self._host, address=self._address, port=port, token=secrets.token_hex(16))

    async def start(self, launch: Launch) -> None:
        """See the port."""
        folder = self._folder(launch.uid)
        lock = folder.lock()
        try:
            folder.clear_run()
            folder.write("pod.json", launch.record)
            folder.write("start.json", self._order(launch))
            self._reap(launch.uid)
            self._children[launch.uid] = self._spawn(folder, lock, launch.env)
        except OSError as error:
            raise Unavailable(f"no process can be started: {error.strerror}") from error
        finally:
            os.close(lock)
        self._stopping.pop(launch.uid, None)
        self._watch(launch.uid)

    async def stop(self, uid: str, grace_seconds: float) -> None:
        """See the port."""
        folder = self._folder(uid)
        if not folder.held():
            return
        first = self._stopping.setdefault(uid, self._clock.monotonic())
        waited = self._clock.monotonic() - first
        shim, engine = folder.alive("shim.json"), folder.alive("engine.json")
        if waited > grace_seconds + (_KILL_AFTER_SECONDS if shim else 0):
            _signal_group(engine, signal.SIGKILL)
            if not engine:
                _signal_all(folder, signal.SIGKILL)
        elif shim:
            _signal(shim, signal.SIGTERM)
        elif engine:
            _signal_group(engine, signal.SIGTERM)
        else:
            _signal_all(folder, signal.SIGTERM)

    async def observe(self, uid: str) -> Observation:
        """See the port."""
        self._reap(uid)
        folder = self._folder(uid)
        seen = folder.observe()
        if seen.running and uid not in self._watched:
            self._watch(uid)
            self._end_leftovers(uid, folder, seen)
        return seen

    async def record(self, uid: str, record: Mapping[str, Any]) -> None:
        """See the port."""
        folder = self._folder(uid)
        if folder.root.is_dir():
            folder.write("pod.json", record)

    async def read_log(self, uid: str, *, offset: int, tail_lines: int, max_bytes: int, previous: bool) -> LogPiece:
        """See the port."""
        return self._folder(uid).read_log(offset=offset, tail_lines=tail_lines, max_bytes=max_bytes, previous=previous)

    async def forget(self, uid: str) -> None:
        """See the port."""
        folder = self._folder(uid)
        if not folder.held():
            self._unwatch(uid)
            self._reap(uid)
            self._stopping.pop(uid, None)
            self._reserved.pop(uid, None)
            folder.remove()

    def close(self) -> None:
        """Let go of what this process holds; engines go on."""
        for uid in list(self._watched):
            self._unwatch(uid)

    def _folder(self, uid: str) -> PodFolder:
        return PodFolder.of(self._pods, uid)

    def _order(self, launch: Launch) -> dict[str, Any]:
        work = self._folder(launch.uid).root / "work"
        work.mkdir(mode=0o700, exist_ok=True)
        return {
            "run": launch.run,
            "argv": list(launch.argv),
            "cwd": launch.working_dir or str(work),
            "grace": launch.grace_seconds,
            "logLimit": self._log_limit,
            "place": asdict(launch.place),
        }

    def _spawn(self, folder: PodFolder, lock: int, env: Mapping[str, str]) -> int:
        """The shim, with the lock as its descriptor `number`; everything else of ours closes on exec."""
        number = 3 if lock != 3 else 4
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(folder.root / "shim.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, lock, number),
        )
        argv = [sys.executable, "-S", "-E", str(_SHIM), str(folder.root), str(number)]
        return os.posix_spawn(sys.executable, argv, {**_host_environment(), **env}, file_actions=actions)

    def _fixed_port(self, port: int) -> int:
        """Refuse one that another process listens on: its answers would be taken for the Pod's."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the run before may linger
            try:
                probe.bind((self._host, port))
            except OSError as error:
                sentence = (
                    f"port {port} of {self._host} cannot be had ({error.strerror}): say $(GPUBUS_PORT) in the command"
                )
                raise Unavailable(sentence) from error
        return port

    def _free_port(self, uid: str) -> int:
        taken = set(self._reserved.values())
        for _ in range(50):
            with socket.socket() as probe:
                try:
                    probe.bind((self._host, 0))
                except OSError as error:
                    raise Unavailable(f"no port is free on {self._host}: {error.strerror}") from error
                port = int(probe.getsockname()[1])
            if port not in taken:
                self._reserved[uid] = port
                return port
        raise Unavailable(f"no port is free on {self._host}")

    def _watch(self, uid: str) -> None:
        """Be told when the shim, or without one the engine, ends."""
        self._unwatch(uid)
        folder = self._folder(uid)
        pid = self._children.get(uid) or folder.alive("shim.json") or folder.alive("engine.json")
        if not pid:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return
        self._watched[uid] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, uid)

    def _unwatch(self, uid: str) -> None:
        descriptor = self._watched.pop(uid, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _ended(self, uid: str) -> None:
        self._unwatch(uid)
        self._reap(uid)
        if self._folder(uid).held():
            self._watch(uid)
        self._changed(uid)

    def _reap(self, uid: str) -> None:
        pid = self._children.get(uid)
        if pid is None:
            return
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            done = pid
        if done:
            self._children.pop(uid, None)

    def _end_leftovers(self, uid: str, folder: PodFolder, seen: Observation) -> None:
        """The lock is held although shim and engine are dead: processes that the engine started, and nobody needs."""
        if uid in self._watched or uid in self._children or seen.place is None:
            return
        if not folder.alive("shim.json") and not folder.alive("engine.json"):
            log.warning("pod_leftovers_ended", pod_uid=uid)
            _signal_all(folder, signal.SIGKILL)


def _host_environment() -> dict[str, str]:
    """This host's environment without our own settings and secrets; our code can be imported from it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}  # noqa: TID251 - handed on
    kept["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", os.defpath)))
    kept["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys((str(_CODE_ROOT), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))))
    )
    return kept


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _signal_group(pid: int, number: signal.Signals) -> None:
    if not pid:
        return
    try:
        os.killpg(pid, number)
        os.killpg(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def _signal_all(folder: PodFolder, number: signal.Signals) -> None:
    for pid in folder.holders():
        _signal(pid, number)
