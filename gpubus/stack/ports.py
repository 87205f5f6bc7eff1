"""Ports: the two a user names, and a block of free ones for everything else, kept for the stack's life.

Free ones come from below the kernel's ephemeral range: a server that is restarted must find its port again, and no
outgoing connection may have borrowed it meanwhile. Must not listen. Read next: gpubus/stack/layout.py.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpubus.refusal import Refusal
from gpubus.stack.probes import LOOPBACK

BLOCK = 100
_LOWEST = 20000
_DEFAULT_EPHEMERAL = 32768
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether nobody listens there (connections that linger after an end do not count)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def require_free(port: int, host: str, option: str) -> None:
    """Refuse a named port that is taken.

    Raises:
        Refusal: with the option that chooses another.
    """
    if port and not is_free(port, host):
        raise Refusal(
            f"Port {port} on {host} is taken: stop what listens there or choose another with {option} (0 picks a free one)."
        )


@dataclass(slots=True)
class FreePorts:
    """Hands out free ports of one block; `reservations` keep other stacks off its blocks while they are open."""

    preferred: dict[str, int] = field(default_factory=dict)
    """Ports this data dir used before: kept when they are still free, so that addresses survive a restart."""
    reservations: list[socket.socket] = field(default_factory=list)
    _left: Iterator[int] = field(default_factory=lambda: iter(()))
    _given: set[int] = field(default_factory=set)

    def take(self, name: str, host: str = LOOPBACK) -> int:
        """A free port for one listener."""
        before = self.preferred.get(name, 0)
        if before and before not in self._given and is_free(before, host):
            self._given.add(before)
            return before
        while True:
            port = next(self._left, 0)
            if not port:
                self._left = self._new_block()
            elif port not in self._given and is_free(port, host):
                self._given.add(port)
                return port

    def _new_block(self) -> Iterator[int]:
        bases = list(range(_LOWEST, _first_ephemeral() - BLOCK, BLOCK))
        random.shuffle(bases)
        for base in bases:
            held = _reserve(base)
            if held is not None:
                self.reservations.append(held)
                return iter(range(base, base + BLOCK))
        raise Refusal(
            f"No block of {BLOCK} free ports is left between {_LOWEST} and {_first_ephemeral()}: stop other stacks."
        )


def _first_ephemeral() -> int:
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL
    return first if first > _LOWEST + 10 * BLOCK else 2 * _DEFAULT_EPHEMERAL


def _reserve(base: int) -> socket.socket | None:
    """Take a name in the machine's abstract socket space (Linux): it is let go with its last holder."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(f"\0gpubus-ports-{base}")
    except OSError:
        held.close()
        return None
    return held
