"""Settings of the gateway process and of its workers, read from the environment once.

Read next: app.py.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from pydantic import Field

from shared.settings import BaseServiceSettings, Port

_LONGEST_SOCKET_PATH = 100
"""AF_UNIX takes 107 bytes; a few are kept for temporary names."""


class GatewaySettings(BaseServiceSettings):
    """The gateway process: resource API, TLS, own kinds."""

    host: str = Field(default="127.0.0.1", description="Address of the public listeners.", min_length=1)
    tls_port: Port = Field(default=0, description="TLS listener of the resource API; 0 picks a free one.")
    tls_names: str = Field(default="", description="More names of the server certificate, comma separated.")
    admin_token_file: Path | None = Field(
        default=None, description="File with the administrator's token; none: only API keys open the door."
    )
    key_secret_file: Path | None = Field(
        default=None,
        description="Secret that hashes of API keys depend on; made when missing (default: run/key-secret in the data dir).",
    )
    watch_seconds: int = Field(default=3600, description="The longest a watch lasts.", ge=1, le=86400)

    @property
    def key_secret(self) -> Path:
        """Where the secret of key hashes is."""
        return self.key_secret_file or self.data_dir / "run" / "key-secret"

    @property
    def admin_token(self) -> str:
        """The administrator's token; empty when there is none."""
        return self.admin_token_file.read_text().strip() if self.admin_token_file else ""

    @property
    def socket(self) -> Path:
        """Where the gateway process listens for its workers."""
        return socket_path(self.data_dir)


class WorkerSettings(GatewaySettings):
    """A worker of the data plane."""

    port: Port = Field(default=8080, description="Public plain port; workers share it.")
    body_limit: int = Field(default=32 << 20, description="Bytes of a request to /v1.", ge=1024, le=1 << 30)
    first_byte_seconds: float = Field(
        default=600.0, description="The longest wait for an engine to begin its answer.", ge=1, le=86400
    )
    idle_seconds: float = Field(default=120.0, description="The longest pause within an answer.", ge=1, le=86400)
    max_stale: float = Field(
        default=600.0,
        description="Seconds that known keys are served without news from the control plane; 0 refuses at once.",
        ge=0,
        le=86400,
    )


def feed_path(data_dir: Path) -> Path:
    """The unix socket on which workers get their tables."""
    return socket_path(data_dir, "feed.sock")


def socket_path(data_dir: Path, name: str = "gateway.sock") -> Path:
    """The unix socket between workers and the gateway process; short even in a data dir with a long name."""
    path = data_dir.absolute() / "run" / name
    if len(str(path).encode()) <= _LONGEST_SOCKET_PATH:
        return path
    mark = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"gpubus-{mark}" / name
