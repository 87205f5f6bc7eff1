"""From what a source lists to an immutable manifest, or the reason why not.

Must not ask any source. Read next: shared/manifest.py, then services/modelstore/domain/lifecycle.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.modelstore.domain.patterns import keeps
from services.modelstore.domain.reasons import ResolveReason
from shared.manifest import Manifest, ManifestError, ManifestFile, build
from shared.resources.artifact import ModelArtifactSpec

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
"""About 30,000 files: a desired set with it still fits into one bus message."""
SIMULATED = "simulated:"
"""Endpoint of the simulated hub, whose repositories have no bytes."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Every file of one commit, as the source told."""

    commit: str
    files: tuple[ManifestFile, ...]
    endpoint: str = ""
    """The hub that answered; empty is the local hub."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no manifest. The message is a sentence for users and carries no secret."""

    reason: ResolveReason
    message: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """A source resolved once and for ever."""

    commit: str
    endpoint: str
    manifest: Manifest


def resolve(spec: ModelArtifactSpec, listing: Listing) -> Resolution | Failure:
    """Filter a listing by the artifact's patterns, check every path, compute the digest, compare the expected one."""
    kept = [file for file in listing.files if keeps(file.path, spec.allow_patterns, spec.ignore_patterns)]
    if not kept:
        return Failure(ResolveReason.EMPTY_MANIFEST, _nothing_kept(spec, listing))
    masked = next((file.path for file in kept if "*" in file.hash), None)
    if masked is not None:
        return Failure(
            ResolveReason.ACCESS_DENIED,
            f"the source hides the hash of {masked!r}: the repository is gated, and access to its files was not granted",
        )
    try:
        manifest = build(kept)
    except ManifestError as error:
        return Failure(ResolveReason.INVALID_MANIFEST, f"commit {listing.commit}: {error}")
    if len(manifest.text) > MAX_MANIFEST_BYTES:
        sentence = f"{len(kept)} files make a manifest of {len(manifest.text)} bytes, at most {MAX_MANIFEST_BYTES} are taken; narrow it with allowPatterns"
        return Failure(ResolveReason.INVALID_MANIFEST, sentence)
    if spec.expected_digest not in {None, manifest.digest}:
        sentence = f"commit {listing.commit} has manifest digest {manifest.digest}, expected is {spec.expected_digest}"
        return Failure(ResolveReason.DIGEST_MISMATCH, sentence)
    return Resolution(listing.commit, listing.endpoint, manifest)


def _nothing_kept(spec: ModelArtifactSpec, listing: Listing) -> str:
    if not listing.files:
        return f"commit {listing.commit} has no files"
    patterns = f"allowPatterns {spec.allow_patterns} and ignorePatterns {spec.ignore_patterns}"
    return f"{patterns} keep none of the {len(listing.files)} files of commit {listing.commit}"
