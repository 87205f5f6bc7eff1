"""What users see of a pool's capacity (EX, SH, SL, PT, cpu) and of one node's cards.

A card that is held whole counts in no view; a free one counts whole, as ten shares and, where its maker can slice, as
100 percent. Nodes that are not ready count nowhere: their cards are unavailable, not free. Pure. Read next: pools.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from services.scheduler.domain.nodes import NodeView
from shared.resources.device import CREDITS_PER_CARD
from shared.resources.pool import CapacityView

SHARES_PER_CARD = 10
PERCENT = 100
MILLI = 1000
VIEWS = ("accelerator", "accelerator_shared", "accelerator_sliced", "accelerator_partitioned", "cpu")


def capacity_views(accelerator: str, nodes: Iterable[NodeView]) -> dict[str, CapacityView]:
    """The five views of a pool, by field of InstanceTypeStatus."""
    ready = [node for node in nodes if node.facts.ready]
    return {
        "accelerator": _whole(accelerator, ready),
        "accelerator_shared": _shared(accelerator, ready),
        "accelerator_sliced": _sliced(accelerator, ready),
        "accelerator_partitioned": CapacityView(),
        "cpu": _cpu(ready),
    }


def _whole(accelerator: str, nodes: Sequence[NodeView]) -> CapacityView:
    free = [len(node.free_cards(accelerator)) for node in nodes]
    capacity = sum(len(node.facts.cards(accelerator)) for node in nodes)
    return CapacityView(once_max_request=max(free, default=0), remaining=sum(free), capacity=capacity)


def _shared(accelerator: str, nodes: Sequence[NodeView]) -> CapacityView:
    whole = _whole(accelerator, nodes)
    return CapacityView(
        once_max_request=whole.once_max_request,
        remaining=whole.remaining * SHARES_PER_CARD,
        capacity=whole.capacity * SHARES_PER_CARD,
    )


def _sliced(accelerator: str, nodes: Sequence[NodeView]) -> CapacityView:
    free = capacity = 0
    for node in nodes:
        group = node.facts.groups.get(accelerator)
        if group is not None:
            free += sum(card in group.sliceable for card in node.free_cards(accelerator))
            capacity += len(group.sliceable)
    most = PERCENT if free else 0
    return CapacityView(once_max_request=most, remaining=free * PERCENT, capacity=capacity * PERCENT)


def _cpu(nodes: Sequence[NodeView]) -> CapacityView:
    free = [max(node.cpu_milli, 0) for node in nodes]
    return CapacityView(
        once_max_request=max(free, default=0) // MILLI,
        remaining=sum(free) // MILLI,
        capacity=sum(node.facts.cpu_milli for node in nodes) // MILLI,
    )


def allocations(
    groups: Iterable[Mapping[str, Any]], used: Mapping[str, int], holders: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """One node's Devices.status.groups from its spec.groups, both as JSON; `used` and `holders` are by device id."""
    return [
        {
            "id": group["id"],
            "manufacturer": group["manufacturer"],
            "accelerators": [_allocation(card, used, holders) for card in group.get("accelerators") or ()],
        }
        for group in groups
    ]


def _allocation(
    card: Mapping[str, Any], used: Mapping[str, int], holders: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """AcceleratorAllocation as JSON."""
    allocated = used.get(card["id"], 0)
    return {
        "id": card["id"],
        "index": card.get("index") or 0,
        "mode": "Exclusive" if allocated else "None",
        "allocated": allocated,
        "remaining": max(CREDITS_PER_CARD - allocated, 0),
        "holders": sorted(holders.get(card["id"], ())),
    }
