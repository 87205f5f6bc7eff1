"""What agents report about their node: durable, newest wins, older than `status.observedSequence` is dropped.

Read next: services/discovery/agent, services/modelstore/agent, services/deployer/agent.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from shared.messages.base import Message, Report


class NodeReported(Report):
    """When: an agent starts, and when what it sees changed. Who: discovery agent. Key: node name."""

    SERVICE: ClassVar[str] = "discovery"
    WHAT: ClassVar[str] = "node"
    labels: dict[str, str] = Field(default_factory=dict)
    capacity: dict[str, str] = Field(default_factory=dict)
    node_info: dict[str, Any] = Field(default_factory=dict, description="NodeInfo as JSON.")
    addresses: list[dict[str, str]] = Field(default_factory=list)
    runtimes: list[str] = Field(default_factory=list)
    groups: list[dict[str, Any]] = Field(default_factory=list, description="AcceleratorGroup as JSON, sorted.")
    interfaces: list[dict[str, Any]] = Field(default_factory=list)


class ModelState(Message):
    """One copy on the node."""

    digest: str
    state: Literal["Downloading", "Ready", "Failed"]
    size_bytes: int = 0
    downloaded_bytes: int = 0
    source: str = ""
    path: str = ""
    reason: str = ""
    message: str = ""
    retry_unix: int | None = None
    """Unix seconds before which it is not tried again."""


class ModelsReported(Report):
    """When: an agent starts, and when a copy's state changed. Who: modelstore agent. Key: node name."""

    SERVICE: ClassVar[str] = "modelstore"
    WHAT: ClassVar[str] = "models"
    models: list[ModelState] = Field(default_factory=list)
    total_bytes: int = 0
    stored_bytes: int = 0
    used_percent: int = 0


class PodState(Message):
    """One Pod that the agent runs, ran, or refused."""

    uid: str
    namespace: str = ""
    name: str = ""
    workload: str = ""
    devices: list[str] = Field(default_factory=list)
    credits: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Stopped"]
    """Stopped: confirmed gone on request; Failed and Succeeded: ended by itself and not to be restarted."""
    ready: bool = False
    started_unix: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    address: str = ""
    port: int = 0
    path: str = ""
    token: str = ""
    conditions: list[str] = Field(default_factory=list, description="E.g. ImageNotUsed.")


class PodsReported(Report):
    """When: an agent starts, reconnects, and when any Pod's state changed; always the full set. Who: deployer agent. Key: node."""

    SERVICE: ClassVar[str] = "deployer"
    WHAT: ClassVar[str] = "pods"
    epoch: str = Field(description="The store's epoch the agent last heard of; devices are allocatable again after it.")
    pods: list[PodState] = Field(default_factory=list)
