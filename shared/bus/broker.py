"""The FastStream broker of one controller: durable subscribers with our acknowledgement, traces, metrics and log line.

FastStream's own acknowledgement is off (it discards a message at the first exception). Middlewares in the one right
order: observe outside, settle inside. Must not know business.
Read next: shared/bus/settle.py.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from shared import subjects
from shared.bus.client import BusClient
from shared.bus.context import UserCommand
from shared.bus.delivery import Delivery
from shared.bus.exhausted import watch_exhausted
from shared.bus.lean import hidden
from shared.bus.observe import observed_delivery
from shared.bus.pull import PULL_SECONDS, BoundJetStream
from shared.bus.requests import serve
from shared.bus.router import REDRIVE, Bound, Router, Spec
from shared.bus.settle import Undecodable
from shared.clock import Clock
from shared.messages.base import Command, Fact, Report
from shared.telemetry.logging import get_logger

# FastStream brings its own HTTP server and command line when it finds their libraries.
with hidden("uvicorn", "click", "typer", "watchfiles", "starlette", "email_validator", "trio"):
    from faststream import AckPolicy, BaseMiddleware
    from faststream.message import StreamMessage
    from faststream.nats import JStream, NatsBroker, PullSub

log = get_logger(__name__)

_DELIVERY: contextvars.ContextVar[Delivery] = contextvars.ContextVar("gpubus_delivery")

Next = Callable[[Any], Awaitable[Any]]


class Observe(BaseMiddleware[Any, Any]):
    """Opens the delivery, gives it its cause and span, counts and logs it."""

    def __init__(self, open_delivery: Callable[[Msg], Delivery], raw: Any, /, *, context: Any) -> None:
        super().__init__(raw, context=context)
        self._open = open_delivery

    async def consume_scope(self, call_next: Next, msg: StreamMessage[Any]) -> Any:
        """See base."""
        raw: Msg = msg.raw_message
        delivery = self._open(raw)
        token = _DELIVERY.set(delivery)
        try:
            return await observed_delivery(delivery, raw.metadata.consumer, partial(call_next, msg))
        finally:
            _DELIVERY.reset(token)


class Settle(BaseMiddleware[Any, Any]):
    """Turns what the handler did into ack, nak, answer or dead letter; nothing gets past it but cancellation."""

    async def consume_scope(self, call_next: Next, msg: StreamMessage[Any]) -> Any:
        """See base."""
        await _DELIVERY.get().judged(partial(call_next, msg))


class HouseBroker(NatsBroker):
    """FastStream on the process's one connection, binding to durables that the migrator declared."""

    def __init__(self, bus: BusClient, open_delivery: Callable[[Msg], Delivery], drain_seconds: float) -> None:
        middlewares = (partial(Observe, open_delivery), Settle)
        super().__init__(
            apply_types=False,  # the delivery decodes; FastStream's own decoding would be a second one
            decoder=_undecoded,
            logger=None,
            middlewares=middlewares,
            graceful_timeout=drain_seconds,
        )
        self._bus = bus

    async def _connect(self) -> Client:
        connection = self._bus.connection
        self.config.connect(connection)
        self.config.connection_state.connect(connection, BoundJetStream(connection))
        return connection

    async def stop(self, *error: Any) -> None:
        """Stop pulling and wait for handlers in hand; the connection is the BusClient's to close."""
        await super(NatsBroker, self).stop(*error)  # NatsBroker's own would close the connection


class RouterRunner:
    """A router on the bus: everything it handles, from start to drain."""

    def __init__(self, bus: BusClient, router: Router, clock: Clock, drain_seconds: float = 15.0) -> None:
        self._bus = bus
        self._router = router
        self._clock = clock
        self._durables = router.durables()
        self._broker = HouseBroker(bus, self._opened, drain_seconds)
        for durable, bound in self._durables.items():
            for _ in range(bound.spec.workers):
                self._subscribe(durable, bound.spec.stream, _filter(bound.spec))
        if self._durables:
            durable = subjects.durable(router.service, REDRIVE)
            self._subscribe(durable, subjects.STREAM_COMMANDS, subjects.redrive_filter(router.service))

    async def start(self) -> None:
        """Start answering, then pulling."""
        await watch_exhausted(self._bus, self._router, self._clock)
        await serve(self._bus, self._router)
        await self._broker.start()

    async def stop(self) -> None:
        """Stop pulling, finish the handlers in hand."""
        await self._broker.stop()

    def _subscribe(self, durable: str, stream: str, subject: str) -> None:
        subscriber = self._broker.subscriber(
            subject,
            durable=durable,
            stream=JStream(stream, declare=False),
            pull_sub=PullSub(batch_size=1, timeout=PULL_SECONDS),
            ack_policy=AckPolicy.MANUAL,
            no_reply=True,
        )
        subscriber(_handle)

    def _opened(self, raw: Msg) -> Delivery:
        durable = raw.metadata.consumer
        bound = self._durables.get(durable) or self._redriven(raw.subject)
        return Delivery(self._bus.connection, self._router.service, bound, raw, self._clock)

    def _redriven(self, subject: str) -> Bound:
        handler = subject.rpartition(".")[2]
        bound = self._durables.get(subjects.durable(self._router.service, handler))
        return bound or Bound(Spec(message=UserCommand, handler=handler.replace("-", "_")), _no_handler)


async def _handle(_: Any) -> Any:
    return await _DELIVERY.get().handle()


async def _no_handler(_: Any, __: Any) -> Any:
    raise Undecodable("the handler this was redriven to does not exist any more")


async def _undecoded(message: StreamMessage[Any]) -> Any:
    return message.body


def _filter(spec: Spec) -> str:
    message = spec.message
    if message is UserCommand:
        return subjects.user_apply_filter(stored=True)
    if issubclass(message, Fact):
        return subjects.fact_filter(message)
    if issubclass(message, Report):
        return subjects.report_filter(message)
    assert issubclass(message, Command), f"{message.__name__} is not stored"
    return subjects.command_filter(message)
