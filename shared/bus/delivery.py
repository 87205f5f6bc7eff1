"""One delivery of a stored message: opening it, running its handler, carrying out the judgement.

Must not decide (shared/bus/settle.py does) and must not know FastStream (shared/bus/broker.py feeds it).
Read next: shared/bus/router.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nats.aio.msg import Msg

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.connection import Connection, send
from shared.bus.context import MessageContext, UserCommand
from shared.bus.dead_letter import DeadLetter, bury
from shared.bus.settle import Answer, Judgement, Undecodable, Verdict, guarded, judge, outcome_of
from shared.clock import Clock
from shared.errors import GpubusError
from shared.faults import point
from shared.telemetry.logging import get_logger
from shared.telemetry.tracing import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.bus.router import Bound

log = get_logger(__name__)

RENEW_SECONDS = 1.0
_NOT_STORED = 1.0
"""Seconds until the next try when a dead letter could not be stored."""


@dataclass(slots=True)
class Delivery:
    """One message in the hands of one handler."""

    connection: Connection
    service: str
    bound: Bound
    raw: Msg
    clock: Clock
    subject: str = ""
    """Where it was first published (a redrive travels elsewhere)."""
    context: MessageContext = field(init=False)
    cause: Cause = field(default_factory=Cause)
    judgement: Judgement | None = None
    answer: Answer = None
    _body: Any = None
    _broken: GpubusError | None = None

    def __post_init__(self) -> None:
        headers = self.raw.headers or {}
        self.subject = headers.get(wire.ORIGINAL_SUBJECT, self.raw.subject)
        try:
            self.context = self._open(headers)
        except GpubusError as error:
            self._broken = Undecodable(error.message, error.causes)
            self.context = self._context(headers, self._stored_id())

    @property
    def attempt(self) -> int:
        """1 on first delivery."""
        return self.raw.metadata.num_delivered

    async def handle(self) -> Answer:
        """Run the handler on the decoded message.

        Raises:
            Undecodable: the bytes are not what the subject promises.
        """
        if self._broken is not None:
            raise self._broken
        self.answer = await self.bound.call(self._body, self.context)
        return self.answer

    async def judged(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run `work`, renewing the acknowledgement every second, then settle by what came out."""
        spec = self.bound.spec
        with self._renewed():
            _, error = await outcome_of(work, handler=spec.handler, timeout=spec.timeout)
        self.judgement = judge(error, attempt=self.attempt, attempts=spec.attempts, answers=spec.answers)
        await self._carry_out(self.judgement)

    async def _carry_out(self, judgement: Judgement) -> None:
        if judgement.verdict is Verdict.NAK:
            await guarded("nak_lost", self.raw.nak(delay=judgement.delay))
            return
        if judgement.verdict is Verdict.DEAD_LETTER and not await self._buried(judgement):
            await guarded("nak_lost", self.raw.nak(delay=_NOT_STORED))
            return
        await self._respond(judgement)
        point("bus.before-ack")
        settled = self.raw.ack() if judgement.verdict is Verdict.ACK else self.raw.term()
        await guarded("ack_lost", settled)  # then it comes again, and the inbox or the state absorbs it

    async def _buried(self, judgement: Judgement) -> bool:
        assert judgement.error is not None, "only errors are buried"
        try:
            await bury(self.connection, self._letter(judgement.error))
        except GpubusError as error:
            log.warning(
                "dead_letter_not_stored", handler=self.bound.spec.handler, code=error.code.value, error_text=str(error)
            )
            return False
        return True

    async def _respond(self, judgement: Judgement) -> None:
        inbox = (self.raw.headers or {}).get(wire.REPLY_TO, "")
        if self.bound.spec.message is not UserCommand or not inbox:
            return
        principal, _ = subjects.tail(self.subject)
        if not inbox.startswith(f"{subjects.inbox(principal)}."):
            log.warning("answer_refused", handler=self.bound.spec.handler, reason="ReplyToIsNotTheSenders")
            return
        body, headers = wire.error_answer(judgement.error) if judgement.error else wire.answer(self.answer)
        headers |= {wire.CAUSATION: self.context.message_id}
        await guarded("answer_lost", send(self.connection, inbox, body, headers))

    def _open(self, headers: Mapping[str, str]) -> MessageContext:
        message = self.bound.spec.message
        if message is UserCommand:
            principal, namespace = subjects.tail(self.subject)
            self._body = UserCommand(
                verb=headers.get(wire.VERB, "apply"), principal=principal, namespace=namespace, body=self.raw.data
            )
            message_id = headers.get(wire.MESSAGE_ID) or headers.get(jetstream.MESSAGE_ID) or self._stored_id()
            self.cause = Cause(headers.get(wire.CORRELATION, message_id), message_id, headers.get(wire.TRACEPARENT, ""))
            return self._context(headers, message_id)
        envelope, body = wire.unseal(message, self.raw.data)
        wire.check_sender(body, self.subject)
        self._body = body
        message_id = headers.get(wire.MESSAGE_ID, envelope.id)
        correlation = envelope.correlationid or message_id
        self.cause = Cause(correlation, message_id, envelope.traceparent)
        return self._context(
            headers,
            message_id,
            correlation_id=correlation,
            causation_id=envelope.causationid,
            resource_version=_number(envelope.resourceversion),
            epoch=envelope.epoch,
        )

    def _context(self, headers: Mapping[str, str], message_id: str, **more: Any) -> MessageContext:
        return MessageContext(
            handler=self.bound.spec.handler,
            message_id=message_id,
            subject=self.subject,
            attempt=self.attempt,
            headers=headers,
            renew=self.raw.in_progress,
            **more,
        )

    def _stored_id(self) -> str:
        metadata = self.raw.metadata
        return f"{metadata.stream}.{metadata.sequence.stream}.{int(metadata.timestamp.timestamp() * 1000)}"

    def _letter(self, error: GpubusError) -> DeadLetter:
        metadata = self.raw.metadata
        return DeadLetter(
            service=self.service,
            handler=self.bound.spec.handler,
            subject=self.subject,
            stream=metadata.stream,
            stream_sequence=metadata.sequence.stream,
            code=error.code.value,
            reason=error.message,
            attempts=self.attempt,
            first_time=metadata.timestamp.isoformat(),
            last_time=self.clock.now().isoformat(),
            data=self.raw.data,
            headers=dict(self.raw.headers or {}),
        )

    @contextmanager
    def _renewed(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        renewing: set[asyncio.Task[None]] = set()

        def renew() -> None:
            task = loop.create_task(guarded("renew_lost", self.raw.in_progress()))
            renewing.add(task)
            task.add_done_callback(renewing.discard)
            timers[:] = [loop.call_later(RENEW_SECONDS, renew)]

        timers.append(loop.call_later(RENEW_SECONDS, renew))
        try:
            yield
        finally:
            timers[0].cancel()


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
