"""The relay: one service's outbox, published to the bus in order, nothing lost and nothing doubled.

One copy works at a time (lease). Facts go to the owner's stream with `Nats-Expected-Last-Sequence`; the id of the
stream's last message says what it already has, whatever happened to it or to us. Commands go to the shared command
stream, where only `Nats-Msg-Id` (ten minutes, as long as a command lives) and the receiver's inbox absorb repeats.
Must not decide anything about business. Read next: shared/store/outbox.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared import subjects
from shared.bus import jetstream, wire
from shared.bus.client import BusClient
from shared.bus.dead_letter import DeadLetter, bury
from shared.bus.jetstream import StreamState, WrongSequence
from shared.clock import Clock
from shared.errors import GpubusError, Permanent, Transient, Unavailable
from shared.faults import point
from shared.messages import catalog
from shared.messages.base import Fact
from shared.store.client import Store
from shared.store.documents import LeaseLost
from shared.store.leases import Lease, run_leased
from shared.store.outbox import Checkpoint, Outbox, OutboxEntry
from shared.telemetry import metrics, tracing
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

LEASE = "relay"
HANDLER = "relay"
"""Handler id in dead letters of entries that the bus refused."""
BATCH = 128
"""Entries in flight at once; at 64 the bus takes 46,000 a second, far over what one service commits."""
ACK_SECONDS = 3.0
_BLOCK_MS = 1000
_PAUSE_SECONDS = 0.5
_MEASURE_SECONDS = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

EntryId = tuple[int, int]


@dataclass(slots=True)
class Place:
    """Where publishing goes on."""

    after: str
    """Last entry that needs nothing more."""
    facts_until: EntryId
    """Facts up to this one are in the stream already, even when they lie after `after`."""
    created: str
    """Creation times of both streams; they change when either was lost."""
    sequence: int
    """Last sequence of the owner's stream."""


class Relay:
    """Publishes the outbox of one store's service over one connection."""

    def __init__(self, store: Store, bus: BusClient, clock: Clock) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._outbox = Outbox(store)
        self._stream = subjects.owner_stream(store.service)
        self._reconnected = False
        self._commands_seen = 0
        """Sequence of the last acknowledged command; a shorter command stream has lost some."""
        self._complaint = ""
        bus.on_reconnect(self._look_again)

    async def run(self) -> None:
        """Relay for ever, whenever this copy holds the lease."""
        await run_leased(self._store, LEASE, self._relay, self._clock)

    async def depth(self) -> int:
        """Entries not yet acknowledged."""
        return await self._outbox.depth()

    async def measure(self) -> None:
        """Keep the outbox metrics fresh, in every copy."""
        service = self._store.service
        while True:
            try:
                waiting = await self._outbox.depth()
                metrics.outbox_depth.labels(service).set(waiting)
                metrics.outbox_oldest_seconds.labels(service).set(await self._outbox.oldest_seconds() if waiting else 0)
            except Transient:
                pass  # the store's own metrics and readiness tell
            await asyncio.sleep(_MEASURE_SECONDS)

    def _look_again(self) -> None:
        self._reconnected = True

    async def _relay(self, lease: Lease) -> None:
        while True:
            try:
                place = await self._located(lease)
                self._complain("")
                await self._publish_from(place, lease)
            except LeaseLost:
                raise
            except WrongSequence:
                await asyncio.sleep(0)  # look again at once: the stream is not what it was
            except Transient as error:
                self._complain(str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _located(self, lease: Lease) -> Place:
        """Compare the streams with the checkpoints, and go back if they lost something."""
        self._reconnected = False
        facts, commands = await self._declared(self._stream), await self._declared(subjects.STREAM_COMMANDS)
        created = f"{facts.created}/{commands.created}"
        reached = await self._outbox.position()
        commands_lost = commands.last_sequence < self._commands_seen
        if commands_lost or (
            reached.created and (reached.created != created or facts.last_sequence < reached.sequence)
        ):
            survivor = None if commands_lost else await self._outbox.survivor(created, facts.last_sequence)
            reached = survivor or Checkpoint()
            await self._outbox.rewind(reached, lease)
            self._commands_seen = commands.last_sequence
            metrics.republished.labels(self._store.service).inc()
            log.warning(
                "relay_rewound", stream=self._stream, stream_sequence=facts.last_sequence, entry=reached.entry_id
            )
        until = await self._last_fact(facts.last_sequence)
        return Place(reached.entry_id, until or _entry_id(reached.entry_id), created, facts.last_sequence)

    async def _declared(self, stream: str) -> StreamState:
        state = await jetstream.stream_state(self._bus.connection, stream)
        if state is None:
            raise Unavailable(f"the stream {stream} is not declared; run the migrator")
        return state

    async def _last_fact(self, sequence: int) -> EntryId | None:
        """The entry that the stream's last message came from; None when the stream cannot tell (empty, aged out)."""
        message = await jetstream.read_message(self._bus.connection, self._stream, sequence) if sequence else None
        if message is None:
            return None
        _, _, entry = message.headers.get(jetstream.MESSAGE_ID, "").rpartition(".")
        try:
            return _entry_id(entry)
        except ValueError:
            return None

    async def _publish_from(self, place: Place, lease: Lease) -> None:
        while not self._reconnected:
            entries = await self._outbox.read(place.after, BATCH, _BLOCK_MS)
            if entries:
                await self._publish(entries, place, lease)

    async def _publish(self, entries: list[OutboxEntry], place: Place, lease: Lease) -> None:
        """Publish a batch at once; keep what was acknowledged before the first failure, then raise that."""
        if not lease.held:
            raise LeaseLost("this copy was held up longer than its lease")
        point("relay.before-publish")
        expected = place.sequence
        sending = []
        for entry in entries:
            fact = _is_fact(entry)
            if fact and _entry_id(entry.id) <= place.facts_until:
                sending.append(_already(expected))
                continue
            sending.append(self._send(entry, expected if fact else None))
            expected += fact
        results = await asyncio.gather(*sending, return_exceptions=True)
        point("relay.after-publish")
        await self._keep(entries, results, place, lease)

    async def _keep(
        self, entries: list[OutboxEntry], results: list[int | BaseException], place: Place, lease: Lease
    ) -> None:
        done: OutboxEntry | None = None
        failure: BaseException | None = None
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, BaseException):
                failure = result if not _for_good(result) else await self._refused(entry, result)
                done = done if not _for_good(result) else entry
                break
            done = entry
            place.sequence = max(place.sequence, result)
        if done is not None:
            waiting = await self._outbox.checkpoint(done.id, place.created, place.sequence, lease)
            place.after = done.id
            metrics.outbox_depth.labels(self._store.service).set(waiting.entries)
        if failure is not None:
            raise failure

    async def _send(self, entry: OutboxEntry, expected: int | None) -> int:
        """Publish one entry; the sequence of the owner's stream afterwards (0 for a command)."""
        cause = tracing.Cause(entry.correlation, entry.causation, entry.traceparent)
        around = wire.Seal(
            id=entry.message_id,
            source=f"/services/{self._store.service}/{self._store.instance}",
            type=entry.type,
            about=entry.about,
            time=_EPOCH + timedelta(microseconds=entry.time_us),
            cause=cause,
            resource_version=entry.revision,
            epoch=entry.epoch,
        )
        headers = wire.envelope_headers(cause, entry.message_id)
        if expected is not None:
            headers[jetstream.EXPECTED_STREAM] = self._stream
            headers[jetstream.EXPECTED_SEQUENCE] = str(expected)
        attributes = {tracing.MESSAGE_ID: entry.message_id, tracing.CONVERSATION: entry.correlation}
        with tracing.span("publish", subjects.template(entry.subject), attributes, entry.traceparent):
            body = wire.seal(entry.data, around)
            point("relay.sending")
            stored = await jetstream.publish(self._bus.connection, entry.subject, body, headers, timeout=ACK_SECONDS)
        metrics.relayed.labels(self._store.service).inc()
        if expected is None:
            self._commands_seen = max(self._commands_seen, stored.sequence)
            return 0
        return stored.sequence

    async def _refused(self, entry: OutboxEntry, error: BaseException) -> WrongSequence:
        """Park an entry that the bus will never take; the ones behind it expected one more before them."""
        assert isinstance(error, GpubusError), "only the taxonomy is refused for good"
        moment = _EPOCH + timedelta(microseconds=entry.time_us)
        letter = DeadLetter(
            service=self._store.service,
            handler=HANDLER,
            subject=entry.subject,
            stream="",
            stream_sequence=0,
            code=error.code.value,
            reason=error.message,
            attempts=1,
            first_time=moment.isoformat(),
            last_time=self._clock.now().isoformat(),
            data=entry.data,
            headers={jetstream.MESSAGE_ID: entry.message_id},
        )
        await bury(self._bus.connection, letter)
        metrics.outbox_refused.labels(self._store.service).inc()
        return WrongSequence("an entry was refused for good")

    def _complain(self, text: str) -> None:
        if text and text != self._complaint:
            log.warning("relay_waits", stream=self._stream, error_text=text)
        elif self._complaint and not text:
            log.info("relay_goes_on", stream=self._stream)
        self._complaint = text


async def _already(sequence: int) -> int:
    return sequence


def _is_fact(entry: OutboxEntry) -> bool:
    known = catalog.BY_TYPE.get(entry.type)
    return known is None or issubclass(known.message, Fact)


def _for_good(error: BaseException) -> bool:
    return isinstance(error, Permanent)  # too large, not permitted, not for this stream


def _entry_id(text: str) -> EntryId:
    major, _, minor = text.partition("-")
    return int(major), int(minor)
