"""Messages that used up their deliveries without a settlement: their handler crashed or hung the process every time.

The server says so once; the message is read back from its stream and becomes a dead letter. Must not retry anything.
Read next: shared/bus/dead_letter.py.
"""

from __future__ import annotations

from functools import partial

import orjson
from nats.aio.msg import Msg

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.client import BusClient
from shared.bus.dead_letter import DeadLetter, bury
from shared.bus.router import REDRIVE, Router
from shared.clock import Clock
from shared.errors import Code, Malformed
from shared.telemetry.logging import get_logger

log = get_logger(__name__)


def advisory(stream: str, durable: str) -> str:
    """Where the server says that a message of a durable used up its deliveries."""
    return f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.{durable}"


async def watch_exhausted(bus: BusClient, router: Router, clock: Clock) -> None:
    """Turn every such message of the service's durables into a dead letter; one copy of the service does it."""
    watched = {durable: (bound.spec.stream, bound.spec.handler) for durable, bound in router.durables().items()}
    if watched:
        watched[subjects.durable(router.service, REDRIVE)] = (subjects.STREAM_COMMANDS, "")
    for durable, (stream, handler) in watched.items():
        callback = partial(_exhausted, bus, clock, router.service, handler)
        await bus.listen(advisory(stream, durable), callback, queue=router.service)


async def _exhausted(bus: BusClient, clock: Clock, service: str, handler: str, message: Msg) -> None:
    await _bury(bus, service, handler, message.data, clock)


async def _bury(bus: BusClient, service: str, handler: str, advice: bytes, clock: Clock) -> None:
    try:
        body = orjson.loads(advice)
        stream, sequence, attempts = str(body["stream"]), int(body["stream_seq"]), int(body["deliveries"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise Malformed("not a max-deliveries advisory") from None
    original = await jetstream.read_message(bus.connection, stream, sequence)
    if original is None:
        log.error("exhausted_message_gone", handler=handler, stream=stream, stream_sequence=sequence)
        return
    letter = DeadLetter(
        service=service,
        handler=handler or original.subject.rpartition(".")[2].replace("-", "_"),
        subject=original.headers.get(wire.ORIGINAL_SUBJECT, original.subject),
        stream=stream,
        stream_sequence=sequence,
        code=Code.INTERNAL.value,
        reason="its deliveries were used up without a settlement: the process ended or hung each time",
        attempts=attempts,
        first_time=original.time.isoformat(),
        last_time=clock.now().isoformat(),
        data=original.data,
        headers=original.headers,
    )
    await bury(bus.connection, letter)
