"""What a cycle decided, as commits: up to fifty workloads, their ledgers and their facts in one script call.

Builds only; loops/cycle.py sends them. Read next: ledgers.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from services.scheduler.domain import facts, status
from services.scheduler.domain.admission import Admitted, Held
from services.scheduler.domain.ledger import CHANGES, EPOCH, Holding, Step, reserve
from shared.store import keys
from shared.store.documents import About, Commit, Counter, Document, Put, Require
from shared.store.leases import Lease


class Pick(NamedTuple):
    """An admission and the document it was decided on."""

    document: Document
    admitted: Admitted


class Hold(NamedTuple):
    """A hold and the document it was decided on."""

    document: Document
    held: Held


def admission_commit(picks: Sequence[Pick], *, epoch: str, lease: Lease | None, now: str) -> Commit:
    """All of it or nothing: documents as they were read, cards within capacity, nodes that told what runs there."""
    puts, counters, said = [], [], []
    for position, (document, admitted) in enumerate(picks):
        body = status.admitted(
            document.body,
            queue=admitted.waiting.demand.queue,
            assignment=admitted.assignment,
            entered=admitted.waiting.order[1],
            now=now,
        )
        puts.append(_put(document, body))
        said.append(About(facts.admitted(body, admitted.assignment), position, facts.operation_of(body)))
        counters += _reserved(admitted)
    nodes = dict.fromkeys(pick.admitted.assignment.node_name for pick in picks)
    return Commit(
        puts=puts,
        counters=[*counters, *(changed(node) for node in nodes)],
        requires=[require for node in nodes for require in _open(node, epoch)],
        facts=said,
        lease=lease,
        epoch=epoch,
    )


def hold_commit(holds: Sequence[Hold], *, epoch: str, lease: Lease | None, now: str) -> Commit:
    """Tell workloads why they wait; the fact is said only where the reason changed."""
    puts, said = [], []
    for position, (document, held) in enumerate(holds):
        waiting, (reason, message) = held.waiting, held.verdict
        body = status.held(document.body, reason=reason, message=message, entered=waiting.order[1], now=now)
        puts.append(_put(document, body))
        if waiting.reason != reason:
            held_fact = facts.held(body, waiting.demand.queue, reason, message)
            said.append(About(held_fact, position, facts.operation_of(body)))
    return Commit(puts=puts, facts=said, lease=lease, epoch=epoch)


def counters(steps: Iterable[Step]) -> list[Counter]:
    """Ledger steps as counters of the commit."""
    return [Counter(keys.ledger(step.node), step.field, step.delta, 0, step.ceiling) for step in steps]


def changed(node: str) -> Counter:
    """Every commit that touches a ledger counts itself there, so that an audit notices a race."""
    return Counter(keys.ledger(node), CHANGES, 1, None)


def _reserved(admitted: Admitted) -> list[Counter]:
    place, node = admitted.assignment, admitted.node.facts
    holding = Holding(place.node_name, tuple(place.devices), place.credits, place.cpu_milli, place.memory_bytes)
    return counters(reserve(holding, cpu_milli=node.cpu_milli, memory_bytes=node.memory_bytes))


def _open(node: str, epoch: str) -> tuple[Require, Require]:
    return Require.exists("Node", "", node), Require.equals(keys.ledger(node), EPOCH, epoch)


def _put(document: Document, body: dict[str, object]) -> Put:
    return Put(document.kind, document.namespace, document.name, body, document.revision)
