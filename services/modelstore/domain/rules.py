"""Rules for writes of modelstore's kinds: what is refused, what is announced.

What one field alone can get wrong is refused by the resource itself (shared/resources/artifact.py).
Pure. Read next: services/modelstore/domain/lifecycle.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.errors import Cause
from shared.events.objects import ModelstoreObjectApplied, ModelstoreObjectRemoved
from shared.messages.base import Fact
from shared.resources.artifact import FINALIZER, ModelArtifact
from shared.resources.base import Resource
from shared.store.rules import Lookup, WriteRules


def causes(new: ModelArtifact, old: ModelArtifact | None, _lookup: Lookup) -> list[Cause]:
    """Everything wrong with an artifact."""
    if old is not None:
        return list(_changed(new, old))
    return list(_misplaced(new))


def facts(old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    """Applied when it is new, removed when it is gone or its deletion was asked for; a status tells its own facts."""
    shown = new or old
    assert shown is not None, "a write has an object before or after"
    named = {"kind": shown.kind, "namespace": shown.namespace, "name": shown.name, "uid": shown.uid}
    if new is None or (new.deleting and not (old and old.deleting)):
        return (ModelstoreObjectRemoved(**named, generation=shown.metadata.generation),)
    if old is None:
        return (ModelstoreObjectApplied(**named, generation=shown.metadata.generation),)
    return ()


def _misplaced(new: ModelArtifact) -> Iterator[Cause]:
    source = new.spec.source
    claim = source.persistent_volume_claim
    if claim is not None and claim.path and _leaves(claim.path):
        yield Cause("spec.source.persistentVolumeClaim.path", f"{claim.path!r} must be relative, without '..'")
    if claim is None and source.image is None:
        return
    for field, value in _hub_only(new).items():
        if value:
            yield Cause(
                f"spec.{field}", "only sources on a hub (huggingFace, modelScope) take it", "FieldValueForbidden"
            )


def _hub_only(new: ModelArtifact) -> dict[str, Any]:
    spec = new.spec
    return {
        "allowPatterns": spec.allow_patterns,
        "ignorePatterns": spec.ignore_patterns,
        "expectedDigest": spec.expected_digest,
    }


def _leaves(path: str) -> bool:
    return path.startswith("/") or ".." in path.split("/") or "\\" in path or not path.isprintable()


def _changed(new: ModelArtifact, old: ModelArtifact) -> Iterator[Cause]:
    before, after = (artifact.spec.model_dump(mode="json", by_alias=True, exclude_none=True) for artifact in (old, new))
    for path in _differences("spec", before, after):
        yield Cause(path, "the spec is immutable; create another ModelArtifact", "FieldValueForbidden")


def _differences(path: str, before: Any, after: Any) -> Iterator[str]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield path
        return
    for field in dict.fromkeys((*before, *after)):
        yield from _differences(f"{path}.{field}", before.get(field), after.get(field))


RULES = {
    "ModelArtifact": WriteRules(kind="ModelArtifact", validate=causes, facts=facts, finalizers=(FINALIZER,)),
    "NodeModelStore": WriteRules(kind="NodeModelStore", facts=facts),
}
