"""What happens to an artifact: pending, resolved, refused, held by its users, gone.

Owns the conditions Resolved and Degraded and their facts. Pure. Read next: services/modelstore/domain/delivery.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.modelstore.domain.reasons import DEGRADED, RESOLVED, ResolveReason
from services.modelstore.domain.revision import Failure, Resolution
from shared.events.artifact import ArtifactFailed, ArtifactResolved
from shared.messages.base import Decision, Fact
from shared.resources.artifact import (
    FINALIZER,
    ArtifactSource,
    HuggingFaceSource,
    ModelArtifact,
    ModelArtifactStatus,
    Resolved,
)
from shared.resources.base import Condition, get_condition, is_true, set_condition


@dataclass(frozen=True, slots=True)
class Identity:
    """Which artifact, as facts name it."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, artifact: ModelArtifact) -> Identity:
        """From the resource."""
        return cls(artifact.namespace, artifact.name, artifact.uid)

    def fields(self) -> dict[str, str]:
        """For a fact."""
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}


def source_name(source: ArtifactSource) -> str:
    """The one member of a source, as users write it."""
    named = {
        "modelScope": source.model_scope,
        "persistentVolumeClaim": source.persistent_volume_claim,
        "image": source.image,
    }
    return next((name for name, given in named.items() if given is not None), "huggingFace")


def hub_source(artifact: ModelArtifact) -> HuggingFaceSource | None:
    """The source that is served; None for the ones that are stored only."""
    return artifact.spec.source.hugging_face


def needs_resolution(artifact: ModelArtifact) -> bool:
    """Whether its source must still be asked."""
    return (
        not artifact.deleting and hub_source(artifact) is not None and not is_true(artifact.status.conditions, RESOLVED)
    )


def reason_of(artifact: ModelArtifact) -> str:
    """Reason of the condition Resolved; empty before the first attempt."""
    condition = get_condition(artifact.status.conditions, RESOLVED)
    return condition.reason if condition is not None else ""


def resolved(
    artifact: ModelArtifact, resolution: Resolution, now: datetime, ready: tuple[Fact, ...] = ()
) -> Decision[ModelArtifact]:
    """The source answered: keep what it said for ever. `ready` are facts of copies that are there already."""
    manifest = resolution.manifest
    told = Resolved(
        revision=resolution.commit,
        manifest_digest=manifest.digest,
        file_count=len(manifest.files),
        size_bytes=manifest.size_bytes,
        resolved_time=now,
        last_validated_time=now,
        endpoint=resolution.endpoint,
    )
    sentence = f"commit {resolution.commit}: {len(manifest.files)} files, {manifest.size_bytes} bytes"
    status = artifact.status.model_copy(update={"resolved": told})
    status = _with(artifact, status, Condition(type=DEGRADED, status="False", reason="Healthy"), now)
    status = _with(
        artifact, status, Condition(type=RESOLVED, status="True", reason=ResolveReason.RESOLVED, message=sentence), now
    )
    fact = ArtifactResolved(
        **Identity.of(artifact).fields(),
        digest=manifest.digest,
        revision=resolution.commit,
        file_count=len(manifest.files),
        size_bytes=manifest.size_bytes,
        reason=ResolveReason.RESOLVED,
        message=sentence,
    )
    return Decision(ResolveReason.RESOLVED, artifact.model_copy(update={"status": status}), (fact, *ready))


def refused(artifact: ModelArtifact, failure: Failure, now: datetime) -> Decision[ModelArtifact]:
    """The source was asked in vain; nothing is written when it said the same before."""
    before = get_condition(artifact.status.conditions, RESOLVED)
    if before is not None and (before.status, before.reason, before.message) == (
        "False",
        failure.reason,
        failure.message,
    ):
        return Decision(failure.reason)
    condition = Condition(type=RESOLVED, status="False", reason=failure.reason, message=failure.message)
    status = _with(artifact, artifact.status, condition, now)
    fact = ArtifactFailed(
        **Identity.of(artifact).fields(),
        reason=failure.reason,
        message=failure.message,
        retry=failure.reason is not ResolveReason.NOT_SERVED_YET,
    )
    repeated = before is not None and before.reason == failure.reason
    return Decision(failure.reason, artifact.model_copy(update={"status": status}), () if repeated else (fact,))


def not_served(artifact: ModelArtifact, now: datetime) -> Decision[ModelArtifact]:
    """A source that is stored and validated, and not delivered by this version."""
    name = source_name(artifact.spec.source)
    sentence = f"source {name} is stored; this version delivers from huggingFace only"
    return refused(artifact, Failure(ResolveReason.NOT_SERVED_YET, sentence), now)


def asked_again(artifact: ModelArtifact, reason: ResolveReason, message: str, now: datetime) -> Decision[ModelArtifact]:
    """Something the last refusal depended on changed: forget that refusal, so that the source is asked at once."""
    if not needs_resolution(artifact) or not artifact.status.conditions:
        return Decision("AlreadyDone")
    condition = Condition(type=RESOLVED, status="Unknown", reason=reason, message=message)
    status = _with(artifact, artifact.status, condition, now)
    return Decision(reason, artifact.model_copy(update={"status": status}))


def may_go(artifact: ModelArtifact, deployments: Iterable[dict[str, Any]]) -> bool:
    """Whether a deletion that was asked for may happen: ours to hold, and no deployment of its namespace names it."""
    held = FINALIZER in artifact.metadata.finalizers
    return artifact.deleting and held and not any(names(body, artifact.name) for body in deployments)


def names(deployment: dict[str, Any], artifact: str) -> bool:
    """Whether a ModelDeployment (as stored) takes its weights from an artifact."""
    reference = ((deployment.get("spec") or {}).get("model") or {}).get("artifactRef") or {}
    return bool(reference.get("name") == artifact)


def without_finalizer(artifact: ModelArtifact) -> ModelArtifact:
    """The artifact released by us; others may still hold it."""
    rest = [held for held in artifact.metadata.finalizers if held != FINALIZER]
    return artifact.model_copy(update={"metadata": artifact.metadata.model_copy(update={"finalizers": rest})})


def _with(
    artifact: ModelArtifact, status: ModelArtifactStatus, condition: Condition, now: datetime
) -> ModelArtifactStatus:
    seen = artifact.metadata.generation
    stamped = condition.model_copy(update={"observed_generation": seen})
    conditions = set_condition(status.conditions, stamped, now)
    return status.model_copy(update={"conditions": conditions, "observed_generation": seen})
