"""A role as the Workload that asks for its capacity and as the Pod that runs it.

Pure. Must not decide whether either is made. Read next: plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from services.deployer.domain.accelerators import cards, resource_keys
from services.deployer.domain.engines import Launch, registry
from services.deployer.domain.expand import mentions
from services.deployer.domain.names import digest, role_name
from services.deployer.domain.rules_pod import FINALIZER
from services.deployer.domain.weights import gguf_models
from shared.resources.artifact import Resolved
from shared.resources.base import Metadata, OwnerReference
from shared.resources.core import (
    Container,
    ContainerPort,
    EnvVar,
    HttpGet,
    Pod,
    PodSpec,
    PodTemplate,
    Probe,
    ResourceRequirements,
)
from shared.resources.deployment import (
    ANNOTATION_ALLOCATED,
    ANNOTATION_DIGEST,
    ANNOTATION_ENGINE,
    ANNOTATION_MODEL,
    ANNOTATION_RENDER,
    ANNOTATION_WORKLOAD,
    ANNOTATION_WORKLOAD_UID,
    LABEL_COMPONENT,
    LABEL_DEPLOYMENT,
    LABEL_NAME,
    LABEL_ORDINAL,
    LABEL_ROLE_KIND,
    ModelDeployment,
    Role,
)
from shared.resources.kinds import KINDS
from shared.resources.pool import LABEL_QUEUE, LABEL_SIMULATED, InstanceTypeSpec, entrance
from shared.resources.workload import Assignment, PodSet, Workload, WorkloadSpec

CONTAINER = "engine"
DEFAULT_PORT = 8000
READY_PERIOD_SECONDS = 5
READY_FAILURES = 3
READY_TIMEOUT_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is known of a deployment's artifact."""

    resolved: Resolved | None = None
    paths: tuple[str, ...] | None = None
    """Files of the manifest that an engine may be told by name; None: not read (yet)."""


def ask_hash(deployment: ModelDeployment, role: Role) -> str:
    """Digest of everything that admission depends on: another one needs another Workload."""
    picked = role.model_dump(mode="json", include={"instance_type", "resources", "node_selector", "size"})
    return digest({"role": picked, "priority": deployment.spec.priority})


def render_hash(deployment: ModelDeployment, role: Role) -> str:
    """Digest of everything that a running replica depends on: another one needs another Pod."""
    body = role.model_dump(mode="json", exclude={"replicas", "name"})
    engine = deployment.spec.engine.model_dump(mode="json")
    return digest({"role": body, "engine": engine, "priority": deployment.spec.priority})


def labels(deployment: ModelDeployment, role: Role, ordinal: int) -> dict[str, str]:
    """Of its Pods and Workloads; selectors of users' tools rely on them."""
    return {
        LABEL_NAME: "model-deployment",
        LABEL_DEPLOYMENT: deployment.name,
        LABEL_COMPONENT: role.name,
        LABEL_ORDINAL: str(ordinal),
        LABEL_ROLE_KIND: role.kind,
        LABEL_QUEUE: entrance(role.instance_type),
    }


def workload_spec(deployment: ModelDeployment, role: Role, ordinal: int, pool: InstanceTypeSpec) -> WorkloadSpec:
    """What one replica asks for."""
    ref = deployment.spec.model.artifact_ref
    container = Container(name=CONTAINER, resources=_resources(role, pool))
    spec = PodSpec(containers=[container], node_selector=_selector(deployment, role), priority=deployment.spec.priority)
    template = PodTemplate(metadata=Metadata(labels=labels(deployment, role, ordinal)), spec=spec)
    return WorkloadSpec(
        queue_name=entrance(role.instance_type),
        pod_sets=[PodSet(name="main", count=1, template=template)],
        priority=deployment.spec.priority,
        artifact=ref.name if ref else "",
    )


def pod(
    deployment: ModelDeployment, role: Role, ordinal: int, workload: Workload, pool: InstanceTypeSpec, weights: Weights
) -> Pod:
    """The Pod of an admitted replica, bound to the node and the devices that it was given."""
    assignment = assigned(workload)
    assert assignment is not None, "a Pod is rendered from an admission"
    container = _container(deployment, role, assignment, pool, weights)
    spec = PodSpec(
        containers=[container],
        restart_policy="Always",
        node_name=assignment.node_name,
        node_selector=_selector(deployment, role),
        termination_grace_period_seconds=role.termination_grace_period_seconds,
        priority=deployment.spec.priority,
    )
    kind = KINDS["Pod"]
    metadata = Metadata(
        name=workload.name,
        namespace=deployment.namespace,
        labels=labels(deployment, role, ordinal),
        annotations=_annotations(deployment, role, workload, assignment, weights),
        finalizers=[FINALIZER],
        owner_references=[owner(deployment)],
    )
    return Pod(api_version=kind.api_version, kind=kind.kind, metadata=metadata, spec=spec)


def owner(deployment: ModelDeployment) -> OwnerReference:
    """The deployment as its Pods name it."""
    kind = KINDS["ModelDeployment"]
    return OwnerReference(
        api_version=kind.api_version, kind=kind.kind, name=deployment.name, uid=deployment.uid, controller=True
    )


def assigned(workload: Workload) -> Assignment | None:
    """Where the one Pod of a Workload goes; None while it is not admitted."""
    admission = workload.status.admission
    return admission.pod_set_assignments[0] if admission and admission.pod_set_assignments else None


def allocated(assignment: Assignment) -> str:
    """The devices as the Pod's annotation lists them."""
    return ",".join(assignment.devices)


def _container(
    deployment: ModelDeployment, role: Role, assignment: Assignment, pool: InstanceTypeSpec, weights: Weights
) -> Container:
    engine = registry()[deployment.spec.engine.name]
    launch = Launch(
        model=deployment.spec.model.name,
        weights=next(iter(gguf_models(weights.paths or ())), ""),
        has_artifact=deployment.spec.model.artifact_ref is not None,
        cpu_milli=assignment.cpu_milli,
        cards=cards(role.resources, pool),
        extra_args=tuple(role.extra_args),
    )
    command = list(role.command) or (engine.argv(launch) if engine.argv else [])
    probe = _probe("" if role.command else engine.probe_path)
    port = role.ports[0].port if role.ports else DEFAULT_PORT
    return Container(
        name=CONTAINER,
        image=role.image or deployment.spec.engine.image or "",
        command=command,
        env=[EnvVar(name=variable.name, value=variable.value) for variable in role.env],
        ports=[ContainerPort(container_port=port, name="http")],
        resources=_resources(role, pool),
        readiness_probe=probe,
    )


def _probe(path: str) -> Probe:
    """A GET of the engine's health, or for a command that we know nothing of, that its port accepts."""
    extra: dict[str, Any] = {} if path else {"tcpSocket": {"port": "http"}}
    return Probe(
        http_get=HttpGet(path=path) if path else None,
        period_seconds=READY_PERIOD_SECONDS,
        timeout_seconds=READY_TIMEOUT_SECONDS,
        failure_threshold=READY_FAILURES,
        **extra,
    )


def fixed_port(container: Container) -> int | None:
    """The port of a command that names its own; None when it takes the one that the agent chooses."""
    texts = [*container.command, *container.args, *(variable.value or "" for variable in container.env)]
    if not container.ports or mentions(texts, "GPUBUS_PORT"):
        return None
    return container.ports[0].container_port


def _resources(role: Role, pool: InstanceTypeSpec) -> ResourceRequirements:
    keys = resource_keys(role.resources, pool)
    return ResourceRequirements(limits=keys, requests=dict(keys))


def _selector(deployment: ModelDeployment, role: Role) -> dict[str, str]:
    """An engine that no process can be played for by nobody but simulated nodes, so it asks for one of those."""
    engine = registry()[deployment.spec.engine.name]
    if engine.process or role.command:
        return dict(role.node_selector)
    return {**role.node_selector, LABEL_SIMULATED: "true"}


def _annotations(
    deployment: ModelDeployment, role: Role, workload: Workload, assignment: Assignment, weights: Weights
) -> dict[str, str]:
    found = {
        ANNOTATION_MODEL: deployment.spec.model.name,
        ANNOTATION_ENGINE: deployment.spec.engine.name,
        ANNOTATION_RENDER: render_hash(deployment, role),
        ANNOTATION_WORKLOAD: workload.name,
        ANNOTATION_WORKLOAD_UID: workload.uid,
        ANNOTATION_ALLOCATED: allocated(assignment),
    }
    if weights.resolved is not None:
        found[ANNOTATION_DIGEST] = weights.resolved.manifest_digest
    return found


def service_name(deployment: ModelDeployment, role: Role) -> str:
    """What the role's replicas are called together."""
    return role_name(deployment.name, role.name)
