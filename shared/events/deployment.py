"""Facts about deployments, replicas and Pods; the deployer publishes them.

Read next: services/deployer/domain/plan.py.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from shared.messages.base import Fact


class DeploymentFact(Fact):
    """Base of facts about one deployment."""

    AGGREGATE: ClassVar[str] = "deployment"
    namespace: str
    name: str
    uid: str
    model: str = Field(default="", description="The served name.")
    generation: int = 0
    reason: str = ""
    message: str = ""


class DeploymentApplied(DeploymentFact):
    """When: a deployment was created or its spec changed. Who: deployer. Key: deployment name."""

    FACT: ClassVar[str] = "applied"


class DeploymentAvailable(DeploymentFact):
    """When: every wanted replica is ready. Who: deployer. Key: deployment name."""

    FACT: ClassVar[str] = "available"
    replicas: int = 0


class DeploymentDegraded(DeploymentFact):
    """When: an available deployment lost replicas, or cannot get them. Who: deployer. Key: deployment name."""

    FACT: ClassVar[str] = "degraded"


class DeploymentRemoved(DeploymentFact):
    """When: the last of it is gone. Who: deployer. Key: deployment name."""

    FACT: ClassVar[str] = "removed"


class ReplicaFact(Fact):
    """Base of facts about one replica (its Pod)."""

    AGGREGATE: ClassVar[str] = "replica"
    namespace: str
    name: str = Field(description="The Pod.")
    uid: str = Field(description="The Pod's uid.")
    deployment: str
    role: str = ""
    model: str = ""
    node: str = ""
    workload: str = ""
    reason: str = ""
    message: str = ""


class ReplicaStarted(ReplicaFact):
    """When: its engine process runs. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "started"


class ReplicaReady(ReplicaFact):
    """When: its engine answers its health check. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "ready"
    address: str = ""
    port: int = 0


class ReplicaUnready(ReplicaFact):
    """When: a ready engine stopped answering, or its node fell silent. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "unready"


class ReplicaFailed(ReplicaFact):
    """When: its engine ended with an error; it is restarted with backoff. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "failed"
    exit_code: int | None = None
    restarts: int = 0


class ReplicaStopped(ReplicaFact):
    """When: it is confirmed gone from its node. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "stopped"


class PodFact(Fact):
    """Base of facts about a Pod that belongs to no deployment."""

    AGGREGATE: ClassVar[str] = "pod"
    namespace: str
    name: str
    uid: str
    node: str = ""
    workload: str = ""
    reason: str = ""
    message: str = ""


class PodStarted(PodFact):
    """When: its process runs. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "started"


class PodReady(PodFact):
    """When: it is ready. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "ready"


class PodFailed(PodFact):
    """When: it ended with an error. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "failed"
    exit_code: int | None = None


class PodFinished(PodFact):
    """When: it ended well and will not run again. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "finished"


class PodStopped(PodFact):
    """When: it is confirmed gone from its node. Who: deployer. Key: Pod name."""

    FACT: ClassVar[str] = "stopped"
