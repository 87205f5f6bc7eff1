"""ModelDeployment: which model, which engine, how many replicas of which role.

Facts: the reference operator's sections 2.11 and 7. Read next: services/deployer/domain/plan.py.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shared.resources.base import Model, Quantity, Resource, Status

EngineName = Literal["vLLM", "SGLang", "LlamaCpp", "Custom", "Simulated"]
ROLE_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

LABEL_DEPLOYMENT = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_ORDINAL = "modeldeployment.gpustack.ai/pod-ordinal"
LABEL_ROLE_KIND = "modeldeployment.gpustack.ai/role-kind"
ANNOTATION_MODEL = "gpubus.io/served-model-name"
ANNOTATION_ENGINE = "gpubus.io/engine"
ANNOTATION_DIGEST = "gpubus.io/manifest-digest"
ANNOTATION_WORKLOAD = "gpubus.io/workload"
ANNOTATION_WORKLOAD_UID = "gpubus.io/workload-uid"
ANNOTATION_RENDER = "gpubus.io/render-hash"
ANNOTATION_ALLOCATED = "device.gpustack.ai/accelerator.allocated"


class ArtifactRef(Model):
    """A ModelArtifact in the same namespace; it may not exist yet."""

    name: str = Field(min_length=1, max_length=253)


class ModelRef(Model):
    """The served name and where its weights are."""

    name: str = Field(min_length=1, max_length=253)
    artifact_ref: ArtifactRef | None = None


class EngineSpec(Model):
    """Which inference engine."""

    name: EngineName
    version: str | None = Field(default=None, min_length=1, max_length=64)
    image: str | None = Field(default=None, max_length=512)


class PoolRef(Model):
    """A KVCachePoolBinding in the same namespace."""

    name: str = Field(min_length=1, max_length=253)


class CacheUse(Model):
    """Which cache grant the replicas attach to."""

    pool_ref: PoolRef
    connector: Literal["Mooncake"] = "Mooncake"


class RoleResources(Model):
    """What one Pod of the role asks for."""

    accelerator: int | None = Field(default=None, ge=0, description="Whole cards; 1 when the pool has accelerators.")
    accelerator_shared: bool | None = None
    accelerator_sliced_memory_percentage: int | None = Field(default=None, ge=0, le=100)
    accelerator_sliced_cores_percentage: int | None = Field(default=None, ge=0, le=100)
    accelerator_partitioned_profile: str | None = Field(default=None, max_length=64)
    interface: int | None = Field(default=None, ge=0)
    cpu: Quantity | None = None
    ram: Quantity | None = None
    local_storage: Quantity | None = None


class RolePort(Model):
    """A port the engine serves on."""

    port: int = Field(ge=1, le=65535)
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class RoleEnv(Model):
    """One environment variable."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    value: str = ""


class RoleTopology(Model):
    """Where the Pods of one replica must be close to each other."""

    required_level: str | None = None


class Role(Model):
    """Identical replicas with one job."""

    name: str = Field(min_length=1, max_length=63, pattern=ROLE_NAME)
    kind: Literal["Server", "Prefill", "Decode"] = "Server"
    replicas: int = Field(default=1, ge=0, le=1024)
    size: int = Field(default=1, ge=1, le=64)
    instance_type: str = Field(min_length=1, max_length=253)
    resources: RoleResources = Field(default_factory=RoleResources)
    node_selector: dict[str, str] = Field(default_factory=dict)
    image: str | None = Field(default=None, max_length=512)
    image_pull_policy: str | None = None
    image_pull_secrets: list[dict[str, str]] = Field(default_factory=list, max_length=32)
    privileged: bool | None = None
    ports: list[RolePort] = Field(default_factory=list)
    additional_volumes: list[dict[str, Any]] = Field(default_factory=list)
    shm_size: Quantity | None = None
    extra_args: list[str] = Field(default_factory=list)
    env: list[RoleEnv] = Field(default_factory=list)
    command: list[str] = Field(default_factory=list, description="Take-over: the whole argv; `$(VAR)` is expanded.")
    termination_grace_period_seconds: int = Field(default=30, ge=1, le=3600)
    topology: RoleTopology | None = None


class Router(Model):
    """A router in front of prefill and decode roles."""

    name: str
    replicas: int = Field(default=1, ge=1)
    image: str | None = None
    extra_args: list[str] = Field(default_factory=list)
    request_timeout_seconds: int | None = Field(default=None, ge=1)
    disaggregation_threshold_tokens: int | None = Field(default=None, ge=0)


class KvTransfer(Model):
    """How prefill hands its cache to decode."""

    protocol: Literal["Auto", "TCP", "RDMA", "EFA", "CANN", "ROCM"] | None = None


class ModelDeploymentSpec(Model):
    """Desired state."""

    model: ModelRef
    engine: EngineSpec
    kv_cache: CacheUse | None = None
    kv_transfer: KvTransfer | None = None
    router: Router | None = None
    priority: int = 0
    roles: list[Role] = Field(min_length=1, max_length=10)


class RoleStatus(Model):
    """One role, counted."""

    name: str
    kind: str = "Server"
    desired: int = 0
    ready: int = 0
    quota_reserved: int = 0
    unmanaged: bool = False


class DeployedModel(Model):
    """The weights in use."""

    artifact: str = ""
    revision: str = ""
    manifest_digest: str = ""
    delivery: str = "Node"


class ReplicaSlot(Model):
    """One place for a replica. Its attempt only grows, so the names derived from it are never used twice."""

    role: str
    ordinal: int
    attempt: int = 0
    open: bool = Field(default=True, description="A Workload was submitted for this attempt and not yet taken back.")


class ModelDeploymentStatus(Status):
    """Conditions QuotaReserved, WeightsReady, ReplicasUpToDate, Available, CacheAttached."""

    endpoint: str = ""
    slots: list[ReplicaSlot] = Field(
        default_factory=list, description="Which attempt of each replica is the current one."
    )
    role_summary: str = ""
    roles: list[RoleStatus] = Field(default_factory=list)
    model: DeployedModel | None = None


class ModelDeployment(Resource):
    """A served model."""

    spec: ModelDeploymentSpec
    status: ModelDeploymentStatus = Field(default_factory=ModelDeploymentStatus)
