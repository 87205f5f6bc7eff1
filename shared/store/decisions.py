"""What one write of an object leads to: pure functions from the request and the stored documents.

Owns the rules of Kubernetes' object metadata. Must not do I/O. Read next: shared/store/objects.py, which loads and commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from shared.clock import rfc3339
from shared.commands.objects import WriteObject
from shared.errors import Aborted, AlreadyExists, Cause, FailedPrecondition, InvalidArgument, NotFound, invalid
from shared.ids import new_uid
from shared.messages.base import Fact
from shared.resources.base import Resource, from_validation
from shared.resources.kinds import Kind
from shared.store.documents import Document, Require
from shared.store.names import metadata_causes
from shared.store.patching import patched
from shared.store.rules import Lookup, WriteRules


@dataclass(frozen=True, slots=True)
class Outcome:
    """The write to make."""

    body: dict[str, Any] | None
    """The document to store; None removes it."""
    expect: int | None
    """Revision it replaces or removes; None creates it."""
    shown: dict[str, Any] | None
    """What the caller is answered; None when the object is gone."""
    facts: tuple[Fact, ...] = ()
    unchanged: bool = False
    """The object is like that already: nothing is written and the revision stays."""
    requires: tuple[Require, ...] = ()


def prepare(request: WriteObject, kind: Kind, rules: WriteRules) -> Resource | None:
    """The sent object decoded, named and defaulted; None for a deletion. A sent status is left out.

    Raises:
        Malformed, InvalidArgument: the object does not fit its kind, or names another object than the request.
    """
    if request.verb == "delete":
        return None
    if request.object is None:
        raise invalid("object", "is required", "FieldValueRequired")
    if request.verb == "status":
        return None
    sent = {name: value for name, value in request.object.items() if name != "status"}
    resource = _decoded(kind, sent)
    _check_addressed(request, kind, resource)
    metadata = resource.metadata.model_copy(update={"name": request.name, "namespace": request.namespace})
    named = resource.model_copy(update={"api_version": kind.api_version, "kind": kind.kind, "metadata": metadata})
    defaulted: Resource = rules.default(named)
    return defaulted


def check_namespace(request: WriteObject, kind: Kind, namespace: Document | None) -> tuple[Require, ...]:
    """A namespaced object needs its namespace, as it was read; nothing new comes into one that is being deleted.

    Raises:
        NotFound: names the command that creates it. FailedPrecondition: it is being deleted.
    """
    if not kind.namespaced or request.verb != "create":
        return ()
    name = request.namespace
    if namespace is None:
        sentence = f'namespace "{name}" not found; create it with: kubectl create namespace {name}'
        raise NotFound(sentence, (), {"kind": "Namespace", "name": name})
    if namespace.deleting:
        raise FailedPrecondition(f'namespace "{name}" is being deleted; nothing new can be created in it')
    return (Require.revision("Namespace", "", name, namespace.revision),)


def present(request: WriteObject, kind: Kind, current: Document | None) -> Document:
    """The stored object, if it is the one that the caller means.

    Raises:
        NotFound: there is none. Aborted: the caller's revision or uid is another one.
    """
    if current is None:
        raise NotFound(f'{_resource(kind)} "{request.name}" not found', (), _fields(request))
    if request.expected_uid and request.expected_uid != current.uid:
        raise Aborted(
            f"{_named(kind, request)}: its uid is {current.uid}, not {request.expected_uid}", (), _fields(request)
        )
    if request.expected_revision is not None and request.expected_revision != current.revision:
        raise _stale(request, kind)
    return current


def create(
    request: WriteObject,
    kind: Kind,
    rules: WriteRules,
    resource: Resource | None,
    current: Document | None,
    lookup: Lookup,
    now: datetime,
) -> Outcome:
    """A new object: own uid, generation 1, the owner's finalizers.

    Raises:
        AlreadyExists: the name is taken. InvalidArgument: one cause for each wrong field.
    """
    assert resource is not None, "prepare decodes every create"
    if current is not None:
        held = "; the old one is being deleted and finalizers hold it" if current.deleting else ""
        raise AlreadyExists(f"{_named(kind, request)} already exists{held}", (), _fields(request))
    if request.expected_revision is not None or resource.metadata.resource_version:
        raise invalid("metadata.resourceVersion", "must not be set on objects to be created", "FieldValueForbidden")
    finalizers = list(dict.fromkeys((*resource.metadata.finalizers, *rules.finalizers)))
    metadata = resource.metadata.model_copy(
        update={
            "uid": new_uid(), "generation": 1, "creation_timestamp": now, "deletion_timestamp": None,
            "deletion_grace_period_seconds": None, "finalizers": finalizers, "self_link": None,
        }
    )  # fmt: skip
    new = resource.model_copy(update={"metadata": metadata})
    _check(kind, rules, new, None, lookup)
    body = patched({}, new, open_parts_replaced=True)
    return Outcome(body, None, body, rules.facts(None, new))


def replace(
    request: WriteObject, kind: Kind, rules: WriteRules, resource: Resource | None, current: Document, lookup: Lookup
) -> Outcome:
    """The object with a new spec and metadata; status, uid and creation stay. The last finalizer gone removes it.

    Raises:
        Aborted: the sent uid or revision is another one. InvalidArgument: one cause for each wrong field.
    """
    assert resource is not None, "prepare decodes every replace"
    _check_sent_identity(request, kind, resource, current)
    old = current.read(kind.model)
    new = _carried_over(resource, old)
    _check(kind, rules, new, old, lookup)
    body = _with_status_of(current, patched(current.body, new, open_parts_replaced=True))
    if _spec(body) != _spec(current.body):
        generation = old.metadata.generation + 1
        new = new.model_copy(update={"metadata": new.metadata.model_copy(update={"generation": generation})})
        body["metadata"]["generation"] = generation
    if current.deleting and not new.metadata.finalizers:
        return Outcome(None, current.revision, None, rules.facts(old, None))
    if body == current.body:
        return Outcome(body, current.revision, current.json(), unchanged=True)
    return Outcome(body, current.revision, body, rules.facts(old, new))


def replace_status(request: WriteObject, kind: Kind, rules: WriteRules, current: Document) -> Outcome:
    """The object with another status; everything else that was sent is ignored, the generation stays.

    Raises:
        Malformed, InvalidArgument: the status does not fit its kind.
    """
    sent = {**current.body, "status": (request.object or {}).get("status") or {}}
    if "status" not in kind.model.model_fields:
        raise invalid("status", f"{kind.kind} has none", "FieldValueForbidden")
    try:
        new = kind.model.model_validate(sent)
    except ValidationError as error:
        raise from_validation(error) from error
    body = patched(current.body, new)
    if body == current.body:
        return Outcome(body, current.revision, current.json(), unchanged=True)
    return Outcome(body, current.revision, body, rules.facts(current.read(kind.model), new))


def delete(request: WriteObject, kind: Kind, rules: WriteRules, current: Document, now: datetime) -> Outcome:
    """Removal at once, or, while finalizers hold it, the mark that asks for it."""
    old = current.read(kind.model)
    if not old.metadata.finalizers:
        return Outcome(None, current.revision, None, rules.facts(old, None))
    if current.deleting:
        return Outcome(current.body, current.revision, current.json(), unchanged=True)
    grace = request.grace_period_seconds or 0
    marked = {"deletionTimestamp": rfc3339(now), "deletionGracePeriodSeconds": grace}
    body = {**current.body, "metadata": {**current.body["metadata"], **marked}}
    update = {"deletion_timestamp": now, "deletion_grace_period_seconds": grace}
    new = old.model_copy(update={"metadata": old.metadata.model_copy(update=update)})
    return Outcome(body, current.revision, body, rules.facts(old, new))


def _decoded(kind: Kind, sent: Mapping[str, Any]) -> Resource:
    try:
        return kind.model.model_validate(sent)
    except ValidationError as error:
        raise from_validation(error) from error


def _check_addressed(request: WriteObject, kind: Kind, resource: Resource) -> None:
    pairs = (
        ("apiVersion", resource.api_version, kind.api_version),
        ("kind", resource.kind, kind.kind),
        ("metadata.name", resource.metadata.name, request.name),
        ("metadata.namespace", resource.metadata.namespace, request.namespace),
    )
    causes = tuple(
        Cause(field, f"is {sent!r}, the request says {wanted!r}")
        for field, sent, wanted in pairs
        if sent not in {"", wanted}
    )
    if causes:
        raise _invalid(kind, request.name, causes)


def _check_sent_identity(request: WriteObject, kind: Kind, resource: Resource, current: Document) -> None:
    sent = resource.metadata
    if sent.uid and sent.uid != current.uid:
        raise Aborted(f"{_named(kind, request)}: its uid is {current.uid}, not {sent.uid}", (), _fields(request))
    if request.expected_revision is None and sent.resource_version and sent.resource_version != str(current.revision):
        raise _stale(request, kind)


def _carried_over(resource: Resource, old: Resource) -> Resource:
    kept = (
        "uid",
        "generation",
        "creation_timestamp",
        "deletion_timestamp",
        "deletion_grace_period_seconds",
        "self_link",
    )
    metadata = resource.metadata.model_copy(update={name: getattr(old.metadata, name) for name in kept})
    update: dict[str, Any] = {"metadata": metadata}
    if "status" in type(resource).model_fields:
        update["status"] = getattr(old, "status")  # noqa: B009 - only some kinds have one
    return resource.model_copy(update=update)


def _with_status_of(current: Document, body: dict[str, Any]) -> dict[str, Any]:
    body.pop("status", None)
    return {**body, "status": current.body["status"]} if "status" in current.body else body


def _check(kind: Kind, rules: WriteRules, new: Resource, old: Resource | None, lookup: Lookup) -> None:
    causes = list(metadata_causes(new.metadata, rules.names, namespaced=kind.namespaced))
    if old is not None and old.deleting:
        added = sorted(set(new.metadata.finalizers) - set(old.metadata.finalizers))
        if added:
            causes.append(
                Cause("metadata.finalizers", f"{added} cannot be added: it is being deleted", "FieldValueForbidden")
            )
    causes += rules.validate(new, old, lookup)
    if causes:
        raise _invalid(kind, new.name, tuple(causes))


def _invalid(kind: Kind, name: str, causes: tuple[Cause, ...]) -> InvalidArgument:
    text = ", ".join(f"{cause.field}: {cause.message}" for cause in causes[:10])
    shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return InvalidArgument(f'{shown} "{name}" is invalid: {text}', causes, {"kind": kind.kind, "name": name})


def _spec(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in {"metadata", "status"}}


def _stale(request: WriteObject, kind: Kind) -> Aborted:
    sentence = "the object has been modified; please apply your changes to the latest version and try again"
    return Aborted(f"Operation cannot be fulfilled on {_named(kind, request)}: {sentence}", (), _fields(request))


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _named(kind: Kind, request: WriteObject) -> str:
    return f'{_resource(kind)} "{request.name}"'


def _fields(request: WriteObject) -> dict[str, Any]:
    return {"kind": request.kind, "namespace": request.namespace, "name": request.name}
