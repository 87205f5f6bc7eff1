"""What a plan consists of.

Pure data. Read next: plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shared.resources.core import Pod
from shared.resources.deployment import ReplicaSlot, Role
from shared.resources.workload import Workload

Outcome = Literal["Cancelled", "Succeeded", "Failed", "NodeLost"]


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask for capacity for one replica."""

    role: Role
    ordinal: int
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Run an admitted replica."""

    role: Role
    ordinal: int
    workload: Workload


@dataclass(frozen=True, slots=True)
class Cancel:
    """Take a Workload back."""

    name: str
    uid: str
    outcome: Outcome = "Cancelled"
    """Cancelled removes it; the others leave it to be read for a while."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Forget a Pod that runs no more, and take its Workload back with it."""

    pod: Pod
    cancel: Cancel | None


@dataclass(slots=True)
class Plan:
    """The steps of one commit."""

    slots: tuple[ReplicaSlot, ...] = ()
    submits: list[Submit] = field(default_factory=list)
    creates: list[CreatePod] = field(default_factory=list)
    stops: list[Pod] = field(default_factory=list)
    """Pods to take out of their node's desired set."""
    removes: list[RemovePod] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    gone: bool = False
    """Nothing is left of a deployment that is being deleted."""
    more: bool = False
    """Not everything fitted: plan again."""

    @property
    def documents(self) -> int:
        """How many Pods it writes."""
        return len(self.creates) + len(self.stops) + len(self.removes)

    @property
    def removed(self) -> frozenset[str]:
        """Uids of the Pods that go."""
        return frozenset(step.pod.uid for step in self.removes)

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done but perhaps the status."""
        return not (self.documents or self.submits or self.cancels or self.gone)
