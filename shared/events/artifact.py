"""Facts about weights; modelstore publishes them.

Read next: services/modelstore/domain/revision.py.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from shared.messages.base import Fact


class ArtifactFact(Fact):
    """Base of facts about one artifact."""

    AGGREGATE: ClassVar[str] = "artifact"
    namespace: str
    name: str
    uid: str
    digest: str = Field(default="", description="Manifest digest.")
    reason: str = ""
    message: str = ""


class ArtifactResolved(ArtifactFact):
    """When: a source was resolved to a commit and a manifest, once. Who: modelstore. Key: artifact name."""

    FACT: ClassVar[str] = "resolved"
    revision: str = ""
    file_count: int = 0
    size_bytes: int = 0


class ArtifactDelivering(ArtifactFact):
    """When: delivery to one node began. Who: modelstore. Key: artifact name."""

    FACT: ClassVar[str] = "delivering"
    node: str
    size_bytes: int = 0


class ArtifactReady(ArtifactFact):
    """When: every byte was verified and published on one node. Who: modelstore. Key: artifact name."""

    FACT: ClassVar[str] = "ready"
    node: str
    path: str = ""
    size_bytes: int = 0


class ArtifactFailed(ArtifactFact):
    """When: resolution or delivery failed; says why and whether it is tried again. Who: modelstore. Key: artifact name."""

    FACT: ClassVar[str] = "failed"
    node: str = ""
    retry: bool = True


class ArtifactEvicted(ArtifactFact):
    """When: a copy left a node. Who: modelstore. Key: artifact name."""

    FACT: ClassVar[str] = "evicted"
    node: str
