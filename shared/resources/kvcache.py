"""Shared KV cache: backends, pools, grants. Stored and validated; stores and connectors are not served yet.

Facts: the reference operator's sections 2.12 to 2.14 and 6. Read next: services/kvcache/domain/rules.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from shared.resources.base import Model, Quantity, Resource, Status


def _dtype(value: str) -> str:
    if value == "auto":
        raise ValueError("auto is not a dtype here: two engines may read it differently; write bfloat16 or alike")
    return value


def _given(value: Any) -> Any:
    if value is None:
        raise ValueError("is empty; write {} to take the defaults")
    return value


def _one_backend(value: Any) -> Any:
    if value is None:
        raise ValueError("exactly one backend is needed")
    return value


Whole = Annotated[int, Field(strict=True)]
"""An integer that text and 64.0 are not."""


class LeaderSpec(Model):
    """The store's coordinator; `{}` takes the defaults."""

    replicas: Whole = Field(default=1, ge=1, le=5)
    election_backend: Literal["Kubernetes", "None"] = "Kubernetes"
    member_addressing: Literal["Service", "Lease"] | None = None
    allocation_strategy: Literal["Random", "FreeRatioFirst"] = "FreeRatioFirst"
    multi_tenancy: bool = True
    extra_args: list[str] = Field(default_factory=list)
    extra_env: list[dict[str, Any]] = Field(default_factory=list)


class DiskEviction(Model):
    """When a disk tier lets go."""

    enabled: bool = True
    policy: Literal["FIFO", "LRU"] = "LRU"
    watermark: dict[str, Whole] = Field(default_factory=dict)


class LocalDisk(Model):
    """A disk tier of one member."""

    path: str
    capacity: Quantity
    key_limit: Whole | None = Field(default=None, ge=1)
    eviction: DiskEviction = Field(default_factory=DiskEviction)
    clean_after_delete: bool = False


class MemberTransport(Model):
    """How one member moves blocks."""

    protocol: str = "Auto"


class MemberSpec(Model):
    """Nodes that lend memory."""

    node_selector: dict[str, str] = Field(default_factory=dict)
    medium: Literal["DRAM", "VRAM"] = "DRAM"
    capacity_per_member: Quantity
    local_buffer_size: Quantity | None = None
    extra_args: list[str] = Field(default_factory=list)
    extra_env: list[dict[str, Any]] = Field(default_factory=list)
    image: str | None = Field(default=None, max_length=512)
    local_disks: list[LocalDisk] = Field(default_factory=list, max_length=1)
    transport: MemberTransport | None = None
    fabric_interface_count: Whole | None = Field(default=None, ge=1)
    security_context: dict[str, Any] | None = None
    host_paths: list[dict[str, Any]] = Field(default_factory=list, max_length=32)
    runtime_class_name: str | None = None


class ScaleIn(Model):
    """How a member leaves."""

    grace_period_seconds: Whole = Field(default=0, ge=0, le=3600)


class ManagedStore(Model):
    """A store run by us."""

    leader: Annotated[LeaderSpec, BeforeValidator(_given)]
    members: list[MemberSpec] = Field(min_length=1, max_length=32)
    scale_in: ScaleIn | None = None


class StoreEndpoint(Model):
    """One address of an outside store."""

    name: Literal["Client", "Admin"]
    address: str = Field(min_length=1, max_length=259)


class ExternalStore(Model):
    """A store somebody else runs."""

    endpoints: list[StoreEndpoint] = Field(min_length=1)


class StoreConnection(Model):
    """Exactly one of managed, external."""

    managed: ManagedStore | None = None
    external: ExternalStore | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> StoreConnection:
        if (self.managed is None) == (self.external is None):
            raise ValueError("exactly one of managed, external is needed; an empty member is written {}")
        return self


class KVCacheBackendSpec(Model):
    """A cache store."""

    type: Literal["Mooncake"] = "Mooncake"
    image: str | None = Field(default=None, max_length=512)
    image_pull_policy: str | None = None
    image_pull_secrets: list[dict[str, str]] = Field(default_factory=list, max_length=32)
    connection: StoreConnection
    transport: MemberTransport | None = None


class KVCacheBackend(Resource):
    """A cache store."""

    spec: KVCacheBackendSpec
    status: Status = Field(default_factory=Status)


class PoolQuota(Model):
    """The most the pool may hold."""

    total: Quantity


class KVCachePoolSpec(Model):
    """Capacity carved from one backend."""

    backends: Annotated[list[str], BeforeValidator(_one_backend)] = Field(min_length=1, max_length=1)
    quota: PoolQuota


class KVCachePool(Resource):
    """Capacity to grant."""

    spec: KVCachePoolSpec
    status: Status = Field(default_factory=Status)


class BindingPoolRef(Model):
    """The pool."""

    name: str = Field(min_length=1, max_length=253)


class BindingQuota(Model):
    """The most this grant may hold."""

    ceiling: Quantity


class ReuseDomain(Model):
    """Who may reuse whose blocks: same name, block size and dtype."""

    name: str | None = Field(default=None, min_length=1, max_length=253)
    block_size: Whole = Field(ge=1)
    dtype: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[A-Za-z0-9_]+$"), AfterValidator(_dtype)]


class KVCachePoolBindingSpec(Model):
    """A grant to one namespace."""

    pool_ref: BindingPoolRef
    quota: BindingQuota
    domain: ReuseDomain


class KVCachePoolBinding(Resource):
    """A grant to one namespace."""

    spec: KVCachePoolBindingSpec
    status: Status = Field(default_factory=Status)
