"""Running Pods that no Workload accounts for: what a node reports, minus what is admitted there.

They happen when the store lost an admission (a new epoch) or a Workload was taken back before its Pod stopped. Their
cards are charged until a later report no longer has them. Pure. Read next: ledger.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.scheduler.domain.ledger import Holding, is_card
from shared.reports import PodState
from shared.resources.device import CREDITS_PER_CARD, OrphanHolding

RUNNING = frozenset({"Pending", "Running"})
"""Phases in which a Pod may hold its devices."""


class Owned(NamedTuple):
    """A Workload that is admitted to the node."""

    namespace: str
    name: str
    cards: frozenset[str]


def orphans_of(pods: Iterable[PodState], owned: Mapping[tuple[str, str], Owned]) -> dict[str, OrphanHolding]:
    """The orphans among a node's Pods by Pod uid; `owned` is what is admitted there by (namespace, name).

    A Pod belongs to its Workload when that one is admitted here and holds every card of the Pod.
    """
    found: dict[str, OrphanHolding] = {}
    for pod in pods:
        if pod.phase not in RUNNING:
            continue
        owner = owned.get((pod.namespace, pod.workload))
        if owner is not None and owner.cards.issuperset(pod.devices):
            continue
        found[pod.uid] = _holding(pod)
    return found


def holding_of(node: str, orphan: OrphanHolding) -> Holding:
    """What an orphan charges."""
    cards = tuple(card for card in orphan.devices if is_card(card))
    return Holding(node, cards, orphan.credits, orphan.cpu_milli, orphan.memory_bytes)


def _holding(pod: PodState) -> OrphanHolding:
    each = pod.credits if 0 < pod.credits <= CREDITS_PER_CARD else CREDITS_PER_CARD
    return OrphanHolding(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        devices=list(dict.fromkeys(pod.devices)),
        credits=each if pod.devices else 0,
        cpu_milli=max(pod.cpu_milli, 0),
        memory_bytes=max(pod.memory_bytes, 0),
    )
