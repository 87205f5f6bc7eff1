"""ModelArtifact and NodeModelStore documents in domain types, and the commits that change them.

Must not decide. Read next: handlers.py, loops.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from services.modelstore.domain import lifecycle
from shared.errors import AlreadyExists, Raced
from shared.faults import point
from shared.manifest import Manifest, decode
from shared.messages.base import Decision, Fact
from shared.resources.artifact import ModelArtifact, NodeModelStore
from shared.store import keys
from shared.store.cache import DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit, Delete, Document, Put
from shared.store.leases import Lease

T = TypeVar("T")
_ATTEMPTS = 5
_JITTER_SECONDS = 0.02


class ArtifactStore:
    """Reads and writes artifacts, manifests and node stores."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def epoch(self) -> str:
        """The store's epoch."""
        return self._store.epoch

    async def revision(self) -> int:
        """The last one that a document has: a cache that reached it shows what was committed before now."""
        return await self._store.revision()

    async def namespace_leaves(self, name: str) -> bool:
        """Whether a namespace is gone or asked to go."""
        document = await self._store.get("Namespace", "", name)
        return document is None or document.deleting

    async def node_known(self, name: str) -> bool:
        """Whether there is a Node of this name now."""
        return await self._store.get("Node", "", name) is not None

    async def artifact(self, namespace: str, name: str) -> tuple[Document, ModelArtifact] | None:
        """One artifact with its document."""
        document = await self._store.get("ModelArtifact", namespace, name)
        return (document, document.read(ModelArtifact)) if document is not None else None

    async def node(self, name: str) -> tuple[Document, NodeModelStore] | None:
        """What one node's agent reported."""
        document = await self._store.get("NodeModelStore", "", name)
        return (document, document.read(NodeModelStore)) if document is not None else None

    async def manifest(self, digest: str) -> Manifest | None:
        """A manifest by its digest."""
        text = await self._store.read_blob(keys.manifest(digest))
        return decode(text) if text is not None else None

    async def keep_manifest(self, manifest: Manifest) -> None:
        """Keep a manifest before a document names it; content-addressed, so repeating is harmless."""
        await self._store.write_blob(keys.manifest(manifest.digest), manifest.text)

    async def write_artifact(
        self, document: Document, decision: Decision[ModelArtifact], lease: Lease | None = None
    ) -> None:
        """Commit a decision about an artifact, if it changes anything."""
        if decision.state is None:
            return
        put = Put(document.kind, document.namespace, document.name, document.patched(decision.state), document.revision)
        await self._commit(Commit(puts=(put,), facts=decision.facts, lease=lease))

    async def release_artifact(self, document: Document, artifact: ModelArtifact) -> None:
        """Write an artifact whose finalizer we took off; it goes when nobody else holds it."""
        if artifact.metadata.finalizers:
            body = document.patched(artifact)
            put = Put(document.kind, document.namespace, document.name, body, document.revision)
            await self._commit(Commit(puts=(put,)))
            return
        gone = Delete(document.kind, document.namespace, document.name, document.revision)
        await self._commit(Commit(deletes=(gone,), release=True))

    async def write_node(self, document: Document | None, store: NodeModelStore, facts: Sequence[Fact]) -> None:
        """Commit what a node holds."""
        body = document.patched(store) if document is not None else store.to_json()
        put = Put("NodeModelStore", "", store.name, body, document.revision if document is not None else None)
        await self._commit(Commit(puts=(put,), facts=tuple(facts)))

    async def remove_node(self, name: str) -> None:
        """Forget a node that is gone."""
        document = await self._store.get("NodeModelStore", "", name)
        if document is not None:
            await self._commit(Commit(deletes=(Delete("NodeModelStore", "", name, document.revision),), release=True))

    async def _commit(self, commit: Commit) -> None:
        point("modelstore.before-commit")
        await self._store.commit(commit)
        point("modelstore.after-commit")


async def release(store: ArtifactStore, cache: DocumentCache, namespace: str, name: str) -> None:
    """Take our finalizer off an artifact whose deletion was asked for and that nobody uses."""
    found = await store.artifact(namespace, name)
    if found is None:
        return
    deployments = [document.body for document in cache.list("ModelDeployment", namespace)]
    if lifecycle.may_go(found[1], deployments):
        await store.release_artifact(found[0], lifecycle.without_finalizer(found[1]))


async def decided(attempt: Callable[[], Awaitable[T]]) -> T:
    """Load, decide, commit; again from the start when another writer was faster, at most five times."""
    for left in range(_ATTEMPTS - 1, -1, -1):
        try:
            return await attempt()
        except (Raced, AlreadyExists):
            if left == 0:
                raise
            await asyncio.sleep(random.uniform(0, _JITTER_SECONDS))  # noqa: S311 - spreads writers
    raise AssertionError("the last attempt returns or raises")
