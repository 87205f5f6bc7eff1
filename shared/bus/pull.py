"""One worker's pull from a durable that already exists: one message per request, awake again after a reconnect.

nats-py's own pull asks `CONSUMER.INFO`, creates what is missing and waits out its timeout when a request was lost with
a connection; services may not do the first two and should not do the third. Must not ack or decide.
Read next: shared/bus/broker.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from shared.bus.connection import Connection
from shared.bus.settle import guarded
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

PULL_SECONDS = 60.0
"""How long one request waits at the server; long, because an idle service should be idle."""
_PAUSE_SECONDS = 0.5
"""Before asking again when the stream or durable is not there, or the server says it is busy."""
_EMPTY = frozenset({"404", "408"})
_HEARTBEAT = "100"


class DurablePull:
    """What FastStream takes for a nats-py pull subscription."""

    def __init__(self, connection: Connection, stream: str, durable: str) -> None:
        self._connection = connection
        self._request_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._durable = durable
        self._inbox = connection.new_inbox()
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._complained = False

    async def open(self) -> None:
        """Listen for what the server delivers."""
        self._subscription = await self._connection.subscribe(self._inbox, cb=self._arrive)
        self._connection.on_reconnect(self._wake)

    async def fetch(self, batch: int = 1, timeout: float | None = PULL_SECONDS) -> list[Msg]:
        """The next message.

        Args:
            batch: Always one: a worker holds no message that another could work on.
            timeout: Seconds the request stays at the server.

        Raises:
            TimeoutError: nothing came, or nothing could be asked; call again.
        """
        assert batch == 1, "one message per pull and worker"
        patience = timeout or PULL_SECONDS
        while not self._arrived.empty():  # answers to a request that was given up
            late = self._arrived.get_nowait()
            if late is not None and late.reply:
                return [late]
        request = orjson.dumps({"batch": 1, "expires": int(patience * 1_000_000_000)})
        try:
            await self._connection.publish(self._request_subject, request, reply=self._inbox)
        except nats.errors.Error:
            await self._next(patience)  # not connected: the reconnect wakes this
            raise nats.errors.TimeoutError from None
        while True:
            message = await self._next(patience + 1)
            if message is None:
                raise nats.errors.TimeoutError
            status = (message.headers or {}).get("Status") if not message.data else None
            if status is None:
                self._complained = False
                return [message]
            if status != _HEARTBEAT:
                await self._status(status, message)

    async def unsubscribe(self) -> None:
        """Stop; what the server has already sent goes back to it at once."""
        if self._subscription is not None and not self._connection.is_closed:
            await guarded("unsubscribe_failed", self._subscription.unsubscribe())
        self._subscription = None
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message is not None and message.reply:
                await guarded("nak_lost", message.nak())

    async def _status(self, status: str, message: Msg) -> None:
        if status not in _EMPTY:
            if not self._complained:
                self._complained = True
                text = (message.headers or {}).get("Description", "no responders")
                log.warning("durable_not_available", durable=self._durable, status=status, error_text=text)
            await asyncio.sleep(_PAUSE_SECONDS)
        raise nats.errors.TimeoutError

    async def _next(self, patience: float) -> Msg | None:
        try:
            async with asyncio.timeout(patience):  # wait_for may swallow a cancellation below Python 3.12
                return await self._arrived.get()
        except TimeoutError:
            return None

    async def _arrive(self, message: Msg) -> None:
        self._arrived.put_nowait(message)

    def _wake(self) -> None:
        self._arrived.put_nowait(None)


class BoundJetStream(JetStreamContext):
    """nats-py's JetStream context, except that it binds to durables and never declares them."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._connection = connection

    async def pull_subscribe(  # type: ignore[override]
        self, subject: str, durable: str | None = None, stream: str | None = None, **_: Any
    ) -> DurablePull:
        """A pull on an existing durable."""
        assert durable, f"no durable for {subject}"
        assert stream, f"no stream for {subject}"
        pull = DurablePull(self._connection, stream, durable)
        await pull.open()
        return pull
