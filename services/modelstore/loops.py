"""Modelstore's leased loops: ask sources, count copies, let go of what nobody needs.

Must not hold state that a restart would lose: when a source was asked last is learnt anew by asking.
Read next: domain/lifecycle.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.modelstore.domain import delivery, lifecycle
from services.modelstore.domain.progress import Progress
from services.modelstore.domain.reasons import ResolveReason, resolve_pause
from services.modelstore.domain.revision import Failure, Resolution, resolve
from services.modelstore.ports import ModelSource, ReadToken, SourceError
from services.modelstore.store import ArtifactStore, decided, release
from shared.clock import Clock
from shared.errors import GpubusError, NotFound, Transient
from shared.resources.artifact import HuggingFaceSource as Source
from shared.resources.artifact import ModelArtifact, NodeModel, NodeModelStore
from shared.store.cache import Change, DocumentCache
from shared.store.leases import Lease
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

RESOLVER_LEASE, KEEPER_LEASE = "resolver", "keeper"
_RESYNC_SECONDS = 30.0
_COUNT_SECONDS = 0.1
_LATER_SECONDS = 1.0
_SEEN_SECONDS = 5.0
"""After an answer was stored: until then the cache shows it, and the source is not asked for nothing."""

SourceFor = Callable[[str], ModelSource]
"""Repository to the source that answers for it."""
Copies = Mapping[str, Sequence[tuple[str, NodeModel]]]
"""Digest to the copies of it, each with its node."""


@dataclass(slots=True)
class _Try:
    failures: int = 0
    due: float = 0.0
    reason: str = ""


class Resolver:
    """Asks the source of every artifact that is not resolved; one copy at a time, under a lease."""

    def __init__(
        self, *, store: ArtifactStore, cache: DocumentCache, source_for: SourceFor, read_token: ReadToken, clock: Clock
    ) -> None:
        self._store = store
        self._cache = cache
        self._source_for = source_for
        self._read_token = read_token
        self._clock = clock
        self._tries: dict[str, _Try] = {}
        self._running: set[str] = set()
        self._look = asyncio.Event()
        cache.listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.kind == "ModelArtifact":
            self._look.set()

    async def run(self, lease: Lease) -> None:
        """For ever, while the lease is held."""
        self._running.clear()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._look.clear()
                for artifact in self._due():
                    self._running.add(artifact.uid)
                    tasks.create_task(self._attempt(artifact, lease))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._look.wait()

    def _due(self) -> list[ModelArtifact]:
        now = self._clock.monotonic()
        waiting = [a for a in self._cache.read_all("ModelArtifact", ModelArtifact) if _unsettled(a)]
        self._tries = {a.uid: self._tries.get(a.uid, _Try()) for a in waiting}
        for artifact in waiting:
            if lifecycle.reason_of(artifact) in {ResolveReason.SECRET_CHANGED, ResolveReason.SETTING_CHANGED}:
                self._tries[artifact.uid].due = 0.0
        return [a for a in waiting if a.uid not in self._running and self._tries[a.uid].due <= now]

    def _pause(self) -> float:
        now = self._clock.monotonic()
        waits = [t.due - now for uid, t in self._tries.items() if uid not in self._running]
        return max(0.05, min([*waits, _RESYNC_SECONDS * random.uniform(0.8, 1.0)]))  # noqa: S311 - jitter

    async def _attempt(self, artifact: ModelArtifact, lease: Lease) -> None:
        try:
            outcome = await self._ask(artifact)
            await decided(lambda: self._settle(artifact, outcome, lease))
        except GpubusError as error:
            log.warning("resolve_not_stored", namespace=artifact.namespace, name=artifact.name, reason=str(error))
            outcome = Failure(ResolveReason.SOURCE_UNAVAILABLE, str(error))
        known = self._tries.setdefault(artifact.uid, _Try())
        known.due = self._clock.monotonic() + _SEEN_SECONDS
        if isinstance(outcome, Failure):
            known.failures = known.failures + 1 if known.reason == outcome.reason else 1
            known.reason = outcome.reason
            known.due = self._clock.monotonic() + resolve_pause(outcome.reason, known.failures)
        self._running.discard(artifact.uid)
        self._look.set()

    async def _ask(self, artifact: ModelArtifact) -> Resolution | Failure | None:
        source = lifecycle.hub_source(artifact)
        if source is None:
            return None
        try:
            token = await self._token(artifact.namespace, source)
            listing = await self._source_for(source.repository).list_commit(source.repository, source.revision, token)
        except SourceError as error:
            return Failure(error.reason, error.message)
        return resolve(artifact.spec, listing)

    async def _token(self, namespace: str, source: Source) -> str:
        if source.secret_ref is None:
            return ""
        name = source.secret_ref.name
        try:
            token = (await self._read_token(namespace, name)).strip()
        except NotFound as error:
            sentence = f"Secret {name} is not in namespace {namespace}"
            raise SourceError(ResolveReason.SECRET_NOT_FOUND, sentence) from error
        except Transient as error:
            sentence = f"Secret {name} cannot be read now: {error}"
            raise SourceError(ResolveReason.SOURCE_UNAVAILABLE, sentence) from error
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            sentence = f"Secret {name} needs a key `token` with the hub's access token"
            raise SourceError(ResolveReason.SECRET_NOT_FOUND, sentence)
        return token

    async def _settle(self, artifact: ModelArtifact, outcome: Resolution | Failure | None, lease: Lease) -> None:
        found = await self._store.artifact(artifact.namespace, artifact.name)
        if found is None or found[1].uid != artifact.uid or found[1].deleting:
            return
        document, current = found
        now = self._clock.now()
        if isinstance(outcome, Resolution):
            if not lifecycle.needs_resolution(current):
                return
            await self._store.keep_manifest(outcome.manifest)
            await self._cache.reached(await self._store.revision(), _LATER_SECONDS)
            held = self._cache.read_all("NodeModelStore", NodeModelStore)
            ready = delivery.ready_already(current, outcome.manifest.digest, held)
            decision = lifecycle.resolved(current, outcome, now, ready)
        elif outcome is None:
            decision = lifecycle.not_served(current, now)
        else:
            decision = lifecycle.refused(current, outcome, now)
        await self._store.write_artifact(document, decision, lease)


def _unsettled(artifact: ModelArtifact) -> bool:
    if artifact.deleting:
        return False
    if lifecycle.hub_source(artifact) is None:
        return lifecycle.reason_of(artifact) != ResolveReason.NOT_SERVED_YET
    return lifecycle.needs_resolution(artifact)


class Keeper:
    """Counts the copies of each artifact and lets deleted ones go; one copy at a time, under a lease."""

    def __init__(self, store: ArtifactStore, cache: DocumentCache) -> None:
        self._store = store
        self._cache = cache
        self._look = asyncio.Event()
        self.progress = Progress(self._look.set)
        cache.listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.kind in {"NodeModelStore", "ModelArtifact", "ModelDeployment"}:
            self._look.set()

    async def run(self, lease: Lease) -> None:
        """For ever, while the lease is held."""
        while True:
            self._look.clear()
            copies = delivery.by_digest(self._cache.read_all("NodeModelStore", NodeModelStore))
            for artifact in list(self._cache.read_all("ModelArtifact", ModelArtifact)):
                await self._tend(artifact, copies, lease)
            await asyncio.sleep(_COUNT_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESYNC_SECONDS):
                    await self._look.wait()

    async def _tend(self, artifact: ModelArtifact, copies: Copies, lease: Lease) -> None:
        try:
            if artifact.deleting:
                await decided(lambda: release(self._store, self._cache, artifact.namespace, artifact.name))
            elif artifact.status.resolved is not None:
                await decided(lambda: self._count(artifact, copies, lease))
        except Transient as error:
            log.info("artifact_not_tended", namespace=artifact.namespace, name=artifact.name, reason=str(error))
            await asyncio.sleep(_LATER_SECONDS)
            self._look.set()

    async def _count(self, artifact: ModelArtifact, copies: Copies, lease: Lease) -> None:
        told = artifact.status.resolved
        nodes = delivery.counts(copies.get(told.manifest_digest, ()) if told else (), self.progress.of)
        if artifact.status.nodes == nodes:
            return
        found = await self._store.artifact(artifact.namespace, artifact.name)
        if found is not None and found[1].uid == artifact.uid:
            await self._store.write_artifact(found[0], delivery.counted(found[1], nodes), lease)
