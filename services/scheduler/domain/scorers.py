"""Which of the nodes that can take a request is best: functions with results in [0, 1], weighted and added.

To add one, write a function and name it in SCORERS; settings choose the weights. Pure. Read next: snapshot.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.scheduler.domain.filters import Ground
from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.request import Request

Scorer = Callable[[Request, NodeView, Ground], float]
Weights = tuple[tuple[Scorer, float], ...]


def binpack(request: Request, node: NodeView, ground: Ground) -> float:
    """Fullest first: what is left stays in large pieces for large requests."""
    facts = node.facts
    if request.cards:
        return 1.0 - (len(node.free_cards(ground.accelerator)) - request.cards) / len(facts.cards(ground.accelerator))
    if not facts.cpu_milli:
        return 0.0
    return min(1.0, max(0.0, 1.0 - (node.cpu_milli - request.cpu_milli) / facts.cpu_milli))


def spread(request: Request, node: NodeView, ground: Ground) -> float:
    """Emptiest first: one lost node takes fewer replicas along."""
    return 1.0 - binpack(request, node, ground)


def artifact(request: Request, node: NodeView, _: Ground) -> float:
    """The weights are there already: nothing to deliver."""
    return 1.0 if request.artifact and request.artifact in node.artifacts else 0.0


def spare_accelerators(request: Request, node: NodeView, _: Ground) -> float:
    """Work without cards keeps off nodes with cards, whose CPU the cards' own work needs."""
    return 0.0 if not request.cards and node.facts.groups else 1.0


SCORERS: Mapping[str, Scorer] = {
    "binpack": binpack,
    "spread": spread,
    "artifact": artifact,
    "spare-accelerators": spare_accelerators,
}
DEFAULT_WEIGHTS: Mapping[str, float] = {"binpack": 1.0, "artifact": 2.0, "spare-accelerators": 1.0}
"""Weights that are there outweigh packing: delivering them again costs minutes, a gap on a node costs nothing yet."""


def weighted(weights: Mapping[str, float]) -> Weights:
    """The scorers of a choice by name, the ones with weight 0 left out.

    Raises:
        KeyError: no scorer has that name.
    """
    return tuple((SCORERS[name], weight) for name, weight in weights.items() if weight)


def score(request: Request, node: NodeView, ground: Ground, weights: Weights) -> float:
    """The sum over the chosen scorers."""
    return sum(weight * scorer(request, node, ground) for scorer, weight in weights)
