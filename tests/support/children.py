"""Our own processes as children of a test: started with settings in their environment, dying with the test.

Must not know any service. Read next: tests/support/servers.py, the servers they need.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.servers import LOOPBACK, free_port
from tests.support.wait import eventually_sync

ROOT = Path(__file__).resolve().parents[2]
# Dies with the test process: PR_SET_PDEATHSIG to SIGKILL, then becomes the module.
_LAUNCH = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9);os.execv(sys.executable,[sys.executable,'-m',*sys.argv[1:]])"
)


class Child:
    """One process: `python -m <words>` with GPUBUS_ settings."""

    def __init__(self, directory: Path, name: str, words: tuple[str, ...], settings: Mapping[str, str]) -> None:
        self.name = name
        self.words = words
        self.health_port = free_port()
        self.settings = {"GPUBUS_INSTANCE": name, "GPUBUS_HEALTH_PORT": str(self.health_port), **settings}
        self.log_path = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **more: str) -> Child:
        """Spawn; `more` are settings of this start only."""
        assert self.process is None, f"{self.name} is already running"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GPUBUS_")}
        env = {**clean, "PYTHONPATH": str(ROOT), **self.settings, **more}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, *self.words], env=env, stdout=log, stderr=log, cwd=self.log_path.parent
            )
        return self

    def ready(self, timeout: float = 20) -> Child:
        """Wait until /readyz says yes."""
        eventually_sync(self._answers_ready, timeout=timeout)
        return self

    @property
    def pid(self) -> int:
        """The running child's pid."""
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal, wait, return the exit status; a stopped process is continued first."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        try:
            status = self.process.wait(timeout=25)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait(timeout=10)
        self.process = None
        return status

    def kill(self) -> None:
        """kill -9."""
        self.end(signal.SIGKILL)

    def ended(self, timeout: float = 20) -> int:
        """Wait until it ends by itself; the exit status."""
        assert self.process is not None, f"{self.name} is not running"
        status = self.process.wait(timeout=timeout)
        self.process = None
        return status

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        found = []
        for line in self.log_path.read_text(errors="replace").splitlines():
            try:
                body = json.loads(line)
            except ValueError:
                continue
            if body.get("event") == event:
                found.append(body)
        return found

    def metric(self, name: str) -> float:
        """One sample of /metrics by its exact name and labels; 0 when it is not there."""
        for line in self.http("/metrics").splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def http(self, path: str) -> str:
        """GET from the health port; empty when nobody answers."""
        try:
            with socket.create_connection((LOOPBACK, self.health_port), timeout=5) as link:
                link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                body = b""
                while part := link.recv(65536):
                    body += part
        except OSError:
            return ""
        return body.decode(errors="replace")

    def _answers_ready(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            tail = self.log_path.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{tail}")
        return self.http("/readyz").startswith("HTTP/1.1 200")
