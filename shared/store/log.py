"""Reading what the scripts wrote: documents, snapshots and the log of changes.

Owns when a revision is too old to resume from. Must not write. Read next: shared/store/cache.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from shared.store import keys
from shared.store.connection import Connection
from shared.store.documents import Document, LogEntry, Snapshot, TooOld

EPOCH = "EPOCH"
"""The entry type that starts a new epoch; its name is the epoch."""


def document(kind: str, namespace: str, name: str, found: Sequence[bytes | None]) -> Document | None:
    """A document from its hash's rev, uid, schema, body; None when there is none."""
    revision, uid, schema, body = found
    if revision is None or uid is None or schema is None or body is None:
        return None
    return Document(kind, namespace, name, uid.decode(), int(revision), int(schema), orjson.loads(body))


def snapshot(kinds: Sequence[str], reply: Sequence[Any]) -> Snapshot:
    """snapshot.lua's flat reply as documents."""
    documents, at = [], 3
    for kind in kinds:
        count = int(reply[at])
        at += 1
        for _ in range(count):
            namespace, _, name = reply[at].decode().partition("/")
            found = document(kind, namespace, name, reply[at + 1 : at + 5])
            assert found is not None, "the script leaves out incomplete documents"
            documents.append(found)
            at += 5
    return Snapshot(int(reply[1]), reply[0].decode(), tuple(documents))


@dataclass(frozen=True, slots=True)
class Bounds:
    """From where the log can be replayed."""

    epoch: str
    revision: int
    floor: int
    """Entries up to here may be gone."""
    gaps: tuple[tuple[int, int], ...]
    """(last revision that survived, first revision of the next epoch)."""

    def check(self, revision: int) -> None:
        """Whether everything after a revision is still in the log.

        Raises:
            TooOld: it is not.
        """
        if revision < self.floor or revision > self.revision:
            raise TooOld(f"revision {revision} is no longer in the log; list again", (), {"floor": str(self.floor)})
        for last, base in self.gaps:
            if last < revision < base:
                raise TooOld(
                    f"revision {revision} was lost with epoch {self.epoch}; list again", (), {"floor": str(base)}
                )


async def bounds(connection: Connection) -> Bounds:
    """The log's bounds now."""
    found = await connection.read("HMGET", keys.META, "epoch", "revision", "log_floor", "gaps")
    epoch, revision, floor, gaps = ((value or b"").decode() for value in found)
    pairs = (gap.partition(":") for gap in gaps.split())
    return Bounds(epoch, int(revision or 0), int(floor or 0), tuple((int(last), int(base)) for last, _, base in pairs))


async def since(connection: Connection, revision: int, kinds: frozenset[str], count: int) -> list[LogEntry]:
    """See Store.log_since."""
    (await bounds(connection)).check(revision)
    found: list[LogEntry] = []
    position = revision
    while len(found) < count:
        page = await connection.read("XRANGE", keys.LOG, f"({position}-0", "+", "COUNT", count)
        found += (entry(item) for item in page if kind_of(item) in kinds)
        if len(page) < count:
            break
        position = revision_of(page[-1])
    # Checked again: what was trimmed while reading would otherwise be missed in silence.
    (await bounds(connection)).check(revision)
    return found[:count]


async def tail(connection: Connection, revision: int, count: int, block_ms: int) -> list[Any]:
    """Raw entries after a revision, waiting up to `block_ms` for the first one."""
    reply = await connection.blocking(
        block_ms, "XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", keys.LOG, f"{revision}-0"
    )
    items: list[Any] = reply[0][1] if reply else []
    return items


def revision_of(item: Any) -> int:
    """A raw entry's revision."""
    return int(item[0].partition(b"-")[0])


def kind_of(item: Any) -> str:
    """A raw entry's kind, without decoding its document."""
    kind: str = _field(item, b"kind").decode()
    return kind


def previous_of(item: Any) -> int:
    """The revision of the entry before a raw entry; one that the reader has not seen is a hole."""
    return int(_field(item, b"prev"))


def type_of(item: Any) -> str:
    """A raw entry's type."""
    change: str = _field(item, b"type").decode()
    return change


def _field(item: Any, name: bytes) -> Any:
    values = item[1]
    return values[name] if isinstance(values, dict) else values[values.index(name) + 1]


def entry(item: Any) -> LogEntry:
    """A raw entry decoded; of a deleted document the last state, carrying the deletion's revision."""
    values = item[1]
    fields: dict[bytes, bytes] = (
        values if isinstance(values, dict) else dict(zip(values[::2], values[1::2], strict=True))
    )
    revision = revision_of(item)
    kind, namespace, name = (fields[part].decode() for part in (b"kind", b"namespace", b"name"))
    uid, labels = fields[b"uid"].decode(), fields[b"labels"]
    stored = Document(kind, namespace, name, uid, revision, int(fields[b"schema"]), orjson.loads(fields[b"body"]))
    previous = orjson.loads(labels) if labels else {}
    return LogEntry(revision, kind, namespace, name, uid, fields[b"type"].decode(), stored, previous)
