"""The core kinds users already know: Namespace, Secret, ConfigMap, Event, Node, Pod.

Pods keep fields they do not interpret, so that existing manifests apply unmodified. Read next: shared/resources/workload.py.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shared.resources.base import Metadata, Model, OpenModel, Quantity, Resource, Status, Timestamp


class NamespaceSpec(Model):
    """Kubernetes' own fields."""

    finalizers: list[str] = Field(default_factory=list)


class Namespace(Resource):
    """A tenant's room."""

    spec: NamespaceSpec = Field(default_factory=NamespaceSpec)
    status: Status = Field(default_factory=Status)


class Secret(Resource):
    """Base64 values that never leave the store except to whom they are assigned."""

    type: str = "Opaque"
    data: dict[str, str] = Field(default_factory=dict)
    string_data: dict[str, str] | None = None
    immutable: bool | None = None


class ConfigMap(Resource):
    """Plain values."""

    data: dict[str, str] = Field(default_factory=dict)
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


class ObjectReference(Model):
    """What an Event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str | None = None


class Event(Resource):
    """A fact as Kubernetes users look for it (`kubectl describe`, `kubectl get events`)."""

    involved_object: ObjectReference = Field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    source: dict[str, str] = Field(default_factory=dict)
    first_timestamp: Timestamp | None = None
    last_timestamp: Timestamp | None = None
    count: int = 1


class Taint(Model):
    """Keeps Pods away."""

    key: str
    value: str = ""
    effect: str
    time_added: Timestamp | None = None


class NodeSpec(Model):
    """What an administrator may set."""

    unschedulable: bool = Field(default=False, description="Cordoned: nothing new is admitted here.")
    taints: list[Taint] = Field(default_factory=list)


class NodeInfo(Model):
    """What the agent saw of the host."""

    machine_id: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    operating_system: str = ""
    architecture: str = ""
    cpu_model: str = ""
    cpu_vendor: str = ""
    agent_version: str = ""


class NodeAddress(Model):
    """Where the node is reached."""

    type: str
    address: str


class NodeStatus(Status):
    """Observed state; condition Ready is False or Unknown when the node is silent."""

    capacity: dict[str, Quantity] = Field(default_factory=dict, description="cpu, memory, and accelerator keys.")
    allocatable: dict[str, Quantity] = Field(default_factory=dict)
    node_info: NodeInfo = Field(default_factory=NodeInfo)
    addresses: list[NodeAddress] = Field(default_factory=list)
    incarnation: str = Field(default="", description="The agent start that speaks for this node.")
    observed_sequence: int = 0
    runtimes: list[str] = Field(default_factory=list, description="Runtime drivers: process, simulated.")
    agent_labels: list[str] = Field(
        default_factory=list, description="Label keys that the agent sets; users' labels are the others."
    )


class Node(Resource):
    """A host that carries capacity."""

    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)


class EnvVar(OpenModel):
    """One environment variable."""

    name: str
    value: str | None = None


class ContainerPort(OpenModel):
    """A port a container listens on."""

    container_port: int = Field(ge=1, le=65535)
    name: str = ""
    protocol: str = "TCP"


class HttpGet(OpenModel):
    """An HTTP probe."""

    path: str = "/"
    port: int | str = "http"


class Probe(OpenModel):
    """When a container counts as ready or dead."""

    http_get: HttpGet | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    failure_threshold: int = 3


class ResourceRequirements(OpenModel):
    """Limits and requests by resource key."""

    limits: dict[str, Quantity] = Field(default_factory=dict)
    requests: dict[str, Quantity] = Field(default_factory=dict)


class Container(OpenModel):
    """One process of a Pod. `$(VAR)` in command and args is expanded from its environment, as Kubernetes does."""

    name: str
    image: str = ""
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[EnvVar] = Field(default_factory=list)
    ports: list[ContainerPort] = Field(default_factory=list)
    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None
    restart_policy: str | None = None
    working_dir: str | None = None


class Toleration(OpenModel):
    """Lets a Pod onto tainted nodes."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSpec(OpenModel):
    """What to run."""

    containers: list[Container] = Field(min_length=1)
    init_containers: list[Container] = Field(default_factory=list)
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    node_name: str = ""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list)
    termination_grace_period_seconds: int = Field(default=30, ge=0, le=3600)
    priority: int | None = None
    priority_class_name: str | None = None
    volumes: list[dict[str, Any]] = Field(default_factory=list)


class ContainerState(Model):
    """Exactly one of waiting, running, terminated."""

    waiting: dict[str, str] | None = Field(default=None, description="reason, message.")
    running: dict[str, str] | None = Field(default=None, description="startedAt.")
    terminated: dict[str, Any] | None = Field(
        default=None, description="exitCode, signal, reason, message, startedAt, finishedAt."
    )


class ContainerStatus(Model):
    """What the agent saw of one container."""

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = Field(default="", alias="imageID")
    container_id: str = Field(default="", alias="containerID")
    state: ContainerState = Field(default_factory=ContainerState)
    last_state: ContainerState = Field(default_factory=ContainerState)


class Endpoint(Model):
    """Where an engine listens: an address alone is not an identity, so it carries the replica and a token."""

    address: str
    port: int
    path: str = Field(default="", description="Path prefix, for replicas that share one listener.")
    token: str = Field(
        default="", description="The engine answers it in header x-gpubus-replica; a reused port does not."
    )
    replica_uid: str = ""


class PodStatus(Status):
    """Observed state of a Pod; conditions PodScheduled, Initialized, ContainersReady, Ready."""

    host_ip: str = Field(default="", alias="hostIP")
    pod_ip: str = Field(default="", alias="podIP")
    start_time: Timestamp | None = None
    container_statuses: list[ContainerStatus] = Field(default_factory=list)
    endpoint: Endpoint | None = None
    observed_sequence: int = 0
    finished: Literal["", "Succeeded", "Failed"] = Field(
        default="", description="Set once, when it will not run again."
    )


class Pod(Resource):
    """The one unit of execution."""

    spec: PodSpec
    status: PodStatus = Field(default_factory=PodStatus)


class PodTemplate(OpenModel):
    """What a Workload or controller stamps Pods from."""

    metadata: Metadata = Field(default_factory=Metadata)
    spec: PodSpec
