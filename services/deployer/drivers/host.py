"""This host's identity and name, as the discovery agent tells them: the controller compares the two.

Read next: ../agent/app.py.
"""

from __future__ import annotations

import hashlib
import platform
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

_OUTSIDE = re.compile(r"[^a-z0-9]+", re.ASCII)


def machine_id(root: Path = Path("/")) -> str:
    """The installation's id; without one, a hash of what stays the same."""
    for name in ("etc/machine-id", "var/lib/dbus/machine-id"):
        try:
            found = (root / name).read_text(errors="replace").strip()
        except OSError:
            continue
        if found:
            return found
    return hashlib.sha256(f"{socket.gethostname()}|{platform.machine()}".encode()).hexdigest()[:32]


def node_name(hostname: str) -> str:
    """The host name as a Node's name."""
    parts = (_OUTSIDE.sub("-", part).strip("-") for part in hostname.strip().lower().split("."))
    return ".".join(filter(None, parts))[:63].strip("-.") or "node"


def address_towards(url: str) -> str:
    """The address that this host has on its way to the bus: loopback when that is here. Sends nothing."""
    first = urlsplit(url.split(",", maxsplit=1)[0].strip())
    try:
        family, kind, _, _, target = socket.getaddrinfo(first.hostname, first.port or 4222, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
