"""Pools as users see them: InstanceType, InstanceTypeFlavor, and the LocalQueue that is a pool's entrance.

Read next: shared/resources/workload.py.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shared.ids import fnv1a64
from shared.resources.base import Model, Quantity, Resource, Status

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_SIMULATED = "gpubus.io/simulated"
FINALIZER = "gpustack.ai/controlled"


def entrance(instance_type: str) -> str:
    """The LocalQueue name in front of a pool: always 31 characters."""
    return f"gpustack-fnv64-{fnv1a64(instance_type)}"


class UnitResources(Model):
    """What one unit of the type charges."""

    cpu: Quantity
    ram: Quantity


class InstanceTypeSpec(Model):
    """Identity of a pool and the size of its unit; only displayName, description and inactive may change."""

    display_name: str = Field(default="", max_length=64)
    description: str = Field(default="", max_length=1024)
    inactive: bool = Field(default=False, description="Hold: nothing new is admitted, nothing is evicted.")
    accelerator_group: str = Field(default="", description="Accelerator key, e.g. nvidia-a10g.")
    general_group: str = "generic"
    acceleratable: bool = False
    os: str
    arch: str
    unit_resources: UnitResources
    local_storage: Quantity = "100Gi"
    manufacturer: str = ""
    product: str = ""
    family: str = ""
    memory: int = Field(default=0, description="MiB per card.")
    cores: int = 0


class CapacityView(Model):
    """One way to look at a pool's capacity."""

    once_max_request: int = Field(
        default=0, description="The most one request can get, i.e. what the largest node holds free."
    )
    remaining: int = 0
    capacity: int = 0
    allocated_profiles: list[dict[str, Any]] | None = None
    remaining_profiles: list[dict[str, Any]] | None = None


class InstanceTypeStatus(Status):
    """Capacity views EX, SH, SL, PT and cpu; condition Active says whether the queue admits."""

    entrance: str = ""
    detail: dict[str, Any] = Field(default_factory=dict)
    accelerator: CapacityView = Field(default_factory=CapacityView)
    accelerator_shared: CapacityView = Field(default_factory=CapacityView)
    accelerator_sliced: CapacityView = Field(default_factory=CapacityView)
    accelerator_partitioned: CapacityView = Field(default_factory=CapacityView)
    cpu: CapacityView = Field(default_factory=CapacityView)
    nodes: int = 0


class InstanceType(Resource):
    """A pool, under the name workloads ask for."""

    spec: InstanceTypeSpec
    status: InstanceTypeStatus = Field(default_factory=InstanceTypeStatus)


class InstanceTypeFlavorSpec(Model):
    """A row of the catalogue."""

    acceleratable: bool = False
    accelerator_group: str = ""
    general_group: str = "generic"
    manufacturer: str = ""
    product: str = ""
    family: str = ""
    memory: int = 0
    cores: int = 0
    sliceable: bool = False


class InstanceTypeFlavor(Resource):
    """Read-only: which products exist here."""

    spec: InstanceTypeFlavorSpec = Field(default_factory=InstanceTypeFlavorSpec)
    status: Status = Field(default_factory=Status)


class LocalQueueSpec(Model):
    """The pool behind this entrance."""

    cluster_queue: str = Field(description="The InstanceType's name.")
    stop_policy: str = "None"


class LocalQueueStatus(Status):
    """How many wait and how many run."""

    pending_workloads: int = 0
    admitted_workloads: int = 0


class LocalQueue(Resource):
    """A pool's entrance in one namespace."""

    spec: LocalQueueSpec
    status: LocalQueueStatus = Field(default_factory=LocalQueueStatus)
