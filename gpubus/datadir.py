"""The data dir: where each of a stack's files lies, and how they are written (whole or not at all, secrets 0600).

Owns the paths of contracts.md section 7. Must not import anything heavy: `down` and the supervisor use it.
Read next: gpubus/stack/plan.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpubus.environment import parse, variable

PRIVATE = 0o600


def write(path: Path, text: str, mode: int = PRIVATE, *, durable: bool = False) -> None:
    """Replace a file in one step: a reader sees the old text or the new one, and nobody else's eyes see a secret.

    `durable` waits for the disk: for what a host crash must not take, such as seeds that a server knows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, body: Mapping[str, Any], mode: int = PRIVATE) -> None:
    """The same for JSON."""
    write(path, json.dumps(body, indent=1) + "\n", mode)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when the file is missing or torn by a crash of the file system."""
    try:
        body = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


@dataclass(frozen=True, slots=True)
class DataDir:
    """One stack's directory."""

    root: Path

    @property
    def run(self) -> Path:
        """Generated configuration, credentials and state of the running stack."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One file a process."""
        return self.root / "log"

    @property
    def pods(self) -> Path:
        """One folder a Pod, kept by its shim."""
        return self.root / "pods"

    @property
    def pids(self) -> Path:
        """Process name to pid, of what runs now."""
        return self.root / "pids.json"

    @property
    def ports(self) -> Path:
        """Listener name to port."""
        return self.root / "ports.json"

    @property
    def env(self) -> Path:
        """Shell exports for clients."""
        return self.root / "env"

    @property
    def kubeconfig(self) -> Path:
        """For stock kubectl."""
        return self.root / "kubeconfig"

    @property
    def ca(self) -> Path:
        """The gateway's own certificate authority, made by the gateway at its first start."""
        return self.root / "tls" / "ca.crt"

    @property
    def lock(self) -> Path:
        """Held (flock) by every process of the stack: free means nothing runs."""
        return self.run / "lock"

    @property
    def plan(self) -> Path:
        """What the supervisor runs."""
        return self.run / "plan.json"

    @property
    def state(self) -> Path:
        """What the supervisor sees: phase, and per process pid, identity, restarts, last exit."""
        return self.run / "state.json"

    @property
    def stopping(self) -> Path:
        """Exists while the stack is being taken down: the deployer's agent then stops its Pods too."""
        return self.run / "stopping"

    @property
    def admin_token(self) -> Path:
        """The admin's API key, generated once."""
        return self.run / "admin-token"

    def env_file(self, process: str) -> Path:
        """One process's settings."""
        return self.run / f"{process}.env"

    def log(self, process: str) -> Path:
        """One process's output."""
        return self.logs / f"{process}.log"

    def exports(self) -> dict[str, str]:
        """The variables of `env`; empty when there is none."""
        try:
            return parse(self.env.read_text())
        except OSError:
            return {}


def resolve(option: str | None = None) -> DataDir:
    """`--data-dir`, else GPUBUS_DATA_DIR, else `~/.local/share/gpubus`."""
    chosen = option or variable("GPUBUS_DATA_DIR")
    return DataDir((Path(chosen) if chosen else Path("~/.local/share/gpubus")).expanduser().absolute())
