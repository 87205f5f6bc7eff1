"""One service's outbox as its relay sees it: entries in order, how far the bus has acknowledged, where to go back to.

Entries get in only by a commit. The relay reads after the last acknowledged one, publishes, and says so with
`checkpoint`, under its lease. Entries stay ten minutes after that, so that a bus that forgot can be filled again:
on connect the relay compares its stream with `survivor` and, when that is older than `position`, calls `rewind`.
Must not publish. Read next: shared/bus/relay.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.store import keys, wire
from shared.store.documents import StaleEpoch

if TYPE_CHECKING:
    from shared.store.client import Store
    from shared.store.leases import Lease

BEGINNING = "0-0"
"""Before the first entry."""
KEEP_US = 600_000_000
"""How long acknowledged entries stay (contract: ten minutes)."""
_CHECKPOINT_EVERY_US = 1_000_000
"""Kept checkpoints are at least this far apart, so ten minutes are at most 600."""


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One fact or command as it was committed."""

    id: str
    """`<revision>-<n>`: rises with every entry and is never reused, in no epoch."""
    type: str
    """CloudEvents type."""
    subject: str
    """Where to publish it."""
    about: str
    """CloudEvents subject: `<aggregate or service>/<scope>/<key>`."""
    data: bytes
    """The message's JSON."""
    correlation: str
    causation: str
    traceparent: str
    revision: int
    """Of the document it speaks about; the envelope's resourceversion."""
    epoch: str
    """In which it was committed; with the id it makes `Nats-Msg-Id`."""
    time_us: int
    """Redis time of the commit."""

    @property
    def message_id(self) -> str:
        """The identity of the message for ever: `<epoch>.<entry id>`."""
        return f"{self.epoch}.{self.id}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The bus had everything up to `entry_id` when the stream created at `created` had `sequence` messages."""

    entry_id: str = BEGINNING
    created: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is committed and not yet acknowledged."""

    entries: int
    bytes: int


class Outbox:
    """The outbox of the store's own service."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stream = keys.outbox(store.service)
        self._account = keys.outbox_account(store.service)
        self._checkpoints = keys.outbox_checkpoints(store.service)

    async def read(self, after_id: str, count: int, block_ms: int) -> list[OutboxEntry]:
        """Up to `count` entries after an id, waiting up to `block_ms` for the first (0: do not wait).

        Raises:
            Unavailable: the connection broke; read again after the same id.
        """
        if block_ms > 0:
            args = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", self._stream, after_id)
            reply = await self._store.connection.blocking(block_ms, *args)
            return [_entry(item) for item in (reply[0][1] if reply else [])]
        found = await self._store.connection.read("XRANGE", self._stream, f"({after_id}", "+", "COUNT", count)
        return [_entry(item) for item in found]

    async def checkpoint(self, entry_id: str, created: str, sequence: int, lease: Lease) -> Waiting:
        """The bus has acknowledged everything up to `entry_id`, the last one as `sequence` of the stream made at `created`.

        Frees the bytes of the entries between, keeps the checkpoint, drops entries acknowledged over ten minutes ago.

        Raises:
            LeaseLost: another relay has taken over. StaleEpoch: read `position` again. NotFound: no such entry.
        """
        return await self._move("ack", Checkpoint(entry_id, created, sequence), lease)

    async def rewind(self, target: Checkpoint, lease: Lease) -> Waiting:
        """The bus has lost everything after `target` (the default Checkpoint: everything); publish again from there."""
        return await self._move("rewind", target, lease)

    async def position(self) -> Checkpoint:
        """The last acknowledged entry; the default Checkpoint when there is none."""
        found = await self._store.connection.read("HMGET", self._account, "acked", "created", "sequence")
        entry, created, sequence = ((value or b"").decode() for value in found)
        return Checkpoint(entry or BEGINNING, created, int(sequence or 0))

    async def survivor(self, created: str, sequence: int) -> Checkpoint | None:
        """The newest checkpoint that a stream made at `created` and now `sequence` long still holds; None if none does."""
        newest = await self.position()
        if newest.created == created and newest.sequence <= sequence:
            return newest
        found: list[bytes] = await self._store.connection.read("ZREVRANGE", self._checkpoints, 0, -1)
        for mark in found:
            entry, made, reached, _ = mark.decode().split(" ")
            if made == created and int(reached) <= sequence:
                return Checkpoint(entry, made, int(reached))
        return None

    async def waiting(self) -> Waiting:
        """Entries and bytes committed and not yet acknowledged."""
        names = ("bytes", "acked_bytes", "entries", "acked_entries")
        found = await self._store.connection.read("HMGET", self._account, *names)
        size, acked_size, entries, acked = (int(value or 0) for value in found)
        return Waiting(entries - acked, size - acked_size)

    async def depth(self) -> int:
        """Entries not yet acknowledged."""
        return (await self.waiting()).entries

    async def oldest_seconds(self) -> float:
        """Age of the oldest entry not yet acknowledged, in seconds of Redis time; 0 when there is none."""
        oldest = await self.read((await self.position()).entry_id, 1, 0)
        if not oldest:
            return 0.0
        return max(0.0, (await self._store.time_us() - oldest[0].time_us) / 1_000_000)

    async def _move(self, action: str, target: Checkpoint, lease: Lease) -> Waiting:
        store = self._store
        names = (keys.META, self._stream, self._account, self._checkpoints, lease.key)
        where = (target.entry_id, target.created, target.sequence)
        argv = (store.epoch, lease.nonce, lease.fencing, *where, action, KEEP_US, _CHECKPOINT_EVERY_US)
        reply = await store.read_script("checkpoint", names, argv)  # saying the same twice changes nothing
        if reply[0] == b"ok":
            return Waiting(int(reply[1]), int(reply[2]))
        try:
            wire.raise_refusal(reply)
        except StaleEpoch:
            await store.recover()
            raise


def _entry(item: Any) -> OutboxEntry:
    values = item[1]
    fields: dict[bytes, bytes] = (
        values if isinstance(values, dict) else dict(zip(values[::2], values[1::2], strict=True))
    )
    text = {name.decode(): value.decode() for name, value in fields.items() if name != b"data"}
    return OutboxEntry(
        id=item[0].decode(),
        type=text["type"],
        subject=text["subject"],
        about=text["about"],
        data=fields[b"data"],
        correlation=text["correlation"],
        causation=text["causation"],
        traceparent=text["traceparent"],
        revision=int(text["rev"]),
        epoch=text["epoch"],
        time_us=int(text["time"]),
    )
