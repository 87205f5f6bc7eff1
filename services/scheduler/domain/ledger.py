"""The ledger in integers: who holds what of which node, as a function of live Workloads and orphans.

A card is 1,600,000 credits; CPU is millicores, memory bytes. `reserve` and `release` are exact inverses, so the stored
counters can be rebuilt from documents at any time and compared with them. Pure. Read next: lifecycle.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.resources.device import CREDITS_PER_CARD

EPOCH, CPU, MEMORY, CHANGES = "epoch", "cpu", "memory", "changes"
"""Fields of a node's ledger hash beside the cards: `changes` counts its commits, so that an audit sees a race."""
REPORTED = "report:sequence"
"""The number of the newest report that was taken in this epoch."""
ORPHAN_PREFIX = "orphan:"
"""`orphan:<pod uid>` is the holding of a running Pod that no Workload accounts for, as JSON."""
_RESERVED = frozenset({EPOCH, CPU, MEMORY, CHANGES, REPORTED, ""})


def is_card(field_name: str) -> bool:
    """Whether a device id can be a field of the ledger; one that clashes with ours is never given out."""
    return field_name not in _RESERVED and not field_name.startswith(ORPHAN_PREFIX)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one Pod holds of one node."""

    node: str
    cards: tuple[str, ...] = ()
    credits: int = CREDITS_PER_CARD
    """Per card."""
    cpu_milli: int = 0
    memory_bytes: int = 0

    def amounts(self) -> dict[str, int]:
        """Ledger field to amount; only what is held."""
        amounts = dict.fromkeys(self.cards, self.credits)
        amounts[CPU] = self.cpu_milli
        amounts[MEMORY] = self.memory_bytes
        return {name: amount for name, amount in amounts.items() if amount}


@dataclass(slots=True)
class Used:
    """What of one node is held in total. The one mutable thing here: add and remove are inverse."""

    cards: dict[str, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_bytes: int = 0

    def add(self, holding: Holding) -> None:
        """Charge a holding."""
        for card in holding.cards:
            self.cards[card] = self.cards.get(card, 0) + holding.credits
        self.cpu_milli += holding.cpu_milli
        self.memory_bytes += holding.memory_bytes

    def remove(self, holding: Holding) -> None:
        """Give a charged holding back."""
        for card in holding.cards:
            left = self.cards.get(card, 0) - holding.credits
            if left:
                self.cards[card] = left
            else:
                self.cards.pop(card, None)
        self.cpu_milli -= holding.cpu_milli
        self.memory_bytes -= holding.memory_bytes

    def amounts(self) -> dict[str, int]:
        """Ledger field to amount; only what is held."""
        amounts = {**self.cards, CPU: self.cpu_milli, MEMORY: self.memory_bytes}
        return {name: amount for name, amount in amounts.items() if amount}


@dataclass(frozen=True, slots=True)
class Step:
    """One counter's change: add `delta`, refuse the whole commit outside 0 and `ceiling`."""

    node: str
    field: str
    delta: int
    ceiling: int | None = None


def reserve(holding: Holding, *, cpu_milli: int, memory_bytes: int) -> list[Step]:
    """The counters that take a holding, bounded by the node's capacity; the arguments are what the node has."""
    ceilings = {CPU: cpu_milli, MEMORY: memory_bytes}
    return [
        Step(holding.node, name, amount, ceilings.get(name, CREDITS_PER_CARD))
        for name, amount in holding.amounts().items()
    ]


def charge(holding: Holding) -> list[Step]:
    """The counters that take a holding which exists whether we like it or not (an orphan): no ceiling."""
    return [Step(holding.node, name, amount) for name, amount in holding.amounts().items()]


def release(holding: Holding) -> list[Step]:
    """The counters that give it back."""
    return [Step(holding.node, name, -amount) for name, amount in holding.amounts().items()]


def rebuild(holdings: Iterable[Holding]) -> dict[str, Used]:
    """Every node's use from what is held; the order of holdings does not matter."""
    nodes: dict[str, Used] = {}
    for holding in holdings:
        nodes.setdefault(holding.node, Used()).add(holding)
    return nodes


@dataclass(frozen=True, slots=True)
class Difference:
    """A counter that says something else than the documents."""

    field: str
    stored: int
    held: int


def compare(stored: Mapping[str, str], held: Mapping[str, int]) -> list[Difference]:
    """Counters of one ledger hash that differ from what is held, by field name. Text that is no number counts as -1."""
    counters = {name: _number(value) for name, value in stored.items() if _is_counter(name)}
    names = sorted(counters.keys() | held.keys())
    pairs = ((name, counters.get(name, 0), held.get(name, 0)) for name in names)
    return [Difference(name, have, want) for name, have, want in pairs if have != want]


def _is_counter(name: str) -> bool:
    return name in {CPU, MEMORY} or is_card(name)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1
