"""Facts about pools and capacity; the scheduler publishes them.

Read next: services/scheduler/domain/pools.py.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from shared.messages.base import Fact


class PoolFact(Fact):
    """Base of facts about one pool."""

    AGGREGATE: ClassVar[str] = "pool"
    name: str = Field(description="The InstanceType.")
    entrance: str = ""
    nodes: int = 0
    devices: int = 0
    cores: int = 0
    reason: str = ""


class PoolFormed(PoolFact):
    """When: the first node with this product appeared. Who: scheduler. Key: InstanceType name."""

    FACT: ClassVar[str] = "formed"


class PoolResized(PoolFact):
    """When: nodes or devices joined or left a pool. Who: scheduler. Key: InstanceType name."""

    FACT: ClassVar[str] = "resized"


class PoolRetired(PoolFact):
    """When: a pool lost its last node. Who: scheduler. Key: InstanceType name."""

    FACT: ClassVar[str] = "retired"


class CapacityFreed(Fact):
    """When: a workload gave back what it held, or capacity appeared. Who: scheduler. Key: InstanceType name."""

    AGGREGATE: ClassVar[str] = "capacity"
    FACT: ClassVar[str] = "freed"
    name: str = Field(description="The InstanceType.")
    node: str = ""
    devices: list[str] = Field(default_factory=list)
    reason: str = ""
