"""Workspaces and their parts: stored and checked, not served yet; each says so in condition Ready.

Pure. Facts: the reference operator's sections 2.5 and 8. Read next: rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from services.deployer.domain.rules_pod import facts
from shared.errors import Cause
from shared.resources.base import Condition, Resource, read_tolerant
from shared.resources.instance import Instance, InstanceResources
from shared.resources.pool import InstanceType
from shared.store.rules import Key, Lookup, WriteRules
from shared.units import QuantityError, parse_count

FORBIDDEN, REQUIRED = "FieldValueForbidden", "FieldValueRequired"
KINDS = ("Instance", "InstanceSSHPublicKey", "InstancePersistentVolume", "InstanceImagePullSecret")
NOT_SERVED = Condition(
    type="Ready",
    status="False",
    reason="NotServedYet",
    message="this kind is stored and checked; nothing runs from it in this version",
)


def default(resource: Any) -> Any:
    """With the condition that says it is not served."""
    return resource.model_copy(update={"status": resource.status.model_copy(update={"conditions": [NOT_SERVED]})})


def needs(new: Resource) -> Sequence[Key]:
    """The pool of a workspace."""
    return [("InstanceType", "", new.spec.type)] if isinstance(new, Instance) else []


def validate(new: Any, old: Any, lookup: Lookup) -> list[Cause]:
    """Everything wrong with one of the kinds."""
    if old is not None and (old.deleting or old.spec == new.spec):
        return []
    if isinstance(new, Instance):
        return list(_instance(new, lookup))
    capacity = getattr(new.spec, "capacity", None)
    return list(_capacity(capacity, "spec.capacity")) if capacity is not None else []


def _instance(new: Instance, lookup: Lookup) -> Iterator[Cause]:
    wanted, at = new.spec.resources, "spec.resources"
    part = wanted.accelerator_sliced_memory_percentage
    if part is None and wanted.accelerator_sliced_cores_percentage is not None:
        yield Cause(f"{at}.acceleratorSlicedMemoryPercentage", "is needed beside the cores' percentage", REQUIRED)
    if part is not None and wanted.accelerator_partitioned_profile:
        yield Cause(f"{at}.acceleratorPartitionedProfile", "a partition and a percentage exclude each other", FORBIDDEN)
    count, problem = _count(wanted)
    if problem:
        yield Cause(f"{at}.accelerator", problem)
        return
    if (part or wanted.accelerator_partitioned_profile) and count not in {None, 1}:
        yield Cause(f"{at}.accelerator", f"is {count}; a part of a card is a part of exactly 1")
    volume = new.spec.volume
    if volume is not None and volume.ephemeral is not None:
        yield from _capacity(volume.ephemeral.capacity, "spec.volume.ephemeral.capacity")
    body = lookup("InstanceType", "", new.spec.type)
    if body is not None and count is not None and not part:
        yield from _fits(read_tolerant(InstanceType, body), count, at)


def _fits(pool: InstanceType, count: int, at: str) -> Iterator[Cause]:
    capacity = pool.status.accelerator.capacity
    if pool.spec.acceleratable and capacity and count > capacity:
        yield Cause(f"{at}.accelerator", f"is {count}, the whole pool {pool.name} has {capacity}")


def _count(wanted: InstanceResources) -> tuple[int | None, str]:
    if wanted.accelerator is None:
        return None, ""
    try:
        return parse_count(wanted.accelerator), ""
    except QuantityError as error:
        return None, str(error)


def _capacity(text: str, field: str) -> Iterator[Cause]:
    try:
        if parse_count(text) == 0:
            yield Cause(field, "must be above 0")
    except QuantityError as error:
        yield Cause(field, str(error))


RULES = {kind: WriteRules(kind=kind, default=default, validate=validate, facts=facts, needs=needs) for kind in KINDS}
