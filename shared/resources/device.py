"""Devices: what one node has, and (status) what of it is taken.

Spec is written by discovery, status by the scheduler. Facts: docs of the reference operator, section 4.3.
Read next: shared/resources/pool.py.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shared.resources.base import Model, Resource, Status

CREDITS_PER_CARD = 1_600_000
"""One whole accelerator in ledger units: thirds, sixteenths and percentages stay integer."""


class DeviceTopology(Model):
    """Where a card sits."""

    pci_bus_id: str = ""
    pci_root_id: str = ""
    pci_switches: list[str] = Field(default_factory=list, description="Upstream bridges, innermost first.")
    pci_class: str = ""
    numa_affinity: str = ""
    cpu_affinity: str = ""
    fabric: dict[str, Any] | None = None


class DeviceHealth(Model):
    """Measured health; `unhealthy` is true only after a measurement said so."""

    unhealthy: bool = False
    reason: str = ""
    message: str = ""
    logical_sliced: dict[str, Any] | None = None
    physical_sliced: dict[str, Any] | None = None


class Accelerator(Model):
    """One card. Identity is the universally unique id, never an index."""

    id: str
    index: int = 0
    physical_indexes: list[int] = Field(default_factory=list)
    topology: DeviceTopology = Field(default_factory=DeviceTopology)
    status: DeviceHealth = Field(default_factory=DeviceHealth)


class AcceleratorGroup(Model):
    """Cards of one product on one node, keyed by id and manufacturer."""

    id: str = Field(description="Sanitised product, e.g. a10g; with the manufacturer it is the accelerator key.")
    manufacturer: str
    name: str = Field(default="", description="The product as its maker names it.")
    memory: int = Field(default=0, ge=0, description="MiB per card.")
    cores: int = Field(default=0, ge=0)
    driver_version: str = ""
    runtime_version: str = ""
    compute_capability: str = ""
    family: str = ""
    accelerators: list[Accelerator] = Field(default_factory=list)
    accelerator_sliced_detail: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The accelerator key (aKey), e.g. nvidia-a10g."""
        return f"{self.manufacturer}-{self.id}"


class DevicesSpec(Model):
    """Sorted, so that an unchanged node causes no write."""

    groups: list[AcceleratorGroup] = Field(default_factory=list)
    interfaces: list[dict[str, Any]] = Field(default_factory=list)


Mode = Literal["None", "Exclusive", "Shared", "Sliced", "Partitioned"]


class AcceleratorAllocation(Model):
    """What of one card is taken, in credits."""

    id: str
    index: int = 0
    mode: Mode = "None"
    allocated: int = 0
    remaining: int = CREDITS_PER_CARD
    holders: list[str] = Field(default_factory=list, description="namespace/name of the Workloads that hold it.")


class GroupAllocation(Model):
    """Allocation of one group."""

    id: str
    manufacturer: str
    accelerators: list[AcceleratorAllocation] = Field(default_factory=list)


class OrphanHolding(Model):
    """A running Pod that no Workload accounts for; what it holds is not given out until it is confirmed stopped."""

    uid: str
    namespace: str = ""
    name: str = ""
    devices: list[str] = Field(default_factory=list)
    credits: int = Field(default=0, description="Per device.")
    cpu_milli: int = 0
    memory_bytes: int = 0


class DevicesStatus(Status):
    """The ledger as users see it."""

    groups: list[GroupAllocation] = Field(default_factory=list)
    ledger_epoch: str = Field(
        default="",
        description="Epoch under which the node last told what runs there; nothing is given out in another one.",
    )
    orphans: list[OrphanHolding] = Field(default_factory=list)


class Devices(Resource):
    """The accelerators of one node; name = node."""

    spec: DevicesSpec = Field(default_factory=DevicesSpec)
    status: DevicesStatus = Field(default_factory=DevicesStatus)
