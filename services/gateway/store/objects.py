"""Objects, written through their owners: what REST, kubectl and the bus command all end in.

Reads what is stored, applies the caller's change and field ownership, asks the owner, and returns when this gateway's
own reads show it. Must not know HTTP or NATS subjects. Read next: ../domain/ownership.py, shared/store/objects.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.gateway.domain.decoding import FieldValidation, decode
from services.gateway.domain.ownership import Writer, applied, updated
from services.gateway.store.watch import WatchCache
from shared.bus.client import BusClient
from shared.clock import Clock, unix_ms
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import (
    Aborted,
    AlreadyExists,
    DeadlineExceeded,
    GpubusError,
    InvalidArgument,
    NotFound,
    TooLarge,
    from_dict,
    invalid,
)
from shared.ids import new_id, random_suffix
from shared.manifest_text import MAX_BYTES
from shared.resources.kinds import Kind
from shared.store.client import Store
from shared.store.documents import Document
from shared.telemetry.tracing import Cause, caused_by, current_cause

WRITE_SECONDS = 10.0
_ATTEMPTS = 6
_CONFIRMED = "ApiKey"
"""Whoever deletes a key must be able to rely on the answer, and whoever makes one to use it at once."""
_GENERATED_BASE = 58
"""Kubernetes cuts the prefix of a generated name so that five characters fit into a label."""

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""The stored object as clients see it -> the wanted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a write is meant."""

    user: str
    manager: str = "unknown"
    dry_run: bool = False
    force: bool = False
    """Apply: take fields over from others."""
    validation: FieldValidation = "Strict"
    idempotency: str = ""
    """The caller's own key: the same key and body within 15 minutes is the same write."""
    propagation: str = "Background"
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Which object."""

    kind: Kind
    namespace: str
    name: str

    @property
    def key(self) -> tuple[str, str, str]:
        """(kind, namespace, name)."""
        return (self.kind.kind, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Written:
    """What a write led to."""

    body: dict[str, Any] | None
    """The object as it is now; None when it is gone."""
    created: bool = False
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


class Objects:
    """Create, replace, patch, apply and delete of any kind."""

    def __init__(
        self, store: Store, watch: WatchCache, bus: BusClient, clock: Clock, confirmed: Callable[[], Awaitable[None]]
    ) -> None:
        self._store = store
        self._watch = watch
        self._bus = bus
        self._clock = clock
        self._confirmed = confirmed

    async def create(self, place: Place, body: Mapping[str, Any], options: Options) -> Written:
        """A new object; without a name, one is made from `metadata.generateName`.

        Raises:
            GpubusError: the refusal.
        """
        prefix = str((body.get("metadata") or {}).get("generateName") or "")
        if not place.name and not prefix:
            raise invalid("metadata.name", "name or generateName is required", "FieldValueRequired")
        for attempt in range(_ATTEMPTS):
            named = (
                place
                if place.name
                else Place(place.kind, place.namespace, f"{prefix[:_GENERATED_BASE]}{random_suffix()}")
            )
            try:
                return await self._create(named, body, options, f"create{attempt}")
            except AlreadyExists:
                if place.name or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def apply(self, place: Place, config: Mapping[str, Any], options: Options) -> Written:
        """Server-side apply: creates, or sets the applied fields and removes those no longer applied.

        Raises:
            Aborted: another manager owns a field and `force` is off. GpubusError: any other refusal.
        """
        writer = self._writer(place, options)
        for attempt in range(_ATTEMPTS):
            current = await self._store.get(*place.key)
            try:
                if current is None:
                    _refuse_revision(config)
                    body = applied(None, config, writer, force=options.force)
                    return await self._create(place, body, options, f"apply{attempt}", owned=True)
                _check_revision(config, current)
                body = applied(_seen(current), config, writer, force=options.force)
                return await self._replace(place, current, body, options, f"apply{attempt}")
            except (_Stale, AlreadyExists) as error:
                if attempt == _ATTEMPTS - 1:
                    raise _unwrapped(error) from None
        raise AssertionError("the last attempt returns or raises")

    async def change(self, place: Place, change: Change, options: Options) -> Written:
        """Replace or patch: the change is made to the stored object, again when somebody else was quicker.

        Raises:
            NotFound: there is none. Aborted: the caller's revision is stale. GpubusError: any other refusal.
        """
        writer = self._writer(place, options)
        for attempt in range(_ATTEMPTS):
            current = await self._store.get(*place.key)
            if current is None:
                raise _missing(place)
            wanted = change(_seen(current))
            _check_revision(wanted, current)
            body = updated(_seen(current), wanted, writer)
            try:
                return await self._replace(place, current, body, options, f"change{attempt}")
            except _Stale as error:
                if attempt == _ATTEMPTS - 1:
                    raise _unwrapped(error) from None
        raise AssertionError("the last attempt returns or raises")

    async def delete(self, place: Place, options: Options, *, uid: str = "", revision: int | None = None) -> Written:
        """Delete, or ask for it while finalizers hold the object.

        Raises:
            NotFound: there is none. Aborted: it has another uid or revision. GpubusError: any other refusal.
        """
        current = await self._store.get(*place.key)
        if current is None:
            raise _missing(place)
        request = WriteObject(
            verb="delete",
            kind=place.kind.kind,
            namespace=place.namespace,
            name=place.name,
            expected_uid=uid,
            expected_revision=revision,
            propagation=options.propagation,
            grace_period_seconds=options.grace_seconds,
        )
        answer = await self._write(place, request, options, "delete", current)
        details = {"name": place.name, "group": place.kind.group, "kind": place.kind.plural, "uid": current.uid}
        return Written(answer.object, details=details)

    async def operation(self, operation_id: str) -> WriteAnswer | None:
        """What became of a write whose answer was lost; None when no owner knows it (any more)."""
        for service in _OWNERS:
            found = await self._store.inbox_answer("write-object", operation_id, service=service)
            if found is not None:
                return WriteAnswer.model_validate(found)
        return None

    async def _create(
        self, place: Place, body: Mapping[str, Any], options: Options, step: str, *, owned: bool = False
    ) -> Written:
        decoded = decode(place.kind, body, options.validation)
        stamped = decoded.body if owned else updated(None, decoded.body, self._writer(place, options))
        answer = await self._write(place, _request("create", place, stamped), options, step)
        return Written(answer.object, created=True, warnings=decoded.warnings)

    async def _replace(
        self, place: Place, current: Document, body: Mapping[str, Any], options: Options, step: str
    ) -> Written:
        decoded = decode(place.kind, body, options.validation)
        metadata = {name: value for name, value in decoded.body["metadata"].items() if name != "resourceVersion"}
        wanted = {**decoded.body, "metadata": metadata}
        if wanted == {name: value for name, value in current.body.items() if name != "status"}:
            return Written(current.json(), warnings=decoded.warnings)
        request = _request("replace", place, wanted).model_copy(update={"expected_revision": current.revision})
        try:
            answer = await self._write(place, request, options, step, current)
        except Aborted as error:
            raise _Stale(error) from None
        return Written(answer.object, warnings=decoded.warnings)

    async def _write(
        self, place: Place, request: WriteObject, options: Options, step: str, current: Document | None = None
    ) -> WriteAnswer:
        operation = _operation(request, options, step) or new_id(unix_ms(self._clock.now()))
        request = request.model_copy(
            update={
                "dry_run": options.dry_run,
                "field_manager": options.manager,
                "user": options.user,
                "idempotency_key": operation,
                "operation_id": operation,
                "deadline_us": await self._store.time_us() + int(WRITE_SECONDS * 1_000_000),
            }
        )
        with caused_by(Cause(operation, "", current_cause().traceparent)):
            answer = await self._asked(place, request, operation)
        if answer.error is not None:
            raise _shown(from_dict(answer.error), place)
        if not options.dry_run:
            await self._shown_here(place, answer, current)
        return answer

    async def _shown_here(self, place: Place, answer: WriteAnswer, before: Document | None) -> None:
        """Return when this gateway's own reads show the write, and, of a key, when the workers of this host go by it."""
        if answer.object is not None:
            await self._watch.reached(place.kind.kind, int(answer.object["metadata"].get("resourceVersion") or 0))
        elif before is not None:
            await self._watch.gone(before)
        if place.kind.kind == _CONFIRMED:
            await self._confirmed()

    async def _asked(self, place: Place, request: WriteObject, operation: str) -> WriteAnswer:
        if request.object is not None and len(request.model_dump_json()) > 2 * MAX_BYTES:
            raise TooLarge(f"the object is over {MAX_BYTES} bytes")
        try:
            return await self._bus.write(place.kind.owner, request, WRITE_SECONDS)
        except DeadlineExceeded:
            sentence = f"no answer from {place.kind.owner}; whether the write happens is unknown: ask with GET /apis/gpubus.io/v1/operations/{operation}"
            raise DeadlineExceeded(sentence, (), {"operation_id": operation, **_names(place)}) from None
        except GpubusError as error:
            raise _shown(error, place) from None

    def _writer(self, place: Place, options: Options) -> Writer:
        return Writer(options.manager, place.kind.api_version, self._clock.now())


class _Stale(Exception):  # noqa: N818 - says what happened; never leaves this module
    """Somebody wrote between our read and the owner's; read again."""

    def __init__(self, error: Aborted) -> None:
        super().__init__(str(error))
        self.error = error


_OWNERS = ("deployer", "modelstore", "gateway", "scheduler", "kvcache", "discovery")


def _unwrapped(error: Exception) -> GpubusError:
    found = error.error if isinstance(error, _Stale) else error
    assert isinstance(found, GpubusError), "only refusals come here"
    return found


def _request(verb: Any, place: Place, body: Mapping[str, Any]) -> WriteObject:
    return WriteObject(verb=verb, kind=place.kind.kind, namespace=place.namespace, name=place.name, object=dict(body))


def _operation(request: WriteObject, options: Options, step: str) -> str:
    """The idempotency key of one step, when the caller sent one: each retry within a write is a step of its own."""
    if not options.idempotency:
        return ""
    parts = (options.user, options.idempotency, request.kind, request.namespace, step)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:40]


def _seen(current: Document) -> dict[str, Any]:
    return current.json()


def _check_revision(body: Mapping[str, Any], current: Document) -> None:
    metadata = body.get("metadata")
    sent = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    if sent not in {None, "", str(current.revision)} if isinstance(sent, str | None) else True:
        sentence = "the object has been modified; please apply your changes to the latest version and try again"
        named = f'{current.kind} "{current.name}"'
        raise Aborted(
            f"Operation cannot be fulfilled on {named}: {sentence}", (), {"kind": current.kind, "name": current.name}
        )


def _refuse_revision(config: Mapping[str, Any]) -> None:
    if (config.get("metadata") or {}).get("resourceVersion"):
        raise Aborted("the applied object names a resourceVersion, but there is no such object")


def _missing(place: Place) -> NotFound:
    resource = f"{place.kind.plural}.{place.kind.group}" if place.kind.group else place.kind.plural
    return NotFound(f'{resource} "{place.name}" not found', (), _names(place))


def _names(place: Place) -> dict[str, Any]:
    return {"name": place.name, "kind": place.kind.plural, "group": place.kind.group}


def _shown(error: GpubusError, place: Place) -> GpubusError:
    """The owner's refusal with Kubernetes' details; a missing namespace keeps its own name."""
    kind = error.fields.get("kind")
    other = kind not in {None, "", place.kind.kind, place.kind.plural}
    # Kubernetes names the kind of what is invalid, and the plural of what is missing or taken.
    named = _names(place) | ({"kind": place.kind.kind} if isinstance(error, InvalidArgument) else {})
    fields = dict(error.fields) if other else {**error.fields, **named}
    return type(error)(error.message, error.causes, fields)
