"""BusClient: everything a process does on core NATS, and the one connection it does it on.

Asks and answers questions, writes, reports, telemetry and wakes. No FastStream: agents, the gateway and the command
line use nothing else. Read next: shared/bus/router.py for what controllers consume durably.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.connection import Access, Connection, Request, ask, send
from shared.bus.context import MessageContext
from shared.bus.settle import Answer, guarded, outcome_of
from shared.bus.tasks import TaskPool
from shared.clock import Clock, SystemClock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.envelope import Envelope
from shared.errors import GpubusError, InvalidArgument
from shared.messages.base import Fact, Message, Query, Report, Telemetry
from shared.messages.catalog import type_name
from shared.telemetry.logging import get_logger
from shared.telemetry.tracing import Cause, caused_by, current_cause

log = get_logger(__name__)

Q = TypeVar("Q", bound=Query)
T = TypeVar("T", bound=Telemetry)
F = TypeVar("F", bound=Fact)

Raw = Callable[[Msg], Awaitable[None]]
HANDLER_SECONDS = 30.0
REPORT_SECONDS = 5.0


class BusClient:
    """One process's (or one simulated node's) place on the bus."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self.connection = connection
        self._clock = clock
        self._tasks = TaskPool()
        self._subscriptions: list[Subscription] = []
        self._listening: set[asyncio.Future[None]] = set()

    @classmethod
    async def connect(
        cls,
        *,
        url: str,
        user: str,
        seed_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        name: str = "",
        service: str = "",
        timeout: float = 30.0,
        clock: Clock | None = None,
    ) -> BusClient:
        """Connect as `user` (`scheduler`, `node-<name>`), waiting up to `timeout` seconds for the server.

        Args:
            url: NATS servers, comma separated.
            user: Whose permissions; its inboxes are `_INBOX_<user>.>`.
            seed_file: The user's NKey seed; None for a server without users.
            ca_file: CA of a server on another host: the connection is TLS from its first byte.
            name: Shown in the server's connection list, e.g. `scheduler/1`.
            service: Label of metrics; the user when empty.
            timeout: Seconds of patience.
            clock: For times in envelopes.

        Raises:
            Unavailable: nobody answered, or not to this user.
            FailedPrecondition: the server is older than 2.10.
        """
        connection = Connection(
            Access(url=url, user=user, seed_file=seed_file, ca_file=ca_file, name=name, service=service)
        )
        await connection.open(timeout)
        return cls(connection, clock or SystemClock())

    @property
    def connected(self) -> bool:
        """Whether the server is there now."""
        return self.connection.is_connected

    @property
    def user(self) -> str:
        """Whose permissions this connection has."""
        return self.connection.access.user

    @property
    def lost(self) -> asyncio.Event:
        """Set when the connection has ended for good and the process should too."""
        return self.connection.lost

    async def reachable(self, timeout: float = 1.0) -> bool:
        """Whether the server answers now; what it sent before its answer has been received then. `timeout` is seconds."""
        try:
            await self.connection.flush(timeout)  # type: ignore[arg-type]  # a whole number of seconds is not needed
        except (nats.errors.Error, TimeoutError, OSError):
            return False
        return self.connected

    def on_reconnect(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Call back after every re-established connection."""
        self.connection.on_reconnect(callback)

    async def close(self, timeout: float = 5.0) -> None:
        """Stop listening, finish what is being answered, close. `timeout` is seconds."""
        if self.connected:
            for subscription in self._subscriptions:
                await guarded("unsubscribe_failed", _quietly(subscription))
        await self._tasks.drain(timeout)
        await self.connection.shut()

    # Asking

    async def ask(self, query: Query, timeout: float = 2.0) -> Any:
        """Ask and return the answer (an instance of `query.ANSWER`).

        Raises:
            Unavailable: nobody answers such questions now.
            DeadlineExceeded: no answer in `timeout` seconds.
            GpubusError: what the other side answered.
        """
        return await self._ask(subjects.query(type(query), query.key), query, query.ANSWER, timeout)

    async def write(self, owner: str, write: WriteObject, timeout: float = 5.0) -> WriteAnswer:
        """Have one object written by its owner.

        Raises:
            Unavailable: the owner is not there; nothing was written.
            DeadlineExceeded: no answer in time; the outcome is unknown.
            GpubusError: the owner's refusal.
        """
        subject = subjects.write_object(owner, write.namespace, write.name)
        answer: WriteAnswer = await self._ask(subject, write, WriteAnswer, timeout)
        return answer

    async def apply(
        self, principal: str, namespace: str, manifest: bytes, *, verb: str = "apply", timeout: float = 10.0
    ) -> dict[str, Any]:
        """A user's own command: have one manifest (YAML or JSON) applied, created or deleted, and return the answer.

        Raises:
            Unavailable, DeadlineExceeded: as for a write.
            GpubusError: the refusal.
        """
        subject = subjects.user_apply(principal, namespace, stored=False)
        headers = {**wire.request_headers(timeout), wire.VERB: verb}
        message = await ask(self.connection, Request(subject, manifest, timeout, headers))
        wire.raise_answered(message.headers, message.data)
        body: dict[str, Any] = orjson.loads(message.data)
        return body

    async def _ask(self, subject: str, question: Message, answer: type[Message], timeout: float) -> Any:
        request = Request(subject, wire.encode(question), timeout, wire.request_headers(timeout))
        message = await ask(self.connection, request)
        wire.raise_answered(message.headers, message.data)
        return wire.decode(answer, message.data)

    # Telling

    async def report(self, report: Report, timeout: float = REPORT_SECONDS) -> None:
        """Store a report; returns when the bus has it. A repeat of the same incarnation and sequence is absorbed.

        Raises:
            Unavailable, DeadlineExceeded: it may not be stored; send it (or a newer one) again.
            PermissionDenied: another node's report.
        """
        cls = type(report)
        message_id = f"{cls.SERVICE}.{cls.WHAT}.{report.node}.{report.incarnation}.{report.key}.{report.sequence}"
        cause = current_cause()
        around = wire.Seal(
            id=message_id,
            source=f"/nodes/{report.node}/{cls.SERVICE}",
            type=type_name(cls),
            about=f"{cls.SERVICE}/{report.node}/{report.key}",
            time=self._clock.now(),
            cause=cause,
        )
        body = wire.seal(wire.encode(report), around)
        subject = subjects.report(cls, report.node, report.key)
        await jetstream.publish(
            self.connection, subject, body, wire.envelope_headers(cause, message_id), timeout=timeout
        )

    async def tell(self, *telemetry: Telemetry) -> None:
        """Send samples of one type and source, lossy: silently nothing while disconnected."""
        if not telemetry or not self.connected:
            return
        first = telemetry[0]
        subject = subjects.telemetry(type(first), first.source)
        body = wire.encode(first) if len(telemetry) == 1 else b"[" + b",".join(map(wire.encode, telemetry)) + b"]"
        await guarded("telemetry_lost", send(self.connection, subject, body))

    async def wake(self, node: str, revision: int) -> None:
        """Nudge one node's agents: the desired set changed as of `revision`. Lossy."""
        if self.connected:
            await guarded("wake_lost", send(self.connection, subjects.wake(node), orjson.dumps({"revision": revision})))

    # Listening: each returns at once; await the result to be sure that the subscription was sent.

    def on_wake(self, node: str, callback: Callable[[int], Awaitable[None] | None]) -> asyncio.Future[None]:
        """Call back with the revision of every wake of a node."""

        async def woken(message: Msg) -> None:
            revision = _revision(message.data)
            waiting = callback(revision)
            if waiting is not None:
                await guarded("wake_callback_failed", waiting)

        return self.listen(subjects.wake(node), woken)

    def on_telemetry(self, cls: type[T], callback: Callable[[T], Awaitable[None] | None]) -> asyncio.Future[None]:
        """Call back with every sample of one type; ones that are malformed or speak for another are dropped."""

        async def sampled(message: Msg) -> None:
            try:
                samples = wire.decode_batch(cls, message.data)
                for sample in samples:
                    wire.check_sender(sample, message.subject)
            except GpubusError as error:
                log.warning("telemetry_dropped", subject=subjects.template(message.subject), code=error.code.value)
                return
            for sample in samples:
                waiting = callback(sample)
                if waiting is not None:
                    await guarded("telemetry_callback_failed", waiting)

        return self.listen(subjects.telemetry_filter(cls), sampled)

    def on_fact(self, cls: type[F], callback: Callable[[F, int], Awaitable[None] | None]) -> asyncio.Future[None]:
        """Call back with (fact, document revision), lossy and in every process: a wake-up for in-memory tables."""

        async def happened(message: Msg) -> None:
            try:
                envelope, fact = wire.unseal(cls, message.data)
            except GpubusError as error:
                log.warning("fact_dropped", subject=subjects.template(message.subject), code=error.code.value)
                return
            waiting = callback(fact, int(envelope.resourceversion or 0))
            if waiting is not None:
                await guarded("fact_callback_failed", waiting)

        return self.listen(subjects.fact_filter(cls), happened)

    def on_every_fact(self, callback: Callable[[Envelope], None]) -> asyncio.Future[None]:
        """Call back with the envelope of every fact of every owner, lossy: for people's eyes only."""

        async def happened(message: Msg) -> None:
            try:
                envelope = wire.decode(Envelope, message.data)
            except GpubusError as error:
                log.warning("fact_dropped", subject=subjects.template(message.subject), code=error.code.value)
                return
            callback(envelope)

        return self.listen(subjects.of_class("evt"), happened)

    def answer(self, cls: type[Q], node: str, handler: Callable[[Q], Awaitable[Message]]) -> asyncio.Future[None]:
        """Answer one question for one node (agents); errors are answered too."""

        async def asked(message: Msg) -> None:
            async def respond() -> Answer:
                query = wire.decode(cls, message.data)
                wire.check_sender(query, message.subject)
                return await handler(query)

            await self._tasks.spawn(self.respond(message, cls.QUESTION, respond))

        return self.listen(subjects.query_filter(cls, node), asked)

    def serve(
        self, subject: str, queue: str, respond: Callable[[Msg], Awaitable[Answer]], handler: str
    ) -> asyncio.Future[None]:
        """Answer requests as one of a queue group; the router's queries and writes come here."""

        async def asked(message: Msg) -> None:
            await self._tasks.spawn(self.respond(message, handler, lambda: respond(message)))

        return self.listen(subject, asked, queue=queue)

    async def respond(self, message: Msg, handler: str, work: Callable[[], Awaitable[Answer]]) -> None:
        """Do the work and send its answer or error to whoever asked."""
        with caused_by(cause_of(message)):
            result, error = await outcome_of(work, handler=handler, timeout=HANDLER_SECONDS)
        if not message.reply:
            return
        body, headers = wire.error_answer(error) if error else wire.answer(result)
        await guarded("answer_lost", send(self.connection, message.reply, body, headers))

    def listen(self, subject: str, callback: Raw, *, queue: str = "") -> asyncio.Future[None]:
        """Call back with every raw message of a subject, one after the other."""

        async def received(message: Msg) -> None:
            await guarded("callback_failed", callback(message))

        async def subscribe() -> None:
            self._subscriptions.append(await self.connection.subscribe(subject, queue=queue, cb=received))

        listening = asyncio.ensure_future(subscribe())
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)
        return listening


def cause_of(message: Msg) -> Cause:
    """The cause that a core NATS message carries in its headers."""
    headers = message.headers or {}
    correlation = headers.get(wire.CORRELATION, "")
    return Cause(
        correlation,
        headers.get(wire.MESSAGE_ID, "") or headers.get(wire.CAUSATION, ""),
        headers.get(wire.TRACEPARENT, ""),
    )


def request_context(message: Msg, handler: str) -> MessageContext:
    """The context of a request, whose message id is its inbox unless the caller named one."""
    headers: Mapping[str, str] = message.headers or {}
    patience = headers.get(wire.TIMEOUT_MS, "")
    cause = cause_of(message)
    return MessageContext(
        handler=handler,
        message_id=headers.get(wire.MESSAGE_ID) or message.reply,
        subject=message.subject,
        correlation_id=cause.correlation_id,
        causation_id=cause.causation_id,
        deadline=asyncio.get_running_loop().time() + int(patience) / 1000 if patience.isdigit() else None,
        headers=headers,
    )


def _revision(data: bytes) -> int:
    try:
        body = orjson.loads(data)
        return int(body["revision"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise InvalidArgument('a wake is {"revision": n}') from None


async def _quietly(subscription: Subscription) -> None:
    await subscription.drain()  # type: ignore[no-untyped-call]
