"""A router's core NATS side: questions, answered writes, users' answered commands, telemetry.

Nothing here is stored or redelivered; errors are answered to whoever asked. Must not know FastStream.
Read next: shared/bus/client.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg

from shared import subjects
from shared.bus import wire
from shared.bus.client import BusClient, request_context
from shared.bus.context import MessageContext, UserCommand
from shared.bus.observe import observed_request
from shared.bus.router import Bound, Router
from shared.bus.settle import Answer
from shared.commands.objects import WriteObject
from shared.errors import GpubusError
from shared.messages.base import Message, Query, Telemetry
from shared.telemetry.logging import get_logger

log = get_logger(__name__)


async def serve(bus: BusClient, router: Router) -> None:
    """Start answering and sampling for every handler of the router that is not stored."""
    for bound in router.bound:
        message = bound.spec.message
        if message is UserCommand:
            subject = subjects.user_apply_filter(stored=False)
            await bus.serve(subject, router.service, _user_command(router.service, bound), bound.spec.handler)
        elif issubclass(message, Telemetry):
            await bus.listen(subjects.telemetry_filter(message), _sampled(bound))
        elif issubclass(message, WriteObject):
            respond = _decoded(router.service, bound)
            await bus.serve(subjects.write_object_filter(router.service), router.service, respond, bound.spec.handler)
        elif issubclass(message, Query):
            respond = _decoded(router.service, bound)
            await bus.serve(subjects.query_filter(message), router.service, respond, bound.spec.handler)


def _decoded(service: str, bound: Bound) -> Callable[[Msg], Awaitable[Answer]]:
    async def respond(raw: Msg) -> Answer:
        context = request_context(raw, bound.spec.handler)

        async def call() -> Answer:
            message: Message = wire.decode(bound.spec.message, raw.data)
            wire.check_sender(message, raw.subject)
            answer: Answer = await bound.call(message, context)
            return answer

        return await observed_request(service, bound.spec, context, call)

    return respond


def _user_command(service: str, bound: Bound) -> Callable[[Msg], Awaitable[Answer]]:
    async def respond(raw: Msg) -> Answer:
        principal, namespace = subjects.tail(raw.subject)
        verb = (raw.headers or {}).get(wire.VERB, "apply")
        body = UserCommand(verb=verb, principal=principal, namespace=namespace, body=raw.data)
        context = request_context(raw, bound.spec.handler)

        async def call() -> Answer:
            answer: Answer = await bound.call(body, context)
            return answer

        return await observed_request(service, bound.spec, context, call)

    return respond


def _sampled(bound: Bound) -> Callable[[Msg], Awaitable[None]]:
    async def sampled(raw: Msg) -> None:
        try:
            samples = wire.decode_batch(bound.spec.message, raw.data)
            for sample in samples:
                wire.check_sender(sample, raw.subject)
        except GpubusError as error:
            log.warning("telemetry_dropped", subject=subjects.template(raw.subject), code=error.code.value)
            return
        context = MessageContext(handler=bound.spec.handler, message_id="", subject=raw.subject)
        for sample in samples:
            await bound.call(sample, context)

    return sampled
