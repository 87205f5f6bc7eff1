"""Why no replica of a deployment can be made now, known before anything is asked for.

Pure. Read next: plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from services.deployer.domain.engines import registry
from services.deployer.domain.observed import Seen
from services.deployer.domain.weights import gguf_problem
from shared.resources.base import get_condition
from shared.resources.deployment import ModelDeployment, Role


class Reason(StrEnum):
    """The reference's words where it has one."""

    NOT_SERVED_YET = "NotServedYet"
    INSTANCE_TYPE_NOT_FOUND = "InstanceTypeNotFound"
    ARTIFACT_NOT_FOUND = "ArtifactNotFound"
    ARTIFACT_NOT_RESOLVED = "ArtifactNotResolved"
    UNSUITABLE_WEIGHTS = "UnsuitableWeights"


@dataclass(frozen=True, slots=True)
class Block:
    """One reason with its sentence."""

    reason: Reason
    message: str


def not_served(deployment: ModelDeployment, seen: Seen) -> Block | None:
    """The first thing that the deployment needs and this version does not do."""
    if deployment.spec.router is not None:
        return Block(Reason.NOT_SERVED_YET, "spec.router: routers are not served yet; the gateway balances replicas")
    for position, role in enumerate(deployment.spec.roles):
        sentence = _unserved_role(deployment, role, seen)
        if sentence:
            return Block(Reason.NOT_SERVED_YET, f"spec.roles[{position}]{sentence}")
    return None


def _unserved_role(deployment: ModelDeployment, role: Role, seen: Seen) -> str:
    engine = registry()[deployment.spec.engine.name]
    if role.kind != "Server":
        return f".kind: {role.kind} roles are not served yet"
    if role.size > 1:
        return f".size: replicas of {role.size} Pods are not served yet"
    if role.additional_volumes:
        return ".additionalVolumes: volumes need a container runtime, which is not served yet"
    if not engine.process and not role.command and not seen.simulated:
        return (
            f": {engine.name} as a process is not served yet without roles[].command;"
            " simulated nodes play it, and there are none"
        )
    return ""


def pool_missing(deployment: ModelDeployment, seen: Seen) -> Block | None:
    """A pool that does not exist (yet)."""
    for role in deployment.spec.roles:
        if role.instance_type not in seen.pools:
            sentence = f"role {role.name}: no InstanceType {role.instance_type}; see `kubectl get instancetypes`"
            return Block(Reason.INSTANCE_TYPE_NOT_FOUND, sentence)
    return None


def weights_missing(deployment: ModelDeployment, seen: Seen) -> Block | None:
    """An artifact that is not there, not resolved, or not what the engine loads."""
    ref = deployment.spec.model.artifact_ref
    if ref is None:
        return None
    artifact = seen.artifact
    if artifact is None:
        return Block(Reason.ARTIFACT_NOT_FOUND, f"no ModelArtifact {ref.name} in namespace {deployment.namespace}")
    if artifact.deleting:
        return Block(Reason.ARTIFACT_NOT_FOUND, f"ModelArtifact {ref.name} is being deleted")
    if artifact.status.resolved is None:
        told = get_condition(artifact.status.conditions, "Resolved")
        why = f": {told.message}" if told is not None and told.message else ""
        return Block(Reason.ARTIFACT_NOT_RESOLVED, f"ModelArtifact {ref.name} is not resolved yet{why}")
    engine = registry()[deployment.spec.engine.name]
    if engine.one_gguf and not all(role.command for role in deployment.spec.roles):
        if seen.weights.paths is None:
            return Block(Reason.ARTIFACT_NOT_RESOLVED, f"the manifest of ModelArtifact {ref.name} is not stored yet")
        problem = gguf_problem(seen.weights.paths)
        if problem:
            return Block(Reason.UNSUITABLE_WEIGHTS, problem)
    return None


def blocked(deployment: ModelDeployment, seen: Seen) -> Block | None:
    """The first reason why nothing new is made."""
    return not_served(deployment, seen) or pool_missing(deployment, seen) or weights_missing(deployment, seen)
