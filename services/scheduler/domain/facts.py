"""What happened, as messages: built from a Workload's body, so that every fact tells the same of it.

Pure. Read next: shared/events/workload.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.domain import status
from services.scheduler.domain.ledger import Holding
from shared.events.pool import CapacityFreed
from shared.events.workload import (
    WorkloadAdmitted,
    WorkloadCancelled,
    WorkloadFinished,
    WorkloadHeld,
    WorkloadPreempted,
    WorkloadQueued,
)
from shared.messages.base import Fact
from shared.resources.workload import Assignment

Json = Mapping[str, Any]
OPERATION = "gpubus.io/operation"
"""Annotation with the correlation id of the submission."""


def queued(body: Json) -> Fact:
    """It waits."""
    return WorkloadQueued(**_about(body))


def held(body: Json, pool: str, reason: str, message: str) -> Fact:
    """The reason why it waits changed."""
    return WorkloadHeld(**_about(body), pool=pool, reason=reason, message=message)


def admitted(body: Json, assignment: Assignment) -> Fact:
    """It got exact devices."""
    return WorkloadAdmitted(
        **_about(body),
        pool=assignment.pool,
        node=assignment.node_name,
        devices=list(assignment.devices),
        artifact=str((body.get("spec") or {}).get("artifact") or ""),
    )


def evicted(body: Json, reason: str, message: str) -> Fact:
    """It is asked to leave."""
    return WorkloadPreempted(**_about(body), **_place(body), reason=reason, message=message)


def finished(body: Json, reason: str, message: str) -> Fact:
    """It is over and stays to be read."""
    return WorkloadFinished(**_about(body), **_place(body), reason=reason, message=message)


def cancelled(body: Json, reason: str, message: str) -> Fact:
    """Its owner took it back."""
    return WorkloadCancelled(**_about(body), **_place(body), reason=reason, message=message)


def freed(pool: str, holdings: Iterable[Holding], reason: str) -> tuple[Fact, ...]:
    """What it held is free again: one fact a node."""
    return tuple(
        CapacityFreed(name=pool, node=holding.node, devices=list(holding.cards), reason=reason) for holding in holdings
    )


def owner(body: Json) -> Json | None:
    """The owner that submitted it; None for a plain one that a user made."""
    references = (body.get("metadata") or {}).get("ownerReferences") or ()
    return next(iter(references), None)


def operation_of(body: Json) -> str:
    """The operation that submitted it: everything that happens to it later belongs to that one."""
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(OPERATION, ""))


def pool_of(body: Json) -> str:
    """The pool it was admitted to; empty when it was not."""
    return next((str(found.get("pool", "")) for found in status.assignments(body)), "")


def _about(body: Json) -> dict[str, Any]:
    metadata = body.get("metadata") or {}
    by = owner(body) or {}
    return {
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "queue": (body.get("spec") or {}).get("queueName", ""),
        "owner_kind": by.get("kind", ""),
        "owner_name": by.get("name", ""),
        "owner_uid": by.get("uid", ""),
    }


def _place(body: Json) -> dict[str, str]:
    found = next(iter(status.assignments(body)), None)
    return {"pool": str(found.get("pool", "")), "node": str(found["nodeName"])} if found else {}
