"""What may happen to a Workload: its states, the verbs that move it, and the conditions that say so.

One table, one function that applies it. States are read from conditions, never stored. Pure. Read next: status.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from shared.resources.workload import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED


class State(StrEnum):
    """Where a Workload is."""

    WAITING = "Waiting"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    """Asked to leave, and still holding: its Pods are not confirmed stopped."""
    FINISHED = "Finished"
    GONE = "Gone"
    """No document."""


class Verb(StrEnum):
    """What is done to a Workload."""

    HOLD = "Hold"
    """Say why it waits."""
    ADMIT = "Admit"
    EVICT = "Evict"
    """Ask its owner to stop it."""
    FINISH = "Finish"
    """Its Pods ended, or their node is gone for good."""
    REMOVE = "Remove"
    """Its owner took it back, or its time as a finished one is over."""


TABLE: Mapping[tuple[State, Verb], State] = {
    (State.WAITING, Verb.HOLD): State.WAITING,
    (State.WAITING, Verb.ADMIT): State.ADMITTED,
    (State.WAITING, Verb.FINISH): State.FINISHED,
    (State.WAITING, Verb.REMOVE): State.GONE,
    (State.ADMITTED, Verb.EVICT): State.EVICTED,
    (State.ADMITTED, Verb.FINISH): State.FINISHED,
    (State.ADMITTED, Verb.REMOVE): State.GONE,
    (State.EVICTED, Verb.FINISH): State.FINISHED,
    (State.EVICTED, Verb.REMOVE): State.GONE,
    (State.FINISHED, Verb.REMOVE): State.GONE,
}

HOLDING = frozenset({State.ADMITTED, State.EVICTED})
"""States that are charged in the ledger."""
_RESERVED = frozenset({ADMITTED, QUOTA_RESERVED})


def moved(state: State, verb: Verb) -> State | None:
    """The state after a verb; None when the verb does not apply there: a repeat, or too late. Nothing happens then."""
    return TABLE.get((state, verb))


def releases(state: State, verb: Verb) -> bool:
    """Whether the move gives back what is held."""
    return state in HOLDING and moved(state, verb) not in HOLDING | {None}


def state_of(conditions: Iterable[Mapping[str, Any]]) -> State:
    """The state that a Workload's conditions (as JSON) say."""
    reserved = evicted = False
    for condition in conditions:
        if condition.get("status") != "True":
            continue
        kind = condition.get("type")
        if kind == FINISHED:
            return State.FINISHED
        reserved = reserved or kind in _RESERVED
        evicted = evicted or kind == EVICTED
    if not reserved:
        return State.WAITING
    return State.EVICTED if evicted else State.ADMITTED
