"""What is there of one deployment, and how its Workloads and Pods are read.

Pure. Read next: plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from services.deployer.domain.render import Weights, assigned
from shared.resources.artifact import ModelArtifact
from shared.resources.base import get_condition, is_true
from shared.resources.core import Pod
from shared.resources.deployment import ANNOTATION_RENDER, ANNOTATION_WORKLOAD_UID
from shared.resources.pool import InstanceType
from shared.resources.workload import EVICTED, FINISHED, Workload

READY = "Ready"
STOPPED = "Stopped"
"""Condition of a Pod that its node has confirmed to run no more."""


def _nothing_taken(_name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One deployment's surroundings at one revision."""

    workloads: Mapping[str, Workload] = field(default_factory=dict)
    """Its own, by name."""
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """Its own, by name."""
    pools: Mapping[str, InstanceType] = field(default_factory=dict)
    artifact: ModelArtifact | None = None
    weights: Weights = field(default_factory=Weights)
    copies: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Node -> (state, message) of the weights there."""
    nodes: AbstractSet[str] = frozenset()
    lost: frozenset[str] = frozenset()
    """Silent for the grace, and judged to be worth replacing."""
    simulated: bool = False
    """Whether some node is simulated."""
    taken: Callable[[str], bool] = _nothing_taken
    """Whether a Pod or Workload of the namespace has a name, ours or not."""
    resync: bool = False
    """Say again what may have been lost on the way."""
    refused: str = ""
    """Why the scheduler refused a Workload of it."""


def finished(workload: Workload) -> bool:
    """Holds nothing and will not again."""
    return is_true(workload.status.conditions, FINISHED)


def evicted(workload: Workload) -> bool:
    """Holds its devices and must give them back."""
    return is_true(workload.status.conditions, EVICTED) and not finished(workload)


def admitted(workload: Workload) -> bool:
    """Holds devices that a Pod may use."""
    return assigned(workload) is not None and not finished(workload) and not evicted(workload)


def carries(workload: Workload | None, pod: Pod) -> bool:
    """Whether the Pod's devices are still its own."""
    if workload is None or not admitted(workload):
        return False
    assignment = assigned(workload)
    own = pod.metadata.annotations.get(ANNOTATION_WORKLOAD_UID) == workload.uid
    return own and assignment is not None and assignment.node_name == pod.spec.node_name


def ready(pod: Pod) -> bool:
    """Answers its health check, on a node that is heard of."""
    return not pod.deleting and is_true(pod.status.conditions, READY)


def stopped(pod: Pod) -> bool:
    """The node has confirmed that nothing of it runs."""
    return is_true(pod.status.conditions, STOPPED) or bool(pod.status.finished)


def gone(pod: Pod, nodes: AbstractSet[str]) -> bool:
    """Nothing of it can run: never bound, confirmed stopped, or its node is no member any more."""
    return not pod.spec.node_name or stopped(pod) or pod.spec.node_name not in nodes


def renders(pod: Pod) -> str:
    """Digest of what the Pod was rendered from."""
    return pod.metadata.annotations.get(ANNOTATION_RENDER, "")


def why_not_ready(pod: Pod) -> tuple[str, str]:
    """(reason, message) of a Pod that is not ready."""
    found = get_condition(pod.status.conditions, READY)
    return (found.reason, found.message) if found is not None and found.status != "True" else ("", "")
