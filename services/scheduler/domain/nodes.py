"""One node as admission sees it: what it is (facts), and what of it is free now (view).

Both are frozen; a reservation makes a new view. Pure. Read next: snapshot.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.scheduler.domain.ledger import Used, is_card
from services.scheduler.domain.request import Request
from shared.resources.base import is_true
from shared.resources.core import Node, Taint
from shared.resources.device import Accelerator, AcceleratorGroup, Devices
from shared.resources.pool import LABEL_SIMULATED
from shared.units import QuantityError, parse_count, parse_milli

OS_LABEL, ARCH_LABEL = "kubernetes.io/os", "kubernetes.io/arch"


@dataclass(frozen=True, slots=True)
class CardGroup:
    """The cards of one product on one node that can be given out whole."""

    key: str
    """Accelerator key, e.g. nvidia-a10g."""
    manufacturer: str
    product: str
    """Sanitised id without the maker."""
    name: str
    memory_mib: int
    cores: int
    family: str
    cards: tuple[str, ...]
    """Healthy, unpartitioned cards by index."""
    sliceable: frozenset[str]
    """Those of them whose maker says they can be sliced."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What changes only when the node itself does."""

    name: str
    os: str
    arch: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True
    cpu_milli: int = 0
    memory_bytes: int = 0
    groups: Mapping[str, CardGroup] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """No hardware: the fleet file made it up."""
        return self.labels.get(LABEL_SIMULATED) == "true"

    def cards(self, accelerator: str) -> tuple[str, ...]:
        """Cards of one product that can be given out whole; none for the generic pool."""
        group = self.groups.get(accelerator)
        return group.cards if group is not None else ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is free on a node now."""

    facts: NodeFacts
    free: Mapping[str, tuple[str, ...]]
    """Accelerator key to the cards that nobody holds, by index."""
    cpu_milli: int
    memory_bytes: int
    confirmed: bool = True
    """Its agent has reported what runs there under the store's epoch; before that nothing is given out."""
    artifacts: frozenset[str] = frozenset()
    """Digests of verified weights that are there."""

    @property
    def name(self) -> str:
        """The node."""
        return self.facts.name

    def free_cards(self, accelerator: str) -> tuple[str, ...]:
        """Cards of one product that nobody holds."""
        return self.free.get(accelerator, ())

    def with_reservation(self, request: Request, accelerator: str) -> tuple[NodeView, tuple[str, ...]]:
        """The view after the request got its place here, and the cards it got: the first free ones by index."""
        free = self.free
        taken: tuple[str, ...] = ()
        if request.cards:
            cards = self.free_cards(accelerator)
            taken = cards[: request.cards]
            free = {**free, accelerator: cards[request.cards :]}
        cpu, memory = self.cpu_milli - request.cpu_milli, self.memory_bytes - request.memory_bytes
        return NodeView(self.facts, free, cpu, memory, self.confirmed, self.artifacts), taken


def facts_of(node: Node, devices: Devices | None) -> NodeFacts:
    """A node's facts from its documents."""
    labels, info = node.metadata.labels, node.status.node_info
    offered = {**node.status.capacity, **node.status.allocatable}
    groups = {group.key: _group(group) for group in (devices.spec.groups if devices else ())}
    return NodeFacts(
        name=node.name,
        os=labels.get(OS_LABEL) or info.operating_system or "linux",
        arch=labels.get(ARCH_LABEL) or info.architecture or "amd64",
        labels=labels,
        taints=tuple(node.spec.taints),
        cordoned=node.spec.unschedulable,
        ready=is_true(node.status.conditions, "Ready") and not node.deleting,
        cpu_milli=_quantity(parse_milli, offered.get("cpu")),
        memory_bytes=_quantity(parse_count, offered.get("memory")),
        groups=groups,
    )


def view_of(facts: NodeFacts, used: Used, *, confirmed: bool, artifacts: frozenset[str]) -> NodeView:
    """What is left of a node."""
    cards = used.cards
    free = {key: tuple(card for card in group.cards if card not in cards) for key, group in facts.groups.items()}
    cpu, memory = facts.cpu_milli - used.cpu_milli, facts.memory_bytes - used.memory_bytes
    return NodeView(facts, free, cpu, memory, confirmed, artifacts)


def _group(group: AcceleratorGroup) -> CardGroup:
    whole = [card for card in group.accelerators if _can_be_whole(card)]
    ordered = tuple(card.id for card in sorted(whole, key=lambda card: (card.index, card.id)))
    return CardGroup(
        group.key, group.manufacturer, group.id, group.name, group.memory, group.cores, group.family, ordered,
        frozenset(card.id for card in whole if _count(card.status.logical_sliced) > 0),
    )  # fmt: skip


def _can_be_whole(card: Accelerator) -> bool:
    return is_card(card.id) and not card.status.unhealthy and not _count(card.status.physical_sliced)


def _count(detail: Mapping[str, object] | None) -> int:
    count = (detail or {}).get("count", 0)
    return count if isinstance(count, int) else 0


def _quantity(parse: Callable[[str], int], text: str | None) -> int:
    try:
        return parse(text) if text else 0
    except QuantityError:
        return 0
