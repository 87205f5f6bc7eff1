"""ModelArtifact and the stores of weights on nodes.

Facts: the reference operator's sections 2.6 to 2.10 and 5. Read next: services/modelstore/domain/revision.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from shared.resources.base import Model, Resource, Status, Timestamp

FINALIZER = "worker.gpustack.ai/model-artifact-protection"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", re.ASCII)


def _repository(value: str) -> str:
    if not _REPOSITORY.fullmatch(value) or ".." in value or value.endswith((".git", ".", "-")):
        raise ValueError(
            f"{value!r} is not OWNER/NAME or NAME; write the repository alone, without host, revision or path"
        )
    return value


def _revision(value: str) -> str:
    if not _REVISION.fullmatch(value) or ".." in value:
        raise ValueError(f"{value!r} is not a branch, tag or commit")
    return value


class SecretRef(Model):
    """A Secret in the same namespace, key `token`."""

    name: str = Field(min_length=1, max_length=253)


Pattern = Annotated[str, Field(min_length=1, max_length=256)]


class HuggingFaceSource(Model):
    """A repository of the hub, or of anything that speaks its read API."""

    repository: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_repository)]
    revision: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_revision)] = "main"
    secret_ref: SecretRef | None = None


class ModelScopeSource(Model):
    """A repository of ModelScope."""

    repository: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_repository)]
    revision: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_revision)] = "master"
    secret_ref: SecretRef | None = None


class ClaimSource(Model):
    """A persistent claim."""

    claim_name: str = Field(min_length=1, max_length=253)
    path: str = ""


class ImageSource(Model):
    """An OCI image pinned by digest."""

    reference: str = Field(min_length=1, max_length=512, pattern=r"^[^\s@]+@sha256:[0-9a-f]{64}$")


class ArtifactSource(Model):
    """Exactly one member."""

    hugging_face: HuggingFaceSource | None = None
    model_scope: ModelScopeSource | None = None
    persistent_volume_claim: ClaimSource | None = None
    image: ImageSource | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> ArtifactSource:
        given = [
            name
            for name in ("hugging_face", "model_scope", "persistent_volume_claim", "image")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"exactly one of huggingFace, modelScope, persistentVolumeClaim, image is needed; found {len(given)}"
            )
        return self


class ModelArtifactSpec(Model):
    """Where weights come from. Immutable."""

    source: ArtifactSource
    allow_patterns: list[Pattern] = Field(default_factory=list, max_length=32)
    ignore_patterns: list[Pattern] = Field(default_factory=list, max_length=32)
    expected_digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")


class Resolved(Model):
    """What the source was resolved to, once."""

    revision: str = Field(description="Full commit.")
    manifest_digest: str
    digest_source: Literal["Hub", "Expected"] = "Hub"
    file_count: int = 0
    size_bytes: int = 0
    resolved_time: Timestamp | None = None
    last_validated_time: Timestamp | None = None
    endpoint: str = Field(default="", description="The hub that answered; empty is the local hub.")


class ArtifactNodes(Model):
    """Copies, counted; names no node."""

    ready: int = 0
    downloading: int = 0
    failed: int = 0
    downloading_percent: int | None = None


class ModelArtifactStatus(Status):
    """Conditions Resolved, Degraded."""

    resolved: Resolved | None = None
    nodes: ArtifactNodes = Field(default_factory=ArtifactNodes)


class ModelArtifact(Resource):
    """A set of weights, named once and resolved once."""

    spec: ModelArtifactSpec
    status: ModelArtifactStatus = Field(default_factory=ModelArtifactStatus)


class NodeModel(Model):
    """One copy on one node."""

    digest: str
    state: Literal["Downloading", "Ready", "Failed"]
    size_bytes: int = 0
    downloaded_bytes: int = 0
    source: Literal["Hub", "Peer", ""] = ""
    path: str = Field(default="", description="Directory on the node, once Ready.")
    reason: str = ""
    message: str = ""
    retry_time: Timestamp | None = None
    referenced: bool = False


class NodeModelStoreSpec(Model):
    """Written by modelstore."""

    pinned: list[str] = Field(default_factory=list)


class StoreCapacity(Model):
    """Disk of the node's store."""

    total_bytes: int = 0
    stored_bytes: int = 0
    used_percent: int = 0


class NodeModelStoreStatus(Status):
    """What the node's agent reported last."""

    capacity: StoreCapacity = Field(default_factory=StoreCapacity)
    models: list[NodeModel] = Field(default_factory=list, max_length=256)
    observed_sequence: int = 0


class NodeModelStore(Resource):
    """Copies on one node; name = node."""

    spec: NodeModelStoreSpec = Field(default_factory=NodeModelStoreSpec)
    status: NodeModelStoreStatus = Field(default_factory=NodeModelStoreStatus)
