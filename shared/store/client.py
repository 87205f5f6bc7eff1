"""The store of one process: reads, atomic commits, and the epoch that says which state they belong to.

Owns when a commit is tried again and when a server that lost its scripts is recovered. Must not decide anything.
Read next: scripts/commit.lua, then shared/store/cache.py.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, Self

from shared.clock import Clock
from shared.errors import DeadlineExceeded, GpubusError, Raced, Unavailable
from shared.store import keys, log, wire
from shared.store.checks import check_server
from shared.store.connection import Connection, Lost, NoScript
from shared.store.documents import Commit, Committed, Document, LogEntry, Snapshot, StaleEpoch
from shared.store.leases import Lease
from shared.store.scripts import GATED, READ_ONLY, RECOVER
from shared.store.slots import Slots
from shared.subjects import SERVICES
from shared.telemetry.metrics import commit_conflicts
from shared.telemetry.tracing import current_cause

EPOCH_JUMP_US = 60_000_000
"""A new epoch's revisions start this far ahead of everything known (contract: a minute)."""
_GAPS_KEPT = 20
_COMMIT_PAUSES = (0.02, 0.1, 0.3, 0.7)
"""Seconds between attempts of a commit; the last one repeats."""
_BUCKET_US = 300_000_000
_BUCKETS = 3


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What an operator may set."""

    allow_unsafe_redis: bool = False
    """Start although the server hides or lacks AOF, noeviction or the primary role."""
    outbox_limit: int = 64 * 1024 * 1024
    """Unpublished bytes of one service; ordinary commits stop at four fifths of it."""
    commit_seconds: float = 5.0
    """How long a commit without an answer is tried again before its caller is told that the outcome is unknown."""
    wait_replicas: int = 0
    """Replicas that must have a commit before it is answered; 1 with a replicated Redis (and min-replicas-to-write 1)."""
    log_keep_us: int = 600_000_000
    log_max: int = 100_000


class Store:
    """One per process; safe for any number of tasks."""

    def __init__(
        self, connection: Connection, *, service: str, instance: str, clock: Clock, options: StoreOptions
    ) -> None:
        self.service = service
        self.instance = instance
        self.clock = clock
        self.options = options
        self.connection = connection
        self.epoch = ""
        """The current epoch; changes when recover.lua started a new one."""
        self.seen = 0
        """The highest revision this process has met; a recovery passes it."""
        self._boot = f"{instance}:{secrets.token_hex(6)}"
        self._slots = Slots(clock)
        self._recovering = asyncio.Lock()
        self._origin = wire.Origin(service, self._boot, options.outbox_limit, options.log_keep_us, options.log_max)

    @classmethod
    async def connect(
        cls, *, url: str, service: str, instance: str, clock: Clock, options: StoreOptions | None = None
    ) -> Self:
        """Connect, check the server, join its epoch.

        Raises:
            FailedPrecondition: the server is unfit; the message says what to change.
            Unavailable: it cannot be reached. Unauthenticated: it refuses the user.
        """
        options = options or StoreOptions()
        connection = Connection(url, f"gpubus-{service}")
        store = cls(connection, service=service, instance=instance, clock=clock, options=options)
        try:
            check_server(await connection.info(), allow_unsafe=options.allow_unsafe_redis)
            await connection.retried(store.recover)
        except BaseException:
            await connection.close()
            raise
        return store

    @property
    def reachable(self) -> bool:
        """Whether Redis answered the last time this process asked; for readiness."""
        return self.connection.answering

    async def close(self) -> None:
        """Close every connection."""
        await self.connection.close()

    async def get(self, kind: str, namespace: str, name: str) -> Document | None:
        """One document, None when there is none."""
        found = await self.connection.read("HMGET", keys.doc(kind, namespace, name), "rev", "uid", "schema", "body")
        document = log.document(kind, namespace, name, found)
        if document is not None:
            self.saw(document.revision)
        return document

    async def get_many(self, wanted: Collection[tuple[str, str, str]]) -> dict[tuple[str, str, str], Document | None]:
        """Several documents by (kind, namespace, name), each read on its own."""
        found = await asyncio.gather(*(self.get(*key) for key in wanted))
        return dict(zip(wanted, found, strict=True))

    async def snapshot(self, kinds: Collection[str]) -> Snapshot:
        """All documents of some kinds at one instant, ordered by kind as given, namespace, name."""
        ordered = list(kinds)
        names = [keys.META, *(keys.index(kind) for kind in ordered)]
        starts = [keys.doc(kind, "", "").removesuffix("/") for kind in ordered]
        reply = await self.read_script("snapshot", names, starts)
        taken = log.snapshot(ordered, reply)
        self.saw(taken.revision)
        return taken

    async def commit(self, commit: Commit) -> Committed:
        """Write all of it or nothing, in one script call; a repeat after a lost answer is not made twice.

        Raises:
            Raced, AlreadyExists, NotFound: an expectation failed; `fields` name the key.
            ResourceExhausted: the outbox or the memory is full. LeaseLost, StaleEpoch: decide again elsewhere or anew.
            DeadlineExceeded: the deadline passed, or no answer came and the outcome is unknown.
            Unavailable: Redis cannot be reached; nothing was written.
        """
        slot = self._slots.take()
        try:
            argv = wire.encode(
                commit, self._origin, epoch=self.epoch, slot=slot.names, cause=current_cause(), now=self.clock.now()
            )
            reply = await self._answered("commit", (keys.META, keys.LOG), argv, slot.spoil)
        finally:
            self._slots.give(slot)
        try:
            done = wire.decode(reply)
        except Raced as error:
            commit_conflicts.labels(self.service).inc()
            if isinstance(error, StaleEpoch):
                await self.recover()
            raise
        if done.revisions:
            self.saw(done.revisions[-1])
        return done

    async def inbox_answer(self, handler: str, message_id: str, *, service: str = "") -> dict[str, Any] | None:
        """What a handler answered to a message in the last 15 minutes; None when it has not taken it, {} without answer.

        `service` reads another service's inbox: the gateway tells what became of a write.
        """
        taken = await self.inbox_entry(handler, message_id, service=service)
        return None if taken is None else taken.answer or {}

    async def inbox_entry(self, handler: str, message_id: str, *, service: str = "") -> Committed | None:
        """The same with the revisions that the first delivery wrote."""
        bucket = await self.time_us() // _BUCKET_US
        prefix = keys.inbox_prefix(service or self.service, handler)
        for back in range(_BUCKETS):
            found = await self.connection.read("HGET", f"{prefix}{bucket - back}", message_id)
            if found is not None:
                return wire.inbox_entry(found)
        return None

    async def read_hash(self, key: str) -> dict[str, str]:
        """A hash such as a ledger; empty when there is none."""
        found: Mapping[bytes, bytes] = await self.connection.read("HGETALL", key)
        return {field.decode(): value.decode() for field, value in found.items()}

    async def write_blob(self, key: str, body: bytes) -> None:
        """Keep bytes under a key that is derived from them; repeating it is harmless."""
        await self.connection.call("HSET", key, "body", body)

    async def read_blob(self, key: str) -> bytes | None:
        """What `write_blob` kept."""
        found: bytes | None = await self.connection.read("HGET", key, "body")
        return found

    async def delete_blob(self, key: str) -> None:
        """Forget a blob that no document names any more."""
        await self.connection.call("DEL", key)

    async def time_us(self) -> int:
        """Redis TIME in microseconds: the clock of deadlines and leases."""
        seconds, micros = await self.connection.read("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def revision(self) -> int:
        """The revision of the last written document: a cache that reached it shows all that was committed before now.

        Leases and facts without a document take revisions too; those never come through the log.
        """
        return int(await self.connection.read("HGET", keys.META, "logged") or 0)

    async def log_since(self, revision: int, kinds: Collection[str], count: int = 1000) -> list[LogEntry]:
        """Up to `count` written documents of some kinds after a revision, in order.

        Raises:
            TooOld: the log does not reach back that far, or the revision lies in what an epoch skipped.
        """
        return await log.since(self.connection, revision, frozenset(kinds), count)

    def lease(self, name: str) -> Lease:
        """A lease that this process may try to acquire."""
        return Lease(self, name)

    def saw(self, revision: int) -> None:
        """Remember the highest revision met."""
        self.seen = max(self.seen, revision)

    async def recover(self) -> bool:
        """Join the server's epoch, starting a new one if the server changed or lost writes; True when ours changed.

        The scripts are loaded after it and over the same connection, so no server runs them without this gate.
        """
        async with self._recovering:
            before = self.epoch
            outboxes = [keys.outbox(service) for service in SERVICES]
            numbers = (secrets.token_hex(4), self.seen, EPOCH_JUMP_US, _GAPS_KEPT)
            async with self.connection.pinned() as ask:
                reply = await ask("EVAL", RECOVER.text, 2, keys.META, keys.LOG, *numbers, *outboxes)
                if reply[0] == b"err":
                    wire.raise_refusal(reply)
                for script in GATED.values():
                    await ask("SCRIPT LOAD", script.text)
            self.epoch = reply[1].decode()
            self.saw(int(reply[2]))
            return before not in {"", self.epoch}

    async def read_script(self, name: str, names: Collection[str], argv: Collection[Any]) -> Any:
        """A script that changes nothing; tried again when the connection breaks."""
        return await self.connection.retried(lambda: self.run_script(name, names, argv))

    async def run_script(self, name: str, names: Collection[str], argv: Collection[Any]) -> Any:
        """One attempt of a gated script, recovering a server that does not know it."""
        verb = "EVALSHA_RO" if name in READ_ONLY else "EVALSHA"
        call = (verb, GATED[name].sha, len(names), *names, *argv)
        replicas = self.options.wait_replicas if name == "commit" else 0
        send = partial(self.connection.confirmed, replicas) if replicas else self.connection.call
        try:
            return await send(*call)
        except NoScript:
            await self.recover()
            return await send(*call)

    async def _answered(
        self, name: str, names: Collection[str], argv: Collection[Any], unsure: Callable[[], None]
    ) -> Any:
        """Run a script until it answers; `unsure` is called when an attempt may have run without our knowing."""
        until, lost = self.clock.monotonic() + self.options.commit_seconds, False
        for pause in chain(_COMMIT_PAUSES, repeat(_COMMIT_PAUSES[-1])):
            try:
                return await self.run_script(name, names, argv)
            except Unavailable as error:
                if isinstance(error, Lost):
                    lost = True
                    unsure()
                if self.clock.monotonic() > until:
                    raise _given_up(error, lost=lost) from error
            except asyncio.CancelledError:
                unsure()
                raise
            await asyncio.sleep(pause)
        raise AssertionError("the attempts never run out")


def _given_up(error: Unavailable, *, lost: bool) -> GpubusError:
    if not lost:
        return error
    return DeadlineExceeded(f"no answer from Redis; whether the write happened is unknown ({error})")
