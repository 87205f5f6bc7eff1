"""Why a request is not admitted now, in words a person can act on, and which reason that is.

Owns the order of reasons: what no waiting changes comes before what waiting changes. Pure. Read next: admission.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.scheduler.domain.filters import (
    AVAILABLE,
    MATCHING,
    ROOM,
    SIZE,
    Filter,
    Ground,
    Refusal,
    cores,
    counted,
    refusal,
)
from services.scheduler.domain.keys import BASE_KEYS
from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.request import Request
from shared.resources.workload import WorkloadReason
from shared.units import format_quantity

_NAMED = 3
"""Nodes that a sentence names; more are counted."""


class Verdict(NamedTuple):
    """Why a workload waits."""

    reason: WorkloadReason
    message: str

    @property
    def hopeless(self) -> bool:
        """No other workload's end changes it."""
        return self.reason in {WorkloadReason.NEVER_FITS, WorkloadReason.NO_NODE_MATCHES}


def diagnose(request: Request, nodes: Iterable[NodeView], ground: Ground, pool: str) -> Verdict:
    """Why no node of the pool takes the request; call it only when none does."""
    everyone = list(nodes)
    wrong = _wrong_pool(request, ground, pool)
    if wrong is not None:
        return wrong
    if not everyone:
        return Verdict(WorkloadReason.NO_NODE_MATCHES, f"pool {pool} has no nodes")
    matching, others = _split(request, everyone, ground, MATCHING)
    if not matching:
        return Verdict(WorkloadReason.NO_NODE_MATCHES, f"no node of pool {pool} matches: {_tally(others)}")
    sized, _ = _split(request, matching, ground, SIZE)
    if not sized:
        return Verdict(WorkloadReason.NEVER_FITS, _short_of(request, matching, ground, pool))
    available, closed = _split(request, sized, ground, AVAILABLE)
    if not available:
        unheard = any(said.code == "unconfirmed" for _, said in closed)
        reason = WorkloadReason.NODES_UNCONFIRMED if unheard else WorkloadReason.NO_CAPACITY
        return Verdict(reason, f"no node that could hold it is open: {_tally(closed)}")
    return Verdict(WorkloadReason.NO_CAPACITY, _missing(request, sized, available, closed, ground))


def _wrong_pool(request: Request, ground: Ground, pool: str) -> Verdict | None:
    if request.unknown:
        keys = ", ".join(request.unknown)
        sentence = f"no node offers {keys}; whole cards are asked for with keys such as {BASE_KEYS['nvidia']}"
        return Verdict(WorkloadReason.NO_NODE_MATCHES, sentence)
    if not request.cards:
        return None
    maker = request.manufacturer
    if not ground.accelerator:
        sentence = f"asks for {BASE_KEYS[maker]}, pool {pool} has no cards; use the entrance of a pool that has"
        return Verdict(WorkloadReason.NEVER_FITS, sentence)
    if not ground.accelerator.startswith(f"{maker}-"):
        return Verdict(WorkloadReason.NEVER_FITS, f"asks for {BASE_KEYS[maker]}, the cards of pool {pool} are others")
    return None


_Closed = list[tuple[NodeView, Refusal]]


def _split(
    request: Request, nodes: Sequence[NodeView], ground: Ground, filters: tuple[Filter, ...]
) -> tuple[list[NodeView], _Closed]:
    passed: list[NodeView] = []
    refused: _Closed = []
    for node in nodes:
        said = refusal(request, node, ground, filters)
        if said is None:
            passed.append(node)
        else:
            refused.append((node, said))
    return passed, refused


def _short_of(request: Request, nodes: Sequence[NodeView], ground: Ground, pool: str) -> str:
    asks: list[tuple[int, int, Callable[[int], str]]] = [
        (request.cards, max(len(node.facts.cards(ground.accelerator)) for node in nodes), _cards),
        (request.cpu_milli, max(node.facts.cpu_milli for node in nodes), cores),
        (request.memory_bytes, max(node.facts.memory_bytes for node in nodes), _memory),
    ]
    for wanted, largest, words in asks:
        if wanted > largest:
            return f"asks for {words(wanted)}, the largest node of pool {pool} has {words(largest)}"
    together = " and ".join(words(wanted) for wanted, _, words in asks if wanted)
    return f"asks for {together} on one node; no one node of pool {pool} has all of that"


def _missing(
    request: Request, sized: Sequence[NodeView], available: Sequence[NodeView], closed: _Closed, ground: Ground
) -> str:
    full, said = _split(request, available, ground, ROOM)
    assert not full, "diagnose is called when no node takes the request"
    parts = [f"waiting for {_lacking(request, available, ground)}: {len(said)} of {len(sized)} nodes {_are(said)}"]
    if closed:
        parts.append(_tally(closed))
    return ", ".join(parts)


def _lacking(request: Request, nodes: Sequence[NodeView], ground: Ground) -> str:
    """What the nearest node lacks."""
    lacks = min(
        (
            max(request.cards - len(node.free_cards(ground.accelerator)), 0),
            max(request.cpu_milli - node.cpu_milli, 0) if request.cpu_milli else 0,
            max(request.memory_bytes - node.memory_bytes, 0) if request.memory_bytes else 0,
        )
        for node in nodes
    )
    cards, cpu, memory = lacks
    if cards:
        return counted(cards, "more card")
    return cores(cpu, "more ") if cpu else f"{format_quantity(memory)} more memory"


def _are(said: _Closed) -> str:
    alone = len(said) == 1
    empty = all(refused.text.startswith("has 0 ") for _, refused in said)
    if empty:
        return "is full" if alone else "are full"
    return "has too little room" if alone else "have too little room"


def _tally(refused: _Closed) -> str:
    """Who said what: named while they are few, counted when they are many."""
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for node, said in refused:
        groups[said.code].append((node.name, said.text))
    return ", ".join(_group(members) for members in groups.values())


def _group(members: list[tuple[str, str]]) -> str:
    if len(members) <= _NAMED:
        return ", ".join(f"node {name} {text}" for name, text in members)
    name, text = members[0]
    return f"{len(members)} nodes are like {name}, which {text}"


def _cards(count: int) -> str:
    return counted(count, "card")


def _memory(count: int) -> str:
    return f"{format_quantity(count)} memory"
