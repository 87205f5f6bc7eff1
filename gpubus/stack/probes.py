"""Readiness probes over a bare socket: HTTP `/readyz`, the NATS greeting, Redis PING.

`python -m gpubus.stack.probes PORT` is the health check of containers: 0 when `/readyz` there says so.
Standard library only; http.client alone would double the supervisor's memory. Must not wait longer than half a second.
Read next: gpubus/stack/children.py.
"""

from __future__ import annotations

import socket
import sys

from gpubus.datadir import DataDir
from gpubus.stack.plan import ProcessPlan

LOOPBACK = "127.0.0.1"
_PATIENCE = 0.5


def answers(plan: ProcessPlan, where: DataDir) -> bool:
    """Whether the process is ready now."""
    if plan.ready_by == "http":
        return http_status(plan.port, "/readyz") == 200
    if plan.ready_by == "nats":
        return exchange(plan.port, b"").startswith(b"INFO ")
    if plan.ready_by == "redis":
        return redis_ready(plan.port, _admin_line(where))
    return plan.ready_by == "start"


def http_status(port: int, path: str) -> int:
    """Status code of a GET; 0 when nobody answers."""
    reply = exchange(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    word = reply.split(b" ", 2)[1:2]
    return int(word[0]) if word and word[0].isdigit() else 0


def redis_ready(port: int, login: str) -> bool:
    """Whether Redis has loaded its file and takes commands; `login` is `AUTH user password` or empty."""
    lines = [*([login] if login else []), "PING"]
    return exchange(port, "".join(f"{line}\r\n" for line in lines).encode()).rstrip().endswith(b"+PONG")


def _admin_line(where: DataDir) -> str:
    try:
        return f"AUTH admin {(where.run / 'redis' / 'admin.password').read_text().strip()}"
    except OSError:
        return ""


def exchange(port: int, request: bytes) -> bytes:
    """Send, and return what comes within half a second; empty when nobody listens."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_PATIENCE) as link:
            if request:
                link.sendall(request)
            return _read(link, until=b"PONG" if request.endswith(b"PING\r\n") else b"\r\n")
    except OSError:
        return b""


def _read(link: socket.socket, until: bytes) -> bytes:
    got = b""
    while until not in got:
        chunk = link.recv(4096)
        if not chunk:
            break
        got += chunk
    return got


if __name__ == "__main__":
    sys.exit(0 if http_status(int(sys.argv[1]), "/readyz") == 200 else 1)
