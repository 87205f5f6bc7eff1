"""Submissions and what ends a Workload: pure decisions on one document.

A repeat decides on a state that has already moved, and does nothing. Read next: lifecycle.py, cleanup.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from services.scheduler.domain import facts, status
from services.scheduler.domain.ledger import Holding
from services.scheduler.domain.lifecycle import Verb, moved, releases
from services.scheduler.domain.rules import HELD_BY_LEDGER, workload_causes
from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.errors import AlreadyExists, InvalidArgument
from shared.messages.base import Fact
from shared.resources.base import Metadata, OwnerReference, from_validation
from shared.resources.kinds import KINDS, KUEUE
from shared.resources.workload import Workload, WorkloadReason, WorkloadSpec
from shared.store.names import SUBDOMAIN

Json = dict[str, Any]
FINISHED_KEPT = timedelta(minutes=10)
"""How long a workload that ended stays to be read."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of one Workload: the new body (None: its document goes), what is given back, what is said."""

    reason: str
    body: Json | None
    facts: tuple[Fact, ...]
    freed: tuple[Holding, ...] = ()


def submitted(command: SubmitWorkload) -> Workload:
    """The Workload that a command asks for.

    Raises:
        InvalidArgument: its name or spec is wrong, one cause a field.
    """
    problem = SUBDOMAIN.problem(command.name)
    if problem:
        raise InvalidArgument(f"name {command.name!r} {problem}")
    try:
        spec = WorkloadSpec.model_validate(command.spec)
    except ValidationError as error:
        wrong = from_validation(error, "spec")
        raise InvalidArgument(str(wrong), wrong.causes) from error
    workload = Workload(api_version=KUEUE, kind="Workload", metadata=_metadata(command), spec=spec)
    causes = workload_causes(workload)
    if causes:
        text = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:5])
        raise InvalidArgument(f"workload {command.namespace}/{command.name}: {text}", tuple(causes))
    return workload


def _metadata(command: SubmitWorkload) -> Metadata:
    owners = []
    if command.owner_kind:
        kind = KINDS.get(command.owner_kind)
        version = kind.api_version if kind is not None else ""
        reference = OwnerReference(
            api_version=version,
            kind=command.owner_kind,
            name=command.owner_name,
            uid=command.owner_uid,
            controller=True,
        )
        owners.append(reference)
    return Metadata(
        name=command.name,
        namespace=command.namespace,
        uid=command.uid,
        labels=command.labels,
        finalizers=[HELD_BY_LEDGER],
        owner_references=owners,
    )


def body_of(workload: Workload, operation: str = "") -> Json:
    """The document of a new Workload: what was said, without the defaults that every reader adds anyway."""
    metadata = workload.metadata.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
    spec = workload.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if operation:
        metadata["annotations"] = {facts.OPERATION: operation}
    return {"apiVersion": workload.api_version, "kind": workload.kind, "metadata": metadata, "spec": spec}


def is_repeat(command: SubmitWorkload, stored_uid: str | None) -> bool:
    """Whether the submission was taken before.

    Raises:
        AlreadyExists: the name belongs to another workload.
    """
    if stored_uid is None:
        return False
    if stored_uid != command.uid:
        raise AlreadyExists(f"workload {command.namespace}/{command.name} exists with another uid; choose another name")
    return True


def cancelled(command: CancelWorkload, body: Mapping[str, Any], now: str) -> Ending | None:
    """What a cancellation does to the stored Workload; None when there is nothing left to do."""
    if command.outcome == "Cancelled":
        return removed(body, command.reason or WorkloadReason.CANCELLED, "its owner took it back")
    return ended(body, WorkloadReason(command.outcome), command.reason, now)


def removed(body: Mapping[str, Any], reason: str, message: str) -> Ending | None:
    """Its document goes, and what it held with it."""
    state = status.state(body)
    if moved(state, Verb.REMOVE) is None:
        return None
    held = status.holdings(body) if releases(state, Verb.REMOVE) else ()
    said = (facts.cancelled(body, reason, message), *facts.freed(facts.pool_of(body), held, reason))
    return Ending(reason, None, said, held)


def ended(body: Mapping[str, Any], reason: WorkloadReason, message: str, now: str) -> Ending | None:
    """Its Pods are over for good; it stays a while to be read and holds nothing."""
    state = status.state(body)
    if moved(state, Verb.FINISH) is None:
        return None
    held = status.holdings(body) if releases(state, Verb.FINISH) else ()
    said = (facts.finished(body, reason, message), *facts.freed(facts.pool_of(body), held, reason))
    return Ending(reason, status.finished(body, reason=reason, message=message, now=now), said, held)


def evicted(body: Mapping[str, Any], reason: str, message: str, now: str) -> Ending | None:
    """Its owner is asked to stop it; what it holds stays held until that is done."""
    if moved(status.state(body), Verb.EVICT) is None:
        return None
    new = status.evicted(body, reason=reason, message=message, now=now)
    return Ending(reason, new, (facts.evicted(body, reason, message),))


def expired(body: Mapping[str, Any]) -> Ending | None:
    """Its time to be read is over; nobody needs to know."""
    if moved(status.state(body), Verb.REMOVE) is None:
        return None
    return Ending("Expired", None, ())
