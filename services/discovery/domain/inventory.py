"""What a node's report changes: the difference between what is stored and what the agent sees now.

Pure. A report describes the whole node, so state is recomputed from it and never latched. Nothing is written when
nothing changed. Read next: identity.py, labels.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from services.discovery.domain import lifecycle
from services.discovery.domain.cards import Card, cards_of, device_facts
from services.discovery.domain.labels import accelerator_capacity, accelerator_labels, devices_labels
from services.discovery.domain.reading import Reading
from shared.events.device import NodeFact, NodeJoined
from shared.events.objects import DiscoveryObjectApplied
from shared.messages.base import Fact
from shared.resources.base import Metadata, OwnerReference
from shared.resources.core import Node, NodeStatus
from shared.resources.device import Devices, DevicesSpec
from shared.resources.kinds import KINDS


class ReportReason(StrEnum):
    """What became of a report."""

    APPLIED = "Applied"
    NOTHING_CHANGED = "NothingChanged"
    STALE_SEQUENCE = "StaleSequence"
    OTHER_INCARNATION = "OtherIncarnation"
    UNCLAIMED = "Unclaimed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to write. A document that is None stays as it is."""

    reason: ReportReason
    node: Node | None = None
    devices: Devices | None = None
    node_facts: tuple[Fact, ...] = ()
    device_facts: tuple[Fact, ...] = ()


def decide_report(node: Node | None, devices: Devices | None, reading: Reading, now: datetime) -> Outcome:
    """Judge one report against the stored Node and Devices."""
    if node is None:
        return Outcome(ReportReason.UNCLAIMED)
    if reading.incarnation != node.status.incarnation:
        return Outcome(ReportReason.OTHER_INCARNATION)
    if reading.sequence < node.status.observed_sequence:
        return Outcome(ReportReason.STALE_SEQUENCE)
    described = _described(node, reading, now)
    inventory = _inventory(described, devices, reading)
    before = cards_of(devices.spec.groups if devices else ())
    changed_node = described if described != node else None
    changed_devices = inventory if inventory != devices else None
    if changed_node is None and changed_devices is None:
        return Outcome(ReportReason.NOTHING_CHANGED)
    return Outcome(
        ReportReason.APPLIED,
        changed_node,
        changed_devices,
        _node_facts(node, described),
        tuple(device_facts(node.name, before, cards_of(reading.groups))),
    )


def removed_devices(node_name: str, devices: Devices) -> tuple[Fact, ...]:
    """The facts of a Devices object that goes with its Node."""
    gone: Mapping[str, Card] = {}
    return tuple(device_facts(node_name, cards_of(devices.spec.groups), gone, reason="NodeRemoved"))


def _described(node: Node, reading: Reading, now: datetime) -> Node:
    owned = {**reading.labels, **accelerator_labels(reading.groups)}
    stored = node.metadata.labels
    users = {key: value for key, value in stored.items() if key not in node.status.agent_labels}
    capacity = {**reading.capacity, **accelerator_capacity(reading.groups)}
    status = node.status.model_copy(
        update={
            "capacity": capacity,
            "allocatable": capacity,
            "node_info": reading.node_info,
            "addresses": list(reading.addresses),
            "runtimes": list(reading.runtimes),
            "observed_sequence": reading.sequence,
            "agent_labels": sorted(owned),
        }
    )
    metadata = node.metadata.model_copy(update={"labels": {**users, **owned}})
    told = node.model_copy(update={"metadata": metadata, "status": status})
    speaks = lifecycle.reason_of(node) == lifecycle.NodeReason.AGENT_REPORTS and not lifecycle.is_held(node)
    return told if speaks else lifecycle.ready(told, now)


def _inventory(node: Node, devices: Devices | None, reading: Reading) -> Devices | None:
    spec = DevicesSpec(groups=list(reading.groups), interfaces=list(reading.interfaces))
    owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid, controller=True)
    labels = devices_labels(node.metadata.labels)
    if devices is None:
        if not reading.groups and not reading.interfaces:
            return None
        metadata = Metadata(name=node.name, labels=labels, owner_references=[owner])
        return Devices(api_version=KINDS["Devices"].api_version, kind="Devices", metadata=metadata, spec=spec)
    generation = devices.metadata.generation + (spec != devices.spec)
    metadata = devices.metadata.model_copy(
        update={"labels": labels, "owner_references": [owner], "generation": generation}
    )
    return devices.model_copy(update={"metadata": metadata, "spec": spec})


def _node_facts(old: Node, new: Node) -> tuple[Fact, ...]:
    about: Iterable[NodeFact] = ()
    if lifecycle.reason_of(old) == lifecycle.NodeReason.NOT_REPORTED_YET:
        about = (NodeJoined(name=new.name, uid=new.uid, labels=new.metadata.labels),)
    elif lifecycle.is_lost(old):
        about = (lifecycle.returned_fact(new),)
    if about:
        return tuple(about)
    if _offer(old) == _offer(new):
        return ()
    return (DiscoveryObjectApplied(kind="Node", name=new.name, uid=new.uid, generation=new.metadata.generation),)


def _offer(node: Node) -> tuple[object, ...]:
    """What decides where things may run."""
    status: NodeStatus = node.status
    return (node.metadata.labels, status.capacity, status.runtimes, status.node_info.architecture)
