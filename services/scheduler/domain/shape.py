"""Which InstanceTypes, entrances and catalogue rows there should be, compared with what there is.

Types are made once and never rewritten: what an administrator changed stays. Pure. Read next: pools.py, standing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from services.scheduler.domain.nodes import NodeFacts
from services.scheduler.domain.pools import derived_type, flavors, groups_by_pool, local_queue
from shared.resources.access import SETTINGS_NAMESPACE
from shared.resources.pool import InstanceType, InstanceTypeFlavor, InstanceTypeFlavorSpec, LocalQueue, entrance

SYSTEM_NAMESPACES = frozenset({SETTINGS_NAMESPACE})
"""Namespaces without entrances."""
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What there is."""

    nodes: Collection[NodeFacts]
    namespaces: Mapping[str, bool]
    """Name to whether it is being deleted."""
    types: Mapping[str, InstanceType]
    queues: Mapping[Key, str]
    """(namespace, name) of each LocalQueue to the InstanceType behind it."""
    flavors: Mapping[str, InstanceTypeFlavorSpec]
    in_use: Callable[[str], bool]
    """Whether an InstanceType has admitted workloads."""
    mixed: bool = True
    derived: bool = True
    """Whether nodes form InstanceTypes at all."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What to write so that it is as it should be."""

    new_types: list[InstanceType] = field(default_factory=list)
    gone_types: list[str] = field(default_factory=list)
    new_queues: list[LocalQueue] = field(default_factory=list)
    gone_queues: list[Key] = field(default_factory=list)
    flavors: list[InstanceTypeFlavor] = field(default_factory=list)
    gone_flavors: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(
            (self.new_types, self.gone_types, self.new_queues, self.gone_queues, self.flavors, self.gone_flavors)
        )


def decide_shape(present: Present) -> Steps:
    """The steps from what there is to what should be; none when it is so already."""
    gone = {name for name, found in present.types.items() if found.deleting and not present.in_use(name)}
    new = [made for made in _derived(present) if made.name not in present.types] if present.derived else []
    names = {*(present.types.keys() - gone), *(made.name for made in new)}
    wanted = dict(_entrances(present, names))
    rows = flavors(present.nodes)
    return Steps(
        new_types=new,
        gone_types=sorted(gone),
        new_queues=[local_queue(key[0], name) for key, name in sorted(wanted.items()) if key not in present.queues],
        gone_queues=sorted(key for key, name in present.queues.items() if wanted.get(key) != name),
        flavors=[row for name, row in rows.items() if present.flavors.get(name) != row.spec],
        gone_flavors=sorted(present.flavors.keys() - rows.keys()),
    )


def _derived(present: Present) -> Iterator[InstanceType]:
    for key, group in groups_by_pool(present.nodes, mixed=present.mixed).items():
        yield derived_type(key, group)


def _entrances(present: Present, types: Collection[str]) -> Iterator[tuple[Key, str]]:
    for namespace, deleting in present.namespaces.items():
        if not deleting and namespace not in SYSTEM_NAMESPACES:
            for name in types:
                yield (namespace, entrance(name)), name
