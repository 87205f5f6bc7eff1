"""What users may write of the scheduler's kinds: plain Workloads, their own InstanceTypes, and a pool's hold.

Pure. Read next: shared/store/objects.py, which applies these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from services.scheduler.domain.pools import ENTRANCE_LABEL, GENERIC, identity_labels
from services.scheduler.domain.request import read_workload
from shared.commands.objects import WriteObject
from shared.errors import Cause
from shared.events.objects import SchedulerObjectApplied, SchedulerObjectRemoved
from shared.events.workload import WorkloadQueued
from shared.messages.base import Fact
from shared.resources.base import Resource
from shared.resources.pool import FINALIZER, InstanceType, InstanceTypeSpec
from shared.resources.workload import ADMITTED, Workload
from shared.store.rules import WriteRules
from shared.units import parse_quantity

HELD_BY_LEDGER = "gpubus.io/ledger"
"""Finalizer of every Workload: its document goes in the commit that gives back what it holds, never before."""
_EDITABLE = frozenset({"display_name", "description", "inactive"})
_IMMUTABLE = "cannot be changed; create another {kind}"
_ONLY_WHILE_WAITING = "can be switched off only while it waits; delete it to give back what it holds"
_UNIT = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_STORAGE = re.compile(r"[1-9][0-9]{0,8}Gi", re.ASCII)


def with_kept_metadata(write: WriteObject, stored: Mapping[str, Any] | None) -> WriteObject:
    """A replacement whose sender did not mention finalizers or owners keeps the stored ones: manifests rarely do."""
    if write.verb != "replace" or stored is None or write.object is None:
        return write
    metadata = write.object.get("metadata")
    if not isinstance(metadata, dict):
        return write
    before = stored.get("metadata") or {}
    kept = {name: before[name] for name in ("finalizers", "ownerReferences") if name in before and name not in metadata}
    return write.model_copy(update={"object": {**write.object, "metadata": {**metadata, **kept}}})


def workload_causes(workload: Workload) -> list[Cause]:
    """What is wrong with a new Workload's spec."""
    return [*_queue_causes(workload), *read_workload(workload.spec)[1]]


def _queue_causes(workload: Workload) -> Iterator[Cause]:
    if not workload.spec.queue_name:
        yield Cause("spec.queueName", "is required: the ENTRANCE of an InstanceType", "FieldValueRequired")


def _validate_workload(new: Workload, old: Workload | None, lookup: Any) -> list[Cause]:  # noqa: ARG001
    causes = [*_kept_causes(new, old, HELD_BY_LEDGER)]
    if old is None:
        return [*causes, *workload_causes(new)]
    causes += [
        Cause(f"spec.{alias}", _IMMUTABLE.format(kind="Workload"), "FieldValueForbidden")
        for field, alias in _fields(new.spec)
        if field != "active" and getattr(new.spec, field) != getattr(old.spec, field)
    ]
    admitted = any(c.type == ADMITTED and c.status == "True" for c in old.status.conditions)
    if admitted and old.spec.active and not new.spec.active:
        causes.append(Cause("spec.active", _ONLY_WHILE_WAITING, "FieldValueForbidden"))
    return causes


def _kept_causes(new: Resource, old: Resource | None, finalizer: str) -> Iterator[Cause]:
    """What in the metadata is the system's."""
    if old is None:
        if new.metadata.owner_references:
            yield Cause("metadata.ownerReferences", "is set by the system on what it submits", "FieldValueForbidden")
        return
    if finalizer in old.metadata.finalizers and finalizer not in new.metadata.finalizers:
        yield Cause("metadata.finalizers", f"{finalizer} is taken off by the scheduler alone", "FieldValueForbidden")
    if new.metadata.owner_references != old.metadata.owner_references:
        yield Cause("metadata.ownerReferences", "cannot be changed", "FieldValueForbidden")


def _workload_facts(old: Workload | None, new: Workload | None) -> tuple[Fact, ...]:
    if old is None and new is not None:
        return (WorkloadQueued(namespace=new.namespace, name=new.name, uid=new.uid, queue=new.spec.queue_name),)
    return _object_facts("Workload", old, new)


def _default_type(resource: InstanceType) -> InstanceType:
    spec = resource.spec
    if not spec.general_group:
        spec = spec.model_copy(update={"general_group": GENERIC})
    labels = {**resource.metadata.labels, **identity_labels(resource.name, spec)}
    metadata = resource.metadata.model_copy(update={"labels": labels})
    return resource.model_copy(update={"metadata": metadata, "spec": spec})


def _validate_type(new: InstanceType, old: InstanceType | None, lookup: Any) -> list[Cause]:  # noqa: ARG001
    if old is None:
        return [*_new_type_causes(new)]
    causes = [*_kept_causes(new, old, FINALIZER)]
    causes += [
        Cause(f"spec.{alias}", _IMMUTABLE.format(kind="InstanceType"), "FieldValueForbidden")
        for field, alias in _fields(new.spec)
        if field not in _EDITABLE and not _same(getattr(new.spec, field), getattr(old.spec, field))
    ]
    if new.metadata.labels.get(ENTRANCE_LABEL) != old.metadata.labels.get(ENTRANCE_LABEL):
        causes.append(Cause(f"metadata.labels[{ENTRANCE_LABEL}]", "is computed from the name", "FieldValueForbidden"))
    return causes


def _new_type_causes(new: InstanceType) -> Iterator[Cause]:
    spec = new.spec
    if spec.acceleratable and not spec.accelerator_group:
        yield Cause("spec.acceleratorGroup", "is required when acceleratable is true", "FieldValueRequired")
    if not spec.acceleratable and spec.accelerator_group:
        yield Cause("spec.acceleratorGroup", "must be empty when acceleratable is false", "FieldValueForbidden")
    if spec.general_group != GENERIC:
        yield Cause("spec.generalGroup", f"must be {GENERIC}: pools by CPU maker are not served")
    for field in ("os", "arch"):
        if not getattr(spec, field):
            yield Cause(f"spec.{field}", "is required", "FieldValueRequired")
    yield from _unit_causes(spec)


def _unit_causes(spec: InstanceTypeSpec) -> Iterator[Cause]:
    cpu, ram = spec.unit_resources.cpu, spec.unit_resources.ram
    if spec.acceleratable and not _UNIT.fullmatch(cpu):
        yield Cause("spec.unitResources.cpu", f"is {cpu}, must be a positive whole number without a unit")
    if not spec.acceleratable and cpu != "1":
        yield Cause("spec.unitResources.cpu", f'is {cpu}, must be exactly "1" for a type without accelerators')
    if parse_quantity(ram) <= 0:
        yield Cause("spec.unitResources.ram", f"is {ram}, must be positive")
    if not _STORAGE.fullmatch(spec.local_storage):
        yield Cause("spec.localStorage", f"is {spec.local_storage}, must be a whole number of Gi")


def _type_facts(old: InstanceType | None, new: InstanceType | None) -> tuple[Fact, ...]:
    return _object_facts("InstanceType", old, new)


def _queue_facts(old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    return _object_facts("LocalQueue", old, new)


def _flavor_facts(old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    return _object_facts("InstanceTypeFlavor", old, new)


def _object_facts(kind: str, old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    now = new if new is not None else old
    assert now is not None, "a write has an old or a new state"
    about = {"kind": kind, "namespace": now.namespace, "name": now.name, "uid": now.uid}
    generation = now.metadata.generation
    if new is None or new.deleting:
        return (SchedulerObjectRemoved(**about, generation=generation),)
    return (SchedulerObjectApplied(**about, generation=generation),)


def _fields(spec: Any) -> list[tuple[str, str]]:
    return [(name, info.alias or name) for name, info in type(spec).model_fields.items()]


def _same(new: Any, old: Any) -> bool:
    """Equal, also when the same quantity is written differently."""
    if new == old:
        return True
    if hasattr(new, "cpu") and hasattr(old, "cpu"):
        return _amounts(new) == _amounts(old)
    return False


def _amounts(unit: Any) -> tuple[object, object]:
    return parse_quantity(unit.cpu), parse_quantity(unit.ram)


RULES: Mapping[str, WriteRules] = {
    "Workload": WriteRules(
        kind="Workload", validate=_validate_workload, facts=_workload_facts, finalizers=(HELD_BY_LEDGER,)
    ),
    "InstanceType": WriteRules(
        kind="InstanceType", default=_default_type, validate=_validate_type, facts=_type_facts, finalizers=(FINALIZER,)
    ),
    "LocalQueue": WriteRules(kind="LocalQueue", facts=_queue_facts),
    "InstanceTypeFlavor": WriteRules(kind="InstanceTypeFlavor", facts=_flavor_facts),
}
