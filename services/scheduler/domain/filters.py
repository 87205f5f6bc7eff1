"""Whether a node can take a request, and if not, why: small functions in four groups, tried in order.

A refusal is a value with a code (to count by) and words (to show). To add one, write a function and put it into the
group whose meaning it has: the group decides which reason a waiting workload is given. Pure.
Read next: scorers.py, diagnosis.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from services.scheduler.domain.nodes import NodeView
from services.scheduler.domain.request import Request, Tolerated
from shared.resources.core import Taint
from shared.resources.pool import LABEL_SIMULATED
from shared.units import format_milli, format_quantity

_CORE = 1000


class Ground(NamedTuple):
    """What of a pool the filters and scorers look at."""

    accelerator: str
    """Accelerator key of the pool's cards; empty for the generic pool."""
    has_real: bool
    """Some node of it is no simulation."""


class Refusal(NamedTuple):
    """Why a node does not take a request; `text` continues "node x ..."."""

    code: str
    text: str


Filter = Callable[[Request, NodeView, Ground], Refusal | None]


def counted(count: int, noun: str) -> str:
    """A number and what it counts: 1 card, 2 cards."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cores(milli: int, what: str = "") -> str:
    """Millicores in words: 1 core, 2500m cores; `what` stands before the noun."""
    return f"{format_milli(milli)} {what}{'core' if milli == _CORE else 'cores'}"


def is_named(request: Request, node: NodeView, _: Ground) -> Refusal | None:
    """spec.nodeName pins a Pod."""
    if request.node_name and request.node_name != node.name:
        return Refusal("other_node", f"is not the node that the Pod names, {request.node_name}")
    return None


def has_labels(request: Request, node: NodeView, _: Ground) -> Refusal | None:
    """spec.nodeSelector."""
    labels = node.facts.labels
    for key, value in request.selector:
        if labels.get(key) != value:
            return Refusal("label", f"lacks label {key}={value}")
    return None


def is_tolerated(request: Request, node: NodeView, _: Ground) -> Refusal | None:
    """Taints that keep Pods away, unless tolerated."""
    for taint in node.facts.taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(_tolerates(toleration, taint) for toleration in request.tolerations):
            return Refusal("taint", f"has taint {taint.key}={taint.value}:{taint.effect}")
    return None


def is_real_if_any(request: Request, node: NodeView, ground: Ground) -> Refusal | None:
    """A pool that has real nodes admits to those, unless the Pod selects the label."""
    if not (ground.has_real and node.facts.simulated) or any(key == LABEL_SIMULATED for key, _ in request.selector):
        return None
    return Refusal("simulated", f"is simulated; select {LABEL_SIMULATED}=true to use it")


def is_large_enough(request: Request, node: NodeView, ground: Ground) -> Refusal | None:
    """The empty node could hold it."""
    facts = node.facts
    if request.cards > (cards := len(facts.cards(ground.accelerator))):
        return Refusal("cards_size", f"has {counted(cards, 'card')}")
    if request.cpu_milli > facts.cpu_milli:
        return Refusal("cpu_size", f"has {cores(facts.cpu_milli)}")
    if request.memory_bytes > facts.memory_bytes:
        return Refusal("memory_size", f"has {format_quantity(facts.memory_bytes)} memory")
    return None


def is_open(_: Request, node: NodeView, __: Ground) -> Refusal | None:
    """Not cordoned."""
    return Refusal("cordoned", "is cordoned") if node.facts.cordoned else None


def is_ready(_: Request, node: NodeView, __: Ground) -> Refusal | None:
    """Heard of; the devices of a lost node are unavailable, never free."""
    return None if node.facts.ready else Refusal("not_ready", "is not ready")


def is_confirmed(_: Request, node: NodeView, __: Ground) -> Refusal | None:
    """Its agent has told what runs there under this epoch of the store."""
    return None if node.confirmed else Refusal("unconfirmed", "has not reported yet what runs there")


def has_cards(request: Request, node: NodeView, ground: Ground) -> Refusal | None:
    """Enough cards that nobody holds."""
    if not request.cards or request.cards <= (free := len(node.free_cards(ground.accelerator))):
        return None
    return Refusal("cards", f"has {counted(free, 'free card')}")


def has_cpu(request: Request, node: NodeView, _: Ground) -> Refusal | None:
    """Enough cores that nobody asked for; who asks for none is never refused."""
    if not request.cpu_milli or request.cpu_milli <= node.cpu_milli:
        return None
    return Refusal("cpu", f"has {cores(max(node.cpu_milli, 0), 'free ')}")


def has_memory(request: Request, node: NodeView, _: Ground) -> Refusal | None:
    """Enough memory that nobody asked for; who asks for none is never refused."""
    if not request.memory_bytes or request.memory_bytes <= node.memory_bytes:
        return None
    return Refusal("memory", f"has {format_quantity(max(node.memory_bytes, 0))} free memory")


MATCHING: tuple[Filter, ...] = (is_named, has_labels, is_tolerated, is_real_if_any)
"""Waiting does not help: only another request or another node does."""
SIZE: tuple[Filter, ...] = (is_large_enough,)
"""Not even when empty."""
AVAILABLE: tuple[Filter, ...] = (is_open, is_ready, is_confirmed)
"""Closed for everybody at the moment."""
ROOM: tuple[Filter, ...] = (has_cards, has_cpu, has_memory)
"""Held by others at the moment."""
FILTERS = (*MATCHING, *SIZE, *AVAILABLE, *ROOM)


def refusal(request: Request, node: NodeView, ground: Ground, filters: tuple[Filter, ...] = FILTERS) -> Refusal | None:
    """The first filter that says no; None when the node can take the request."""
    for check in filters:
        said = check(request, node, ground)
        if said is not None:
            return said
    return None


def _tolerates(toleration: Tolerated, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value
