"""Cards by id, and the facts of their differences: found, changed, degraded, lost.

Pure. Identity is the card's universally unique id, never an index. Read next: inventory.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.events.device import DeviceChanged, DeviceDegraded, DeviceFact, DeviceFound, DeviceLost
from shared.resources.device import Accelerator, AcceleratorGroup

RECOVERED = "Recovered"


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator with what its group says about it."""

    group: AcceleratorGroup
    accelerator: Accelerator


def cards_of(groups: Iterable[AcceleratorGroup]) -> Mapping[str, Card]:
    """Every card by id."""
    return {card.id: Card(group, card) for group in groups for card in group.accelerators}


def device_facts(
    node: str, before: Mapping[str, Card], after: Mapping[str, Card], reason: str = ""
) -> Iterator[DeviceFact]:
    """What happened to each card, lost ones first."""
    for identity, card in before.items():
        if identity not in after:
            yield DeviceLost(**_about(node, card), reason=reason or "NotReported")
    for identity, card in after.items():
        yield from _moved(node, before.get(identity), card)


def _moved(node: str, old: Card | None, new: Card) -> Iterator[DeviceFact]:
    about = _about(node, new)
    health = new.accelerator.status
    was_unhealthy = old is not None and old.accelerator.status.unhealthy
    if old is None:
        yield DeviceFound(**about)
    if health.unhealthy and not was_unhealthy:
        yield DeviceDegraded(**about, reason=health.reason)
    elif old is not None and _description(old) != _description(new):
        yield DeviceChanged(**about, reason=RECOVERED if was_unhealthy and not health.unhealthy else "Described")


def _description(card: Card) -> tuple[object, ...]:
    return (card.group.model_copy(update={"accelerators": []}), card.accelerator)


def _about(node: str, card: Card) -> dict[str, Any]:
    group = card.group
    return {
        "node": node,
        "device_id": card.accelerator.id,
        "manufacturer": group.manufacturer,
        "product": group.key,
        "memory_mib": group.memory,
    }
