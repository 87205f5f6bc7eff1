"""One connection to NATS: credentials, patience, endless reconnects, and errors in our own words.

Owns the nats-py options. Must not know messages. Read next: shared/bus/jetstream.py.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared import subjects
from shared.bus.settle import guarded
from shared.errors import DeadlineExceeded, FailedPrecondition, GpubusError, PermissionDenied, TooLarge, Unavailable
from shared.telemetry import metrics
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

OLDEST_SERVER = (2, 10)
PING_SECONDS = 1
MAX_OUTSTANDING_PINGS = 2
RECONNECT_SECONDS = 0.25
_FORBIDDEN = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_REMEMBERED_VIOLATIONS = 256
_HEADER_FRAME = len("NATS/1.0\r\n\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach NATS and as whom."""

    url: str
    """One or more `nats://host:port`, comma separated."""
    user: str
    seed_file: Path | str | None = None
    """File with the user's NKey seed; None for a server without users."""
    ca_file: Path | str | None = None
    """CA of a server on another host: TLS from the first byte, nothing is said in the clear."""
    name: str = ""
    """Shown in the server's connection list."""
    service: str = ""
    """Label of the connection's metrics; empty: the user."""


class Connection(Client):
    """nats-py's client that forgets what it could not send and reports its own state."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self.access = access
        self.label = access.service or access.user
        self.lost = asyncio.Event()
        """Set when the client has given up for good (credentials revoked): the process should end."""
        self.failure = ""
        """The last connection error, for people."""
        self._on_reconnect: list[Callable[[], Awaitable[None] | None]] = []
        self._violations: OrderedDict[str, None] = OrderedDict()
        self._closing = False

    def on_reconnect(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Call back after every re-established connection."""
        self._on_reconnect.append(callback)

    def forbidden(self, subject: str) -> bool:
        """Whether the server has refused to let this user publish to the subject; asking forgets the answer."""
        return self._violations.pop(subject.lower(), False) is None

    async def open(self, timeout: float) -> None:
        """Connect, trying for `timeout` seconds.

        Raises:
            Unavailable: nobody answered, or not to this user.
            FailedPrecondition: the server is older than 2.10.
        """
        access = self.access
        try:
            await asyncio.wait_for(self.connect(**self._options()), timeout)
        except TimeoutError:
            await self.shut()
            raise Unavailable(
                f"NATS at {access.url} did not accept {access.user} within {timeout:g} s: {self.failure}"
            ) from None
        except (OSError, nats.errors.Error, ValueError) as error:
            await self.shut()
            raise Unavailable(f"NATS at {access.url}: {_text(error)}") from error
        version = self.connected_server_version
        if (version.major, version.minor) < OLDEST_SERVER:
            await self.shut()
            raise FailedPrecondition(f"NATS at {access.url} is {version}; gpubus needs 2.10 or newer")
        metrics.bus_connected.labels(self.label).set(1)

    async def shut(self) -> None:
        """Close without reconnecting."""
        self._closing = True
        await self.close()

    def _options(self) -> dict[str, Any]:
        access = self.access
        return {
            "servers": [part.strip() for part in access.url.split(",")],
            "name": access.name or access.user,
            "nkeys_seed": str(access.seed_file) if access.seed_file else None,
            "inbox_prefix": subjects.inbox(access.user),
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": MAX_OUTSTANDING_PINGS,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_SECONDS,
            "connect_timeout": 2,
            "pending_size": -1,
            "error_cb": self._failed,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._reconnected,
            "closed_cb": self._closed,
            **_tls(access.ca_file),
        }

    async def _failed(self, error: Exception) -> None:
        text = _text(error)
        if found := _FORBIDDEN.search(text):
            self._violations[found.group(1).lower()] = None  # nats-py lowers the text
            while len(self._violations) > _REMEMBERED_VIOLATIONS:
                self._violations.popitem(last=False)
            log.error("bus_permission_refused", user=self.access.user, error_text=text)
        elif text != self.failure:
            log.warning("bus_connection_error", user=self.access.user, error_text=text)
        self.failure = text

    async def _disconnected(self) -> None:
        # Nothing is sent after the fact: the caller has been told that it failed, or will time out.
        self._pending: list[bytes] = []
        self._pending_data_size = 0
        metrics.bus_connected.labels(self.label).set(0)
        if not self._closing:
            log.warning("bus_disconnected", user=self.access.user)

    async def _reconnected(self) -> None:
        self.failure = ""
        metrics.bus_connected.labels(self.label).set(1)
        metrics.bus_reconnects.labels(self.label).inc()
        log.info("bus_reconnected", user=self.access.user)
        for callback in list(self._on_reconnect):
            if (waiting := callback()) is not None:
                await guarded("reconnect_callback_failed", waiting)

    async def _closed(self) -> None:
        if not self._closing:
            log.error("bus_closed_for_good", user=self.access.user, error_text=self.failure)
            self.lost.set()


@dataclass(slots=True)
class Request:
    """One request: where to, what, for how long."""

    subject: str
    data: bytes
    timeout: float
    headers: dict[str, str] = field(default_factory=dict)


async def ask(connection: Connection, request: Request) -> Msg:
    """Send a request and return the answer as it came.

    Raises:
        Unavailable: not connected, or nobody listens there.
        DeadlineExceeded: no answer in time; the outcome is unknown.
        PermissionDenied: this user may not ask that.
        TooLarge: over the server's limit.
    """
    _fits(connection, request.subject, request.data, request.headers)
    try:
        return await connection.request(
            request.subject, request.data, timeout=request.timeout, headers=request.headers or None
        )
    except nats.errors.NoRespondersError:
        raise Unavailable(f"nobody answers on {subjects.template(request.subject)}") from None
    except (nats.errors.TimeoutError, TimeoutError):
        if connection.forbidden(request.subject):
            raise PermissionDenied(f"{connection.access.user} may not publish to {request.subject}") from None
        raise DeadlineExceeded(
            f"no answer on {subjects.template(request.subject)} within {request.timeout:g} s"
        ) from None
    except nats.errors.Error as error:
        raise translated(error, request.subject) from None


async def send(
    connection: Connection, subject: str, data: bytes, headers: dict[str, str] | None = None, reply: str = ""
) -> None:
    """Publish without waiting.

    Raises:
        Unavailable: not connected.
        TooLarge: over the server's limit.
    """
    _fits(connection, subject, data, headers or {})
    try:
        await connection.publish(subject, data, reply=reply, headers=headers)
    except nats.errors.Error as error:
        raise translated(error, subject) from None


def _fits(connection: Connection, subject: str, data: bytes, headers: Mapping[str, str]) -> None:
    """The server counts headers too, and ends the connection of whoever sends more; nats-py counts the body alone."""
    size = (
        len(data) + sum(len(key.encode()) + len(value.encode()) + 4 for key, value in headers.items()) + _HEADER_FRAME
    )
    if size > connection.max_payload:
        raise TooLarge(
            f"the message for {subjects.template(subject)} is over the bus's limit of {connection.max_payload} bytes"
        )


def translated(error: nats.errors.Error, subject: str) -> GpubusError:
    """A client-side failure in our taxonomy."""
    if isinstance(error, nats.errors.MaxPayloadError):
        return TooLarge(f"the message for {subjects.template(subject)} is over the bus's limit")
    if isinstance(error, nats.errors.OutboundBufferLimitError):
        return Unavailable("not connected to NATS")
    return Unavailable(f"NATS: {_text(error)}")


def _tls(ca_file: Path | str | None) -> dict[str, Any]:
    if ca_file is None:
        return {}
    import ssl

    return {"tls": ssl.create_default_context(cafile=str(ca_file)), "tls_handshake_first": True}


def _text(error: BaseException) -> str:
    return str(error).removeprefix("nats: ") or type(error).__name__
