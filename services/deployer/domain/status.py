"""A deployment's status: counts and conditions, recomputed whole from what is there.

Pure. Facts: the reference operator's sections 5.10 and 7.10. Read next: plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.deployer.domain import observed
from services.deployer.domain.blocked import Block, Reason, blocked, not_served, pool_missing, weights_missing
from services.deployer.domain.names import replica_name
from services.deployer.domain.observed import Seen
from services.deployer.domain.render import assigned, render_hash
from shared.events.deployment import DeploymentAvailable, DeploymentDegraded
from shared.messages.base import Fact
from shared.resources.base import Condition, get_condition, is_true, set_condition
from shared.resources.core import Pod
from shared.resources.deployment import (
    DeployedModel,
    ModelDeployment,
    ModelDeploymentStatus,
    ReplicaSlot,
    Role,
    RoleStatus,
)
from shared.resources.workload import QUOTA_RESERVED, Workload

AVAILABLE = "Available"
REFUSED = "Invalid"
"""The scheduler will never take such a request."""
_LETTERS = (("Server", "R"), ("Prefill", "P"), ("Decode", "D"))


@dataclass(frozen=True, slots=True)
class _Replica:
    """One wanted replica with what is there of its current attempt."""

    role: Role
    workload: Workload | None
    pod: Pod | None

    @property
    def ready(self) -> bool:
        return self.pod is not None and observed.ready(self.pod)

    @property
    def reserved(self) -> bool:
        return self.workload is not None and observed.admitted(self.workload)


def status(
    deployment: ModelDeployment, seen: Seen, slots: Sequence[ReplicaSlot], now: datetime
) -> ModelDeploymentStatus:
    """The status that goes with the slots; conditions keep their transition times."""
    replicas = list(_replicas(deployment, seen, slots))
    conditions = list(deployment.status.conditions)
    for condition in _conditions(deployment, seen, replicas):
        stamped = condition.model_copy(update={"observed_generation": deployment.metadata.generation})
        conditions = set_condition(conditions, stamped, now)
    roles = [_role(deployment, role, replicas) for role in deployment.spec.roles]
    return ModelDeploymentStatus(
        observed_generation=deployment.metadata.generation,
        conditions=conditions,
        endpoint=_endpoint(replicas),
        slots=list(slots),
        role_summary=_summary(deployment),
        roles=roles,
        model=_model(deployment, seen),
    )


def facts(deployment: ModelDeployment, new: ModelDeploymentStatus) -> tuple[Fact, ...]:
    """Available and degraded, when condition Available turned."""
    told = get_condition(new.conditions, AVAILABLE)
    if (
        told is None
        or deployment.deleting
        or is_true(deployment.status.conditions, AVAILABLE) == (told.status == "True")
    ):
        return ()
    named = {
        "namespace": deployment.namespace,
        "name": deployment.name,
        "uid": deployment.uid,
        "model": deployment.spec.model.name,
        "generation": deployment.metadata.generation,
        "reason": told.reason,
        "message": told.message,
    }
    if told.status == "True":
        return (DeploymentAvailable(**named, replicas=sum(role.ready for role in new.roles)),)
    return (DeploymentDegraded(**named),)


def _replicas(deployment: ModelDeployment, seen: Seen, slots: Sequence[ReplicaSlot]) -> Iterable[_Replica]:
    current = {(slot.role, slot.ordinal): slot for slot in slots if slot.open}
    for role in deployment.spec.roles:
        for ordinal in range(role.replicas):
            slot = current.get((role.name, ordinal))
            name = replica_name(deployment.name, role.name, ordinal, slot.attempt) if slot is not None else ""
            yield _Replica(role, seen.workloads.get(name), seen.pods.get(name))


def _conditions(deployment: ModelDeployment, seen: Seen, replicas: list[_Replica]) -> Iterable[Condition]:
    yield _quota(deployment, seen, replicas)
    yield _weights(deployment, seen, replicas)
    yield _up_to_date(deployment, seen, replicas)
    yield _available(deployment, seen, replicas)
    yield _cache(deployment)


def _quota(deployment: ModelDeployment, seen: Seen, replicas: list[_Replica]) -> Condition:
    if not replicas:
        return _unknown(QUOTA_RESERVED, "NoReplicas", "no replica is wanted")
    block = not_served(deployment, seen) or pool_missing(deployment, seen)
    if block is not None:
        return _false(QUOTA_RESERVED, block.reason, block.message)
    waiting = [replica for replica in replicas if not replica.reserved]
    if not waiting:
        return _true(QUOTA_RESERVED, "Reserved", f"all {len(replicas)} replicas hold their devices")
    told = next(
        (c for r in waiting if r.workload and (c := get_condition(r.workload.status.conditions, QUOTA_RESERVED))), None
    )
    if told is None and (refused := seen.refused or _refused_before(deployment)):
        return _false(QUOTA_RESERVED, REFUSED, refused)
    if told is None:
        return _unknown(
            QUOTA_RESERVED, "AdmissionInFlight", f"{len(waiting)} of {len(replicas)} replicas are being admitted"
        )
    return _false(
        QUOTA_RESERVED, "Pending", f"{len(waiting)} of {len(replicas)} replicas wait: {told.message or told.reason}"
    )


def _refused_before(deployment: ModelDeployment) -> str:
    """What the scheduler said of this spec; nothing repeats it until the spec is another one."""
    told = get_condition(deployment.status.conditions, QUOTA_RESERVED)
    same = told is not None and told.reason == REFUSED and told.observed_generation == deployment.metadata.generation
    return told.message if told is not None and same else ""


def _weights(deployment: ModelDeployment, seen: Seen, replicas: list[_Replica]) -> Condition:
    kind = "WeightsReady"
    if deployment.spec.model.artifact_ref is None:
        return _true(kind, "NotApplicable", "the deployment names no artifact")
    block = weights_missing(deployment, seen)
    if block is not None:
        return _false(kind, block.reason, block.message)
    assignments = (assigned(replica.workload) for replica in replicas if replica.workload is not None)
    nodes = sorted({assignment.node_name for assignment in assignments if assignment is not None})
    missing = [node for node in nodes if seen.copies.get(node, ("", ""))[0] != "Ready"]
    failed = [node for node in missing if seen.copies.get(node, ("", ""))[0] == "Failed"]
    if failed:
        return _false(kind, "MaterializationFailed", f"node {failed[0]}: {seen.copies[failed[0]][1]}")
    if missing or not nodes:
        where = f"to {', '.join(missing[:3])}" if missing else "once a replica is admitted to a node"
        return _false(kind, "Materializing", f"the weights are delivered {where}")
    return _true(kind, "Mounted", f"verified on {len(nodes)} node{'s' if len(nodes) > 1 else ''}")


def _up_to_date(deployment: ModelDeployment, seen: Seen, replicas: list[_Replica]) -> Condition:
    kind = "ReplicasUpToDate"
    wanted = {role.name: render_hash(deployment, role) for role in deployment.spec.roles}
    old = [r for r in replicas if r.pod is not None and observed.renders(r.pod) != wanted[r.role.name]]
    if not old:
        going = sum(pod.deleting for pod in seen.pods.values())
        if going and not deployment.deleting:
            return _false(kind, "ReplacementInProgress", f"{going} former replicas are stopping")
        return _true(kind, "UpToDate", "")
    if weights_missing(deployment, seen) is not None:
        return _false(
            kind, "RolloutHeldByWeights", f"{len(old)} replicas are of an earlier spec; the weights hold the rollout"
        )
    return _false(kind, "RolloutInProgress", f"{len(old)} of {len(replicas)} replicas are of an earlier spec")


def _available(deployment: ModelDeployment, seen: Seen, replicas: list[_Replica]) -> Condition:
    block: Block | None = blocked(deployment, seen)
    ready = sum(replica.ready for replica in replicas)
    if replicas and ready == len(replicas):
        return _true(AVAILABLE, "AllReplicasReady", f"{ready} of {ready} replicas are ready")
    if not replicas:
        return _false(AVAILABLE, "NoReplicas", "no replica is wanted")
    counted = f"{ready} of {len(replicas)} replicas are ready"
    if block is not None and not ready:
        return _false(AVAILABLE, block.reason, block.message)
    for replica in replicas:
        if replica.pod is not None and not replica.ready:
            reason, message = observed.why_not_ready(replica.pod)
            if reason:
                return _false(AVAILABLE, reason, f"{counted}; {replica.pod.name}: {message or reason}")
    return _false(AVAILABLE, "ReplicasNotReady", counted)


def _cache(deployment: ModelDeployment) -> Condition:
    if deployment.spec.kv_cache is None:
        return _true("CacheAttached", "NotApplicable", "the deployment names no cache")
    sentence = "shared caches are not served yet; the replicas run without a connector"
    return _unknown("CacheAttached", Reason.NOT_SERVED_YET, sentence)


def _role(deployment: ModelDeployment, role: Role, replicas: list[_Replica]) -> RoleStatus:
    own = [replica for replica in replicas if replica.role.name == role.name]
    return RoleStatus(
        name=role.name,
        kind=role.kind,
        desired=0 if deployment.deleting else role.replicas,
        ready=sum(replica.ready for replica in own),
        quota_reserved=sum(replica.reserved for replica in own),
        unmanaged=bool(role.command),
    )


def _endpoint(replicas: list[_Replica]) -> str:
    """Of the first ready replica; users go through the gateway, which spreads over all."""
    for replica in replicas:
        if replica.ready and replica.pod is not None and (found := replica.pod.status.endpoint) is not None:
            return f"http://{found.address}:{found.port}{found.path}"
    return ""


def _summary(deployment: ModelDeployment) -> str:
    counts = {kind: sum(r.replicas for r in deployment.spec.roles if r.kind == kind) for kind, _ in _LETTERS}
    kinds = {role.kind for role in deployment.spec.roles}
    return "".join(f"{counts[kind]}{letter}" for kind, letter in _LETTERS if kind in kinds)


def _model(deployment: ModelDeployment, seen: Seen) -> DeployedModel | None:
    ref, resolved = deployment.spec.model.artifact_ref, seen.weights.resolved
    if ref is None or resolved is None:
        return deployment.status.model
    return DeployedModel(artifact=ref.name, revision=resolved.revision, manifest_digest=resolved.manifest_digest)


def _true(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)


def _false(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="False", reason=reason, message=message)


def _unknown(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="Unknown", reason=reason, message=message)
