"""Facts about workloads; the scheduler publishes them.

Read next: services/scheduler/domain/admission.py.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from shared.messages.base import Fact


class WorkloadFact(Fact):
    """Base of facts about one workload."""

    AGGREGATE: ClassVar[str] = "workload"
    namespace: str
    name: str
    uid: str
    queue: str = ""
    pool: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    reason: str = ""
    message: str = ""


class WorkloadQueued(WorkloadFact):
    """When: a request was accepted and waits. Who: scheduler. Key: workload name."""

    FACT: ClassVar[str] = "queued"


class WorkloadHeld(WorkloadFact):
    """When: the reason why a workload waits changed. Who: scheduler. Key: workload name."""

    FACT: ClassVar[str] = "held"


class WorkloadAdmitted(WorkloadFact):
    """When: exact devices were reserved. Who: scheduler. Key: workload name."""

    FACT: ClassVar[str] = "admitted"
    node: str = Field(default="", description="The node of the first Pod; all of them are in the Workload's status.")
    devices: list[str] = Field(default_factory=list)
    artifact: str = ""


class WorkloadPreempted(WorkloadFact):
    """When: its devices were taken for a workload of higher priority. Who: scheduler. Key: workload name."""

    FACT: ClassVar[str] = "preempted"
    node: str = ""


class WorkloadFinished(WorkloadFact):
    """When: its Pods ended for good, or its node was lost; what it held is freed. Who: scheduler. Key: workload name."""

    FACT: ClassVar[str] = "finished"
    node: str = ""


class WorkloadCancelled(WorkloadFact):
    """When: its owner took it back. Who: scheduler. Key: workload name."""

    FACT: ClassVar[str] = "cancelled"
    node: str = ""
