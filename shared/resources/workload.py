"""Workload: a request for capacity, waiting or admitted, with exact devices.

Read next: services/scheduler/domain/admission.py.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from shared.resources.base import Model, Quantity, Resource, Status
from shared.resources.core import PodTemplate

FINISHED = "Finished"
QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"


class WorkloadReason(StrEnum):
    """Why a Workload is as it is; words users learn once."""

    ADMITTED = "Admitted"
    WAITING = "Waiting"
    QUEUE_NOT_FOUND = "QueueNotFound"
    POOL_INACTIVE = "PoolInactive"
    NO_CAPACITY = "NoCapacity"
    NEVER_FITS = "NeverFits"
    NO_NODE_MATCHES = "NoNodeMatches"
    NODES_UNCONFIRMED = "NodesUnconfirmed"
    BEHIND_HIGHER_PRIORITY = "BehindHigherPriority"
    NOT_SERVED_YET = "NotServedYet"
    DEACTIVATED = "Deactivated"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    CANCELLED = "Cancelled"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodSet(Model):
    """Identical Pods of one workload."""

    name: str = "main"
    count: int = Field(default=1, ge=1)
    template: PodTemplate


class WorkloadSpec(Model):
    """What is asked for, and at which entrance."""

    queue_name: str
    pod_sets: list[PodSet] = Field(min_length=1, max_length=8)
    priority: int = 0
    priority_class_name: str = ""
    active: bool = True
    artifact: str = Field(default="", description="ModelArtifact in the same namespace whose weights the Pods need.")


class Assignment(Model):
    """Where one Pod of a set goes and exactly what it holds there."""

    name: str = Field(default="main", description="The pod set.")
    index: int = 0
    node_name: str
    pool: str
    devices: list[str] = Field(default_factory=list, description="Device ids (UUIDs).")
    credits: int = Field(default=0, description="Per device.")
    cpu_milli: int = 0
    memory_bytes: int = 0
    flavors: dict[str, str] = Field(default_factory=dict)
    resource_usage: dict[str, Quantity] = Field(default_factory=dict)
    count: int = 1


class Admission(Model):
    """The decision."""

    cluster_queue: str
    pod_set_assignments: list[Assignment] = Field(default_factory=list)


class WorkloadStatus(Status):
    """Conditions QuotaReserved, Admitted, Evicted, Finished."""

    admission: Admission | None = None
    queued_revision: int = Field(default=0, description="Revision at which it entered the queue: its age among equals.")
    requeue_state: dict[str, int] | None = None


class Workload(Resource):
    """A request for capacity."""

    spec: WorkloadSpec
    status: WorkloadStatus = Field(default_factory=WorkloadStatus)
