"""Builders of the deployer's world: deployments, pools, Workloads, Pods, artifacts.

Read next: tests/unit/deployer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from services.deployer.domain.names import replica_name, workload_uid
from services.deployer.domain.observed import STOPPED, Seen
from services.deployer.domain.plan import plan
from services.deployer.domain.pods import scheduled
from services.deployer.domain.render import ask_hash
from services.deployer.domain.render import pod as render_pod
from services.deployer.domain.steps import Plan
from shared.resources.artifact import ModelArtifact
from shared.resources.base import Condition, Metadata, set_condition
from shared.resources.core import ContainerState, ContainerStatus, Pod
from shared.resources.deployment import ModelDeployment, ReplicaSlot
from shared.resources.pool import InstanceType
from shared.resources.workload import Workload

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CPU_POOL = "gpustack--generic-linux-amd64"
GPU_POOL = "gpustack--nvidia-a10g-linux-amd64"
DIGEST = f"sha256:{'a' * 64}"


def a_role(**fields: Any) -> dict[str, Any]:
    return {"name": "server", "instanceType": CPU_POOL, "resources": {"cpu": "1", "ram": "1Gi"}, **fields}


def a_deployment(
    name: str = "m", *, engine: str = "Simulated", roles: list[dict[str, Any]] | None = None, **spec: Any
) -> ModelDeployment:
    model = spec.pop("model", {"name": "m1"})
    body = {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1},
        "spec": {"model": model, "engine": {"name": engine}, "roles": roles or [a_role()], **spec},
    }
    return ModelDeployment.model_validate(body)


def replicas(deployment: ModelDeployment, count: int) -> ModelDeployment:
    """The same with another number of replicas of its first role."""
    role = deployment.spec.roles[0].model_copy(update={"replicas": count})
    return with_spec(deployment, roles=[role, *deployment.spec.roles[1:]])


def with_role(deployment: ModelDeployment, **fields: Any) -> ModelDeployment:
    """The same with its first role edited."""
    role = deployment.spec.roles[0].model_copy(update=fields)
    return with_spec(deployment, roles=[role, *deployment.spec.roles[1:]])


def with_spec(deployment: ModelDeployment, **fields: Any) -> ModelDeployment:
    return deployment.model_copy(update={"spec": deployment.spec.model_copy(update=fields)})


def deleting(resource: Any) -> Any:
    metadata = resource.metadata.model_copy(update={"deletion_timestamp": NOW})
    return resource.model_copy(update={"metadata": metadata})


def a_pool(name: str = CPU_POOL, *, capacity: int = 16) -> InstanceType:
    accelerated = "nvidia" in name
    body = {
        "metadata": {"name": name},
        "spec": {
            "acceleratable": accelerated,
            "acceleratorGroup": "nvidia-a10g" if accelerated else "",
            "manufacturer": "nvidia" if accelerated else "",
            "os": "linux",
            "arch": "amd64",
            "unitResources": {"cpu": "4" if accelerated else "1", "ram": "16Gi" if accelerated else "2Gi"},
        },
        "status": {"accelerator": {"capacity": capacity if accelerated else 0}},
    }
    return InstanceType.model_validate(body)


def an_artifact(name: str = "weights", *, resolved: bool = True) -> ModelArtifact:
    status = {"resolved": {"revision": "c" * 40, "manifestDigest": DIGEST}} if resolved else {}
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"source": {"huggingFace": {"repository": "o/n"}}},
        "status": status,
    }
    return ModelArtifact.model_validate(body)


def a_workload(name: str, uid: str, *, node: str = "", owner: str = "uid-m", **conditions: str) -> Workload:
    """`node`: admitted there. `conditions`: type=status, or type="False:reason:message"."""
    told = []
    for kind, text in conditions.items():
        status, reason, message = (*text.split(":", 2), "", "")[:3]
        told.append({"type": kind, "status": status, "reason": reason, "message": message})
    assignment = {"nodeName": node, "pool": CPU_POOL, "devices": ["GPU-1"], "cpuMilli": 2000, "memoryBytes": 1 << 30}
    admission = {"clusterQueue": CPU_POOL, "podSetAssignments": [assignment]} if node else None
    body = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "resourceVersion": "7",
            "ownerReferences": [{"kind": "ModelDeployment", "name": "m", "uid": owner, "controller": True}],
        },
        "spec": {"queueName": "q", "podSets": [{"template": {"spec": {"containers": [{"name": "engine"}]}}}]},
        "status": {"admission": admission, "conditions": told},
    }
    return Workload.model_validate(body)


class World:
    """A deployment with everything around it; applies plans as the store and the other services would."""

    def __init__(self, deployment: ModelDeployment, *, nodes: tuple[str, ...] = ("n1", "n2"), **seen: Any) -> None:
        self.deployment = deployment
        self.workloads: dict[str, Workload] = {}
        self.pods: dict[str, Pod] = {}
        self.nodes = set(nodes)
        self.lost: set[str] = set()
        self.more = {"pools": {CPU_POOL: a_pool(), GPU_POOL: a_pool(GPU_POOL)}, "simulated": True, **seen}
        self.cancelled: set[str] = set()
        self.submitted: list[str] = []
        self.created: list[str] = []
        self.removed: list[str] = []

    def seen(self, *, resync: bool = False) -> Seen:
        return Seen(
            workloads=dict(self.workloads),
            pods=dict(self.pods),
            nodes=frozenset(self.nodes),
            lost=frozenset(self.lost),
            taken=lambda name: name in self.workloads or name in self.pods,
            resync=resync,
            **self.more,
        )

    def plan(self, *, resync: bool = False) -> Plan:
        return plan(self.deployment, self.seen(resync=resync))

    def step(self, *, resync: bool = False) -> Plan:
        """One plan, applied."""
        steps = self.plan(resync=resync)
        for step in steps.removes:
            assert step.pod.name in self.pods
            del self.pods[step.pod.name]
            self.removed.append(step.pod.name)
        cancels = [*steps.cancels, *(step.cancel for step in steps.removes if step.cancel)]
        for cancel in cancels:
            self.cancelled.add(cancel.uid)
            found = self.workloads.get(cancel.name)
            if found is not None and found.uid == cancel.uid:
                running = [pod for pod in self.pods.values() if pod.name == cancel.name]
                assert not running, "a Workload was taken back while its Pod may run"
                del self.workloads[cancel.name]
        for step in steps.submits:
            self.submitted.append(step.name)
            if step.uid not in self.cancelled:
                assert step.name not in self.workloads
                self.workloads[step.name] = a_workload(step.name, step.uid, owner=self.deployment.uid)
        for pod in steps.stops:
            self.pods[pod.name] = deleting(pod)
        for step in steps.creates:
            assert step.workload.uid not in self.cancelled
            self.created.append(step.workload.name)
            pool, weights = self.more["pools"][step.role.instance_type].spec, self.seen().weights
            pod = render_pod(self.deployment, step.role, step.ordinal, step.workload, pool, weights)
            metadata = pod.metadata.model_copy(update={"uid": f"pod-{pod.name}"})
            status = pod.status.model_copy(update={"conditions": scheduled([], bound=True, now=NOW)})
            self.pods[pod.name] = pod.model_copy(update={"metadata": metadata, "status": status})
        status = self.deployment.status.model_copy(update={"slots": list(steps.slots)})
        self.deployment = self.deployment.model_copy(update={"status": status})
        return steps

    def settle(self) -> None:
        """Plan until nothing is left to do."""
        for _ in range(30):
            if self.step().empty:
                return
        raise AssertionError("the plan does not settle")

    def admit(self, node: str = "n1") -> None:
        """The scheduler admits everything that waits."""
        for name, found in self.workloads.items():
            if found.status.admission is None:
                self.workloads[name] = a_workload(name, found.uid, node=node, owner=self.deployment.uid)

    def run(self, *, ready: bool = True) -> None:
        """The agents start what is wanted and confirm what is not."""
        for name, pod in self.pods.items():
            if pod.spec.node_name in self.lost:
                continue
            kind = (
                Condition(type=STOPPED, status="True") if pod.deleting else Condition(type="Ready", status=str(ready))
            )
            conditions = set_condition(pod.status.conditions, kind, NOW)
            container = ContainerStatus(name="engine", ready=ready, state=ContainerState(running={"startedAt": "x"}))
            status = pod.status.model_copy(update={"conditions": conditions, "container_statuses": [container]})
            self.pods[name] = pod.model_copy(update={"status": status})

    def bring_up(self, node: str = "n1") -> None:
        """Until every wanted replica is ready."""
        for _ in range(40):
            self.settle()
            self.admit(node)
            self.run()
        self.settle()

    def unready(self, name: str) -> None:
        """One replica stops answering."""
        pod = self.pods[name]
        conditions = set_condition(pod.status.conditions, Condition(type="Ready", status="False", reason="X"), NOW)
        self.pods[name] = pod.model_copy(update={"status": pod.status.model_copy(update={"conditions": conditions})})


def submitted_name(deployment: ModelDeployment, ordinal: int = 0, attempt: int = 0) -> str:
    return replica_name(deployment.name, deployment.spec.roles[0].name, ordinal, attempt)


def submitted_uid(deployment: ModelDeployment, ordinal: int = 0, attempt: int = 0) -> str:
    role = deployment.spec.roles[0]
    return workload_uid(deployment.uid, role.name, ordinal, attempt, ask_hash(deployment, role))


def a_slot(ordinal: int = 0, attempt: int = 0, **fields: Any) -> ReplicaSlot:
    return ReplicaSlot(role="server", ordinal=ordinal, attempt=attempt, **fields)


def a_plain_pod(name: str = "p", **spec: Any) -> Pod:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "5",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"containers": [{"name": "c", "command": ["sleep", "60"]}], **spec},
    }
    return Pod.model_validate(body)


def named(metadata: Metadata) -> tuple[str, str]:
    return metadata.namespace, metadata.name
