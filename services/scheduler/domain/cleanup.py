"""Workloads that nobody will end by a command: deleted by a user, left by their namespace or node, finished long ago.

Pure. Level-triggered: looks at one document and its surroundings, and repeats do nothing. Read next: intake.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.scheduler.domain import facts, intake, status
from services.scheduler.domain.intake import Ending
from services.scheduler.domain.lifecycle import HOLDING, State
from shared.clock import rfc3339
from shared.resources.workload import WorkloadReason


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides about a Workload beside itself."""

    deleting: bool
    """Its deletion was asked for, or its namespace is going."""
    node_exists: Callable[[str], bool]


def cleanup(body: Mapping[str, Any], around: Surroundings, now: datetime) -> Ending | None:
    """What is to be done with a Workload now; None when it is to be left alone.

    One that has an owner is asked to leave and holds its cards until the owner says that its Pods are stopped.
    """
    state = status.state(body)
    if around.deleting:
        if state in HOLDING and facts.owner(body) is not None:
            return intake.evicted(
                body, "Deleted", "its deletion was asked for; its Pods are to be stopped", rfc3339(now)
            )
        return intake.removed(body, "Deleted", "it was deleted")
    if state in HOLDING and facts.owner(body) is None and _is_homeless(body, around):
        return intake.ended(body, WorkloadReason.NODE_LOST, "its node was removed", rfc3339(now))
    if state is State.FINISHED and _is_old(body, now):
        return intake.expired(body)
    return None


def _is_homeless(body: Mapping[str, Any], around: Surroundings) -> bool:
    return any(not around.node_exists(holding.node) for holding in status.holdings(body))


def _is_old(body: Mapping[str, Any], now: datetime) -> bool:
    finished = status.finished_at(body)
    return bool(finished) and now - datetime.fromisoformat(finished) >= intake.FINISHED_KEPT
