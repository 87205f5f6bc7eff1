"""A commit as commit.lua's arguments, and its replies as results or errors.

Owns the header's layout (see scripts/commit.lua). Must not talk to Redis. Read next: shared/store/client.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import msgspec
import orjson

from shared import subjects
from shared.clock import rfc3339
from shared.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    GpubusError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Raced,
    ResourceExhausted,
    TooLarge,
    Unavailable,
)
from shared.ids import new_uid
from shared.messages.base import Command, Fact
from shared.messages.catalog import type_name
from shared.resources.kinds import KINDS
from shared.store import keys
from shared.store.documents import ANY, MAX_DOCUMENTS, About, Commit, Committed, LeaseLost, Put, Require, StaleEpoch
from shared.telemetry.tracing import Cause

MAX_BODY = 3 * 1024 * 1024
"""Bytes of one stored document (contract)."""
MAX_MESSAGE = 256 * 1024
"""Bytes of one fact or command; larger ones carry a digest instead (contract)."""
_MUST_NOT_EXIST = -1
_MAX_EXACT = 2**53
_OUTBOX_RETRY_SECONDS = 1.0
_pack = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Origin:
    """What the store adds to every commit of one process."""

    service: str
    boot: str
    outbox_limit: int
    log_keep_us: int
    log_max: int


class _Payloads:
    """Raw arguments after the header; positions are Lua's (the header is 1)."""

    def __init__(self) -> None:
        self.items: list[bytes] = []

    def add(self, data: bytes) -> int:
        self.items.append(data)
        return len(self.items) + 1


def encode(
    commit: Commit, origin: Origin, *, epoch: str, slot: tuple[str, str], cause: Cause, now: datetime
) -> list[bytes]:
    """The script's ARGV for one commit.

    Raises:
        InvalidArgument: the commit contradicts itself. TooLarge: a body or message is over its limit.
    """
    _check_shape(commit)
    payloads = _Payloads()
    header: dict[str, Any] = {
        "slot": [keys.recent(origin.service, origin.boot), *slot],
        "epoch": commit.epoch or epoch,
        "lease": _lease(commit),
        "mark": _mark(commit, origin, payloads),
        "deadline": commit.deadline_us or 0,
        "release": commit.release,
        "requires": [_require(require) for require in commit.requires],
        "puts": [_put(put, payloads, now) for put in commit.puts],
        "deletes": [_target(d.kind, d.namespace, d.name) | {"expect": d.expect} for d in commit.deletes],
        "counters": [[c.key, c.field, c.delta, _bound(c.floor), _bound(c.ceiling)] for c in commit.counters],
        "assigns": [[a.key, a.field, 0 if a.value is None else payloads.add(a.value.encode())] for a in commit.assigns],
        "outbox": [keys.outbox(origin.service), keys.outbox_account(origin.service), origin.outbox_limit],
        "out": [_message(m, payloads) for m in (*commit.facts, *commit.commands)],
        "cause": [cause.correlation_id, cause.causation_id, cause.traceparent],
        "log": [origin.log_keep_us, origin.log_max],
    }
    return [_pack(header), *payloads.items]


def _check_shape(commit: Commit) -> None:
    if len(commit.puts) + len(commit.deletes) > MAX_DOCUMENTS:
        raise InvalidArgument(f"a commit holds at most {MAX_DOCUMENTS} documents; split it")
    for counter in commit.counters:
        if any(abs(value) >= _MAX_EXACT for value in (counter.delta, counter.floor or 0, counter.ceiling or 0)):
            raise InvalidArgument(f"counter {counter.field}: beyond 2^53, where the store's numbers skip integers")
    if commit.assigns and not _ordered(commit):
        raise InvalidArgument("assigns need a lease or an expected revision or value in the same commit")


def _ordered(commit: Commit) -> bool:
    expected = [put.expect for put in commit.puts] + [delete.expect for delete in commit.deletes]
    return (
        commit.lease is not None
        or any(expect != ANY for expect in expected)
        or any(require.what in {"revision", "equals"} for require in commit.requires)
    )


def _bound(value: int | None) -> int | bool:
    return False if value is None else value


def _lease(commit: Commit) -> list[str] | bool:
    lease = commit.lease
    return [lease.key, lease.nonce, str(lease.fencing)] if lease is not None else False


def _mark(commit: Commit, origin: Origin, payloads: _Payloads) -> list[Any] | bool:
    mark = commit.mark
    if mark is None:
        return False
    answer = 0 if mark.answer is None else payloads.add(_json(mark.answer, "an answer"))
    return [keys.inbox_prefix(origin.service, mark.handler), mark.message_id, answer]


def _require(require: Require) -> list[Any]:
    if require.what == "equals":
        value = False if require.value is None else str(require.value)
        return ["equals", require.key[0], require.key[1], value]
    return [require.what, keys.doc(*require.key), require.value or 0]


def _target(kind: str, namespace: str, name: str) -> dict[str, Any]:
    return {
        "key": keys.doc(kind, namespace, name),
        "index": keys.index(kind),
        "member": keys.member(namespace, name),
        "kind": kind,
        "namespace": namespace,
        "name": name,
    }


def _put(put: Put, payloads: _Payloads, now: datetime) -> dict[str, Any]:
    body, uid, labels = _stored(put, now)
    if len(body) > MAX_BODY:
        raise TooLarge(f"{put.kind} {put.name} has {len(body)} bytes, the limit is {MAX_BODY}")
    kind = KINDS.get(put.kind)
    return _target(put.kind, put.namespace, put.name) | {
        "uid": uid,
        "schema": kind.schema if kind else 1,
        "expect": _MUST_NOT_EXIST if put.expect is None else put.expect,
        "body": payloads.add(body),
        "labels": orjson.dumps(labels).decode() if labels else "",
    }


def _stored(put: Put, now: datetime) -> tuple[bytes, str, Mapping[str, str]]:
    metadata = dict(put.body.get("metadata") or {})
    metadata.pop("resourceVersion", None)
    if put.expect is None:
        metadata["uid"] = metadata.get("uid") or new_uid()
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or rfc3339(now)
        metadata["generation"] = metadata.get("generation") or 1
    if not metadata.get("uid"):
        raise InvalidArgument(f"{put.kind} {put.name}: a replaced document needs metadata.uid")
    metadata["name"] = put.name
    if put.namespace:
        metadata["namespace"] = put.namespace
    body = _json({**put.body, "metadata": metadata}, f"{put.kind} {put.name}")
    return body, metadata["uid"], metadata.get("labels") or {}


def _json(value: Mapping[str, Any], what: str) -> bytes:
    try:
        return orjson.dumps(dict(value))
    except orjson.JSONEncodeError as error:
        raise InvalidArgument(f"{what} is no JSON: {error}") from error


def _message(item: Fact | Command | About, payloads: _Payloads) -> dict[str, Any]:
    message, document = (item.message, item.document + 1) if isinstance(item, About) else (item, 0)
    build = subjects.fact if isinstance(message, Fact) else subjects.command
    data = message.model_dump_json(by_alias=True).encode()
    if len(data) > MAX_MESSAGE:
        raise TooLarge(f"{type(message).__name__} has {len(data)} bytes, the limit is {MAX_MESSAGE}; carry a digest")
    aggregate = message.AGGREGATE if isinstance(message, Fact) else message.SERVICE
    return {
        "type": type_name(type(message)),
        "subject": build(type(message), message.scope, message.key),  # type: ignore[arg-type]
        "about": f"{aggregate}/{message.scope}/{message.key}",
        "document": document,
        "correlation": item.correlation_id if isinstance(item, About) else "",
        "data": payloads.add(data),
    }


def decode(reply: Sequence[Any]) -> Committed:
    """The result that commit.lua replied with.

    Raises:
        GpubusError: the refusal; `fields` name the key and what was found there.
    """
    status = _text(reply[0])
    if status == "err":
        raise_refusal(reply)
    first, count = int(reply[1]), int(reply[2])
    revisions = tuple(range(first, first + count))
    if status == "ok":
        return Committed(revisions=revisions)
    return Committed(revisions, duplicate=True, answer=orjson.loads(reply[3]) if reply[3] else None)


def inbox_entry(value: bytes) -> Committed:
    """What an inbox keeps of one taken message: the revisions it led to and its answer."""
    first, count, answer = value.split(b" ", 2)
    return decode([b"dup", first, count, answer])


def raise_refusal(reply: Sequence[Any]) -> NoReturn:
    """Raise the error for a script's `{'err', code, name, value, ...}`."""
    code = _text(reply[1])
    values = [_text(item) for item in reply[2:]]
    fields: dict[str, Any] = dict(zip(values[::2], values[1::2], strict=True))
    key = fields.get("key", "")
    about = key.removeprefix(keys.PREFIX)
    build, sentence = _REFUSALS.get(code, (GpubusError, "the store refused: {detail}"))
    if build is ResourceExhausted:
        fields["retry_after"] = _OUTBOX_RETRY_SECONDS
    if code == "server" and not fields["detail"].startswith("OOM"):
        build = Unavailable
    raise build(sentence.format_map(_Defaults(fields, about=about)), (), {"refusal": code, **fields})


class _Defaults(dict[str, Any]):
    """A refusal always makes a sentence, also when the script gave fewer fields."""

    def __missing__(self, key: str) -> str:
        return "?"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_REFUSALS: Mapping[str, tuple[type[GpubusError], str]] = {
    "epoch": (StaleEpoch, "the store is in epoch {epoch}; reload and decide again"),
    "deadline": (DeadlineExceeded, "the deadline passed before the write began; nothing was written"),
    "lease": (LeaseLost, "{about} has another holder or expired"),
    "raced": (Raced, "{about} has changed"),
    "equals": (Raced, "{about} field {field} has changed"),
    "bound": (Raced, "{about} field {field} is {value}: {delta} does not fit"),
    "exists": (AlreadyExists, "{about} already exists"),
    "missing": (NotFound, "{about} does not exist"),
    "outbox": (ResourceExhausted, "{about} holds {bytes} unpublished bytes, the limit is {limit}; is NATS reachable?"),
    "type": (FailedPrecondition, "{about} holds {have} where {want} belongs; the store was changed by hand"),
    "schema": (FailedPrecondition, "{about} was written by a newer version (schema {schema}); update this service"),
    "denied": (PermissionDenied, "this service may not {command} {about}"),
    "malformed": (InvalidArgument, "the commit contradicts itself: {detail}"),
    "server": (ResourceExhausted, "Redis refuses writes: {detail}"),
}
