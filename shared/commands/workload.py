"""Orders to the scheduler.

Read next: services/scheduler/handlers.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from shared.messages.base import Command


class SubmitWorkload(Command):
    """When: an owner needs capacity. Who: deployer. Key: workload name. Repeats of one uid are absorbed."""

    SERVICE: ClassVar[str] = "scheduler"
    COMMAND: ClassVar[str] = "submit-workload"
    namespace: str
    name: str
    uid: str = Field(description="Chosen by the owner, so that a repeat is recognised.")
    spec: dict[str, Any] = Field(description="WorkloadSpec as JSON.")
    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class CancelWorkload(Command):
    """When: an owner no longer needs it, or its Pods are confirmed stopped. Who: deployer. Key: workload name."""

    SERVICE: ClassVar[str] = "scheduler"
    COMMAND: ClassVar[str] = "cancel-workload"
    namespace: str
    name: str
    uid: str
    reason: str = ""
    outcome: Literal["Cancelled", "Succeeded", "Failed", "NodeLost"] = "Cancelled"
