"""Facts about nodes and their devices; discovery publishes them.

Read next: services/discovery/domain/inventory.py.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from shared.messages.base import Fact


class NodeFact(Fact):
    """Base of facts about one node."""

    AGGREGATE: ClassVar[str] = "node"
    name: str = Field(description="The node.")
    uid: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    reason: str = ""


class NodeJoined(NodeFact):
    """When: a node's agent reported for the first time. Who: discovery. Key: node name."""

    FACT: ClassVar[str] = "joined"


class NodeLost(NodeFact):
    """When: a node was silent for the loss time-out. Who: discovery. Key: node name."""

    FACT: ClassVar[str] = "lost"


class NodeReturned(NodeFact):
    """When: a lost node's agent spoke again. Who: discovery. Key: node name."""

    FACT: ClassVar[str] = "returned"


class NodeRemoved(NodeFact):
    """When: a Node was deleted. Who: discovery. Key: node name."""

    FACT: ClassVar[str] = "removed"


class DeviceFact(Fact):
    """Base of facts about one device."""

    AGGREGATE: ClassVar[str] = "device"
    node: str
    device_id: str = Field(description="Universally unique id of the card.")
    manufacturer: str
    product: str = Field(description="Accelerator key, e.g. nvidia-a10g.")
    memory_mib: int = 0
    reason: str = ""

    @property
    def key(self) -> str:
        """The device id."""
        return self.device_id


class DeviceFound(DeviceFact):
    """When: a card appeared on a node. Who: discovery. Key: device id."""

    FACT: ClassVar[str] = "found"


class DeviceChanged(DeviceFact):
    """When: a card's description changed, or it recovered. Who: discovery. Key: device id."""

    FACT: ClassVar[str] = "changed"


class DeviceDegraded(DeviceFact):
    """When: a measurement said a card is unhealthy. Who: discovery. Key: device id."""

    FACT: ClassVar[str] = "degraded"


class DeviceLost(DeviceFact):
    """When: a card is gone from a node that reports. Who: discovery. Key: device id."""

    FACT: ClassVar[str] = "lost"
