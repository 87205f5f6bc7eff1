"""Cache documents in domain types, and the commits that change them.

Must not decide. Read next: handlers.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from services.kvcache.domain.domains import DomainHolders
from shared.errors import Unavailable
from shared.faults import point
from shared.messages.base import Fact
from shared.resources.base import Resource
from shared.resources.kvcache import KVCacheBackend, KVCachePool, KVCachePoolBinding
from shared.store.client import Store
from shared.store.documents import Commit, Delete, Document, Put

KINDS = ("KVCacheBackend", "KVCachePool", "KVCachePoolBinding")
DOMAINS_LEASE = "domains"
_LEASE_TRIES = 20
_LEASE_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class CacheState:
    """Everything stored about the cache at one instant."""

    documents: tuple[Document, ...]
    backends: tuple[KVCacheBackend, ...]
    pools: tuple[KVCachePool, ...]
    bindings: tuple[KVCachePoolBinding, ...]

    @property
    def holders(self) -> DomainHolders:
        """Who holds which domain."""
        return DomainHolders(self.pools, self.bindings)


class CacheStore:
    """Reads and writes the three kinds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()

    async def load(self) -> CacheState:
        """All of them; there are few."""
        taken = await self._store.snapshot(KINDS)
        return CacheState(
            taken.documents,
            tuple(document.read(KVCacheBackend) for document in taken.of("KVCacheBackend")),
            tuple(document.read(KVCachePool) for document in taken.of("KVCachePool")),
            tuple(document.read(KVCachePoolBinding) for document in taken.of("KVCachePoolBinding")),
        )

    async def write_status(self, state: CacheState, changed: Sequence[Resource]) -> None:
        """Write objects with another status, each for itself."""
        stored = {document.key: document for document in state.documents}
        for resource in changed:
            document = stored[resource.kind, resource.namespace, resource.name]
            body = document.patched(resource)
            point("kvcache.before-commit")
            await self._store.commit(Commit(puts=(Put(*document.key, body, document.revision),)))
            point("kvcache.after-commit")

    async def remove(self, document: Document, facts: Sequence[Fact]) -> None:
        """Remove one object with its facts."""
        delete = Delete(*document.key, document.revision)
        await self._store.commit(Commit(deletes=(delete,), facts=tuple(facts), release=True))

    async def gone_namespaces(self) -> set[str]:
        """Namespaces that grants name and that are not there."""
        taken = await self._store.snapshot(["KVCachePoolBinding", "Namespace"])
        there = {document.name for document in taken.of("Namespace")}
        return {document.namespace for document in taken.of("KVCachePoolBinding")} - there

    async def pods(self) -> set[str]:
        """Every Pod by uid, and by namespace/name."""
        taken = await self._store.snapshot(["Pod"])
        return {
            name for document in taken.documents for name in (document.uid, f"{document.namespace}/{document.name}")
        }

    @asynccontextmanager
    async def choosing_domains(self) -> AsyncIterator[None]:
        """One writer of grants at a time, over all copies: a domain must not be given out twice.

        Raises:
            Unavailable: others are writing; try again.
        """
        async with self._turn, self._leased():
            yield

    @asynccontextmanager
    async def _leased(self) -> AsyncIterator[None]:
        lease = self._store.lease(DOMAINS_LEASE)
        for _ in range(_LEASE_TRIES):
            if await lease.acquire():
                break
            await asyncio.sleep(_LEASE_PAUSE * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries
        else:
            raise Unavailable("other grants are being written; try again", (), {"retry_after": 1.0})
        try:
            yield
        finally:
            await lease.release()
