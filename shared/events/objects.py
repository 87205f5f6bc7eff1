"""Facts about kinds that have no aggregate of their own.

One aggregate per owner (`object-<owner>`), because one stream belongs to one owner and subjects of streams must not
overlap. Read next: shared/store/objects.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from shared.messages.base import Fact


class ObjectFact(Fact):
    """Base: which object of which kind."""

    kind: str = Field(description="E.g. Namespace, ModelArtifact.")
    namespace: str = ""
    name: str
    uid: str
    generation: int = 0

    @property
    def key(self) -> str:
        """Kind and name, so that equal names of two kinds do not share a subject."""
        return f"{self.kind.lower()}-{self.name}"


class ObjectApplied(ObjectFact):
    """When: an object was created or its spec changed. Who: the kind's owner. Key: kind and name."""

    FACT: ClassVar[str] = "applied"


class ObjectRemoved(ObjectFact):
    """When: an object is gone, or its deletion was asked for. Who: the kind's owner. Key: kind and name."""

    FACT: ClassVar[str] = "removed"


class DiscoveryObjectApplied(ObjectApplied):
    """When: an object was created or its spec changed. Who: discovery. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-discovery"


class DiscoveryObjectRemoved(ObjectRemoved):
    """When: an object is gone, or its deletion was asked for. Who: discovery. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-discovery"


class SchedulerObjectApplied(ObjectApplied):
    """When: an object was created or its spec changed. Who: scheduler. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-scheduler"


class SchedulerObjectRemoved(ObjectRemoved):
    """When: an object is gone, or its deletion was asked for. Who: scheduler. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-scheduler"


class ModelstoreObjectApplied(ObjectApplied):
    """When: an object was created or its spec changed. Who: modelstore. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-modelstore"


class ModelstoreObjectRemoved(ObjectRemoved):
    """When: an object is gone, or its deletion was asked for. Who: modelstore. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-modelstore"


class KvcacheObjectApplied(ObjectApplied):
    """When: an object was created or its spec changed. Who: kvcache. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-kvcache"


class KvcacheObjectRemoved(ObjectRemoved):
    """When: an object is gone, or its deletion was asked for. Who: kvcache. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-kvcache"


class DeployerObjectApplied(ObjectApplied):
    """When: an object was created or its spec changed. Who: deployer. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-deployer"


class DeployerObjectRemoved(ObjectRemoved):
    """When: an object is gone, or its deletion was asked for. Who: deployer. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-deployer"


class GatewayObjectApplied(ObjectApplied):
    """When: an object was created or its spec changed. Who: gateway. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-gateway"


class GatewayObjectRemoved(ObjectRemoved):
    """When: an object is gone, or its deletion was asked for. Who: gateway. Key: kind and name."""

    AGGREGATE: ClassVar[str] = "object-gateway"


OBJECT_APPLIED: Mapping[str, type[ObjectApplied]] = {
    "discovery": DiscoveryObjectApplied,
    "scheduler": SchedulerObjectApplied,
    "modelstore": ModelstoreObjectApplied,
    "kvcache": KvcacheObjectApplied,
    "deployer": DeployerObjectApplied,
    "gateway": GatewayObjectApplied,
}
OBJECT_REMOVED: Mapping[str, type[ObjectRemoved]] = {
    "discovery": DiscoveryObjectRemoved,
    "scheduler": SchedulerObjectRemoved,
    "modelstore": ModelstoreObjectRemoved,
    "kvcache": KvcacheObjectRemoved,
    "deployer": DeployerObjectRemoved,
    "gateway": GatewayObjectRemoved,
}
