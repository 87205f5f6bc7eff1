"""The TLS side of the gateway: when its certificate must be made anew, and the context that carries it.

Must not import the certificate library: a child does the work. Read next: certificates.py.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from shared.clock import Clock
from shared.errors import FailedPrecondition

CHECK_SECONDS = 6 * 3600.0
RENEW_SECONDS = 30 * 86400.0
"""A certificate with less time left is replaced; clients trust the authority, so they notice nothing."""
COMMAND = "certificates"
"""`python -m services.gateway certificates DIRECTORY NAME…` makes them."""
_CHILD_SECONDS = 20.0


class Tls:
    """One server certificate, kept fresh."""

    def __init__(self, directory: Path, names: Sequence[str], clock: Clock) -> None:
        self._directory = directory
        self._names = list(dict.fromkeys(names))
        self._clock = clock
        self._context: ssl.SSLContext | None = None

    async def context(self) -> ssl.SSLContext:
        """The context for listeners; the certificate is made first when it has to be.

        Raises:
            FailedPrecondition: it cannot be made.
        """
        if not self._fresh():
            await self._make()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # HTTP/1.1 alone: clients must not try HTTP/2.
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        self._context = context
        return context

    async def keep_fresh(self) -> None:
        """Replace the certificate in time; new connections use it at once; for ever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._context is not None and not self._fresh():
                await self._make()
                self._load(self._context)

    def _fresh(self) -> bool:
        try:
            found = json.loads((self._directory / "server.json").read_text())
            until, names = float(found["until"]), found["names"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return False
        there = all((self._directory / name).exists() for name in ("ca.crt", "server.crt", "server.key"))
        return there and names == self._names and until - self._clock.now().timestamp() > RENEW_SECONDS

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._directory / "server.crt", self._directory / "server.key")

    async def _make(self) -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.gateway", COMMAND, str(self._directory), *self._names,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            _, said = await asyncio.wait_for(child.communicate(), _CHILD_SECONDS)
        except TimeoutError:
            child.kill()
            raise FailedPrecondition("making the TLS certificate took too long") from None
        if child.returncode:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise FailedPrecondition(f"the TLS certificate cannot be made: {''.join(last)}")


def server_names(host: str, more: str) -> list[str]:
    """What the certificate is valid for: this host by all its usual names, the listener's address, and `more`."""
    listed = [name.strip() for name in more.split(",") if name.strip()]
    any_address = {"0.0.0.0", "::", ""}  # noqa: S104 - compared
    own = [] if host in any_address else [host]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *own, socket.gethostname(), *listed]))
