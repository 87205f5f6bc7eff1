"""A report as the domain reads it: typed, sorted, one bad element left out instead of failing the whole.

Pure. Read next: inventory.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from shared.reports import NodeReported
from shared.resources.base import read_tolerant
from shared.resources.core import NodeAddress, NodeInfo
from shared.resources.device import Accelerator, AcceleratorGroup
from shared.units import QuantityError, parse_quantity

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one node's agent sees of the whole node."""

    node: str
    incarnation: str
    sequence: int
    labels: Mapping[str, str]
    capacity: Mapping[str, str]
    node_info: NodeInfo
    addresses: tuple[NodeAddress, ...]
    runtimes: tuple[str, ...]
    groups: tuple[AcceleratorGroup, ...]
    interfaces: tuple[dict[str, Any], ...]
    problems: tuple[str, ...] = field(default=())
    """What was left out and why."""


def read(report: NodeReported) -> Reading:
    """Type and sort a report."""
    problems: list[str] = []
    groups = [_cleaned(group, problems) for group in _parsed(AcceleratorGroup, "groups", report.groups, problems)]
    return Reading(
        node=report.node,
        incarnation=report.incarnation,
        sequence=report.sequence,
        labels=dict(sorted(report.labels.items())),
        capacity={key: text for key, text in sorted(report.capacity.items()) if _quantity(key, text, problems)},
        node_info=next(iter(_parsed(NodeInfo, "nodeInfo", [report.node_info], problems)), NodeInfo()),
        addresses=tuple(_parsed(NodeAddress, "addresses", report.addresses, problems)),
        runtimes=tuple(sorted(set(report.runtimes))),
        groups=sort_groups(_distinct(groups, problems)),
        interfaces=tuple(sorted(report.interfaces, key=lambda one: str(one.get("name", "")))),
        problems=tuple(problems),
    )


def sort_groups(groups: Iterable[AcceleratorGroup]) -> tuple[AcceleratorGroup, ...]:
    """Groups by maker and first card, cards by driver index: an unchanged node gives an unchanged list."""
    ordered = [
        group.model_copy(update={"accelerators": sorted(group.accelerators, key=lambda card: (card.index, card.id))})
        for group in groups
        if group.accelerators
    ]
    return tuple(sorted(ordered, key=lambda group: (group.manufacturer, group.accelerators[0].index, group.id)))


def _parsed(model: type[M], where: str, raw: Iterable[Mapping[str, Any]], problems: list[str]) -> list[M]:
    found = []
    for position, body in enumerate(raw):
        try:
            found.append(read_tolerant(model, body))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            problems.append(f"{where}[{position}].{'.'.join(map(str, first['loc']))}: {first['msg']}")
    return found


def _cleaned(group: AcceleratorGroup, problems: list[str]) -> AcceleratorGroup:
    kept: list[Accelerator] = [card for card in group.accelerators if card.id]
    if len(kept) != len(group.accelerators):
        problems.append(f"{group.key}: a card without an id")
    return group.model_copy(update={"accelerators": kept})


def _distinct(groups: Iterable[AcceleratorGroup], problems: list[str]) -> list[AcceleratorGroup]:
    seen: set[str] = set()
    merged: dict[str, AcceleratorGroup] = {}
    for group in groups:
        fresh = []
        for card in group.accelerators:
            if card.id in seen:
                problems.append(f"{group.key}: card {card.id} twice")
                continue
            seen.add(card.id)
            fresh.append(card)
        known = merged.get(group.key)
        cards = [*(known.accelerators if known else ()), *fresh]
        merged[group.key] = (known or group).model_copy(update={"accelerators": cards})
    return list(merged.values())


def _quantity(key: str, text: str, problems: list[str]) -> bool:
    try:
        good = parse_quantity(text) >= 0
    except QuantityError as error:
        problems.append(f"capacity[{key}]: {error}")
        return False
    if not good:
        problems.append(f"capacity[{key}]: negative")
    return good
