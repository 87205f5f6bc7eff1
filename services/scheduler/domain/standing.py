"""How an InstanceType stands: capacity, whether it admits, and which facts a change of it is.

Pure. Read next: views.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.pools import pool_of
from services.scheduler.domain.views import capacity_views
from shared.events.pool import CapacityFreed, PoolFormed, PoolResized, PoolRetired
from shared.messages.base import Fact
from shared.resources.base import Condition, set_condition
from shared.resources.pool import InstanceType, InstanceTypeStatus, entrance

ACTIVE = "Active"


def standing(kind: InstanceType, nodes: Sequence[NodeView], now: datetime) -> InstanceTypeStatus:
    """The status of an InstanceType over the nodes of its pool."""
    accelerator = pool_of(kind.spec).accelerator
    real = [node for node in nodes if not node.facts.simulated]
    return kind.status.model_copy(
        update={
            "entrance": entrance(kind.name),
            "detail": _detail(kind),
            "nodes": len(nodes),
            "observed_generation": kind.metadata.generation,
            "conditions": set_condition(kind.status.conditions, _active(kind, nodes), now),
            **capacity_views(accelerator, real or nodes),  # as admission: simulated nodes are asked for by label
        }
    )


def changes(kind: InstanceType, old: InstanceTypeStatus, new: InstanceTypeStatus) -> Iterator[Fact]:
    """The facts of a change of size. A change of what is free is no fact of its own."""
    about = {
        "name": kind.name,
        "entrance": new.entrance,
        "nodes": new.nodes,
        "devices": new.accelerator.capacity,
        "cores": new.cpu.capacity,
    }
    if not old.nodes and new.nodes:
        yield PoolFormed(**about, reason="FirstNode")
    elif old.nodes and not new.nodes:
        yield PoolRetired(**about, reason="LastNodeGone")
    elif _size(old) != _size(new):
        yield PoolResized(**about, reason="NodesChanged")
    if new.accelerator.capacity > old.accelerator.capacity or new.cpu.capacity > old.cpu.capacity:
        yield CapacityFreed(name=kind.name, reason="CapacityAppeared")


def _size(status: InstanceTypeStatus) -> tuple[int, int, int]:
    return status.nodes, status.accelerator.capacity, status.cpu.capacity


def _active(kind: InstanceType, nodes: Sequence[NodeView]) -> Condition:
    generation = kind.metadata.generation or None
    status, reason, message = "True", "Active", ""
    if kind.deleting:
        status, reason, message = "False", "Draining", "it is deleted once no workload runs in it"
    elif kind.spec.inactive:
        status, reason, message = "False", "Hold", "spec.inactive: nothing new is admitted, nothing is evicted"
    elif not nodes:
        status, reason, message = "False", "NoNodes", "no node has what it stands for"
    return Condition.model_validate(
        {"type": ACTIVE, "status": status, "reason": reason, "message": message, "observedGeneration": generation}
    )


def _detail(kind: InstanceType) -> dict[str, Any]:
    spec = kind.spec
    if not spec.acceleratable:
        return {}
    return {
        "manufacturer": spec.manufacturer,
        "product": spec.product,
        "family": spec.family,
        "memory": spec.memory,
        "cores": spec.cores,
    }
