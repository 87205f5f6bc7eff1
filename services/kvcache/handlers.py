"""What kvcache does for each message: load, decide, commit; block events go straight into the index.

Read next: domain/index.py, domain/rules.py.
"""

from __future__ import annotations

from services.kvcache.domain import rules, status
from services.kvcache.domain.index import PrefixIndex
from services.kvcache.domain.keys import chain
from services.kvcache.store import CacheState, CacheStore
from shared.bus.context import MessageContext
from shared.bus.router import on, query, request, telemetry
from shared.clock import Clock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import GpubusError, invalid
from shared.events.deployment import ReplicaStopped
from shared.events.objects import GatewayObjectRemoved, KvcacheObjectApplied, KvcacheObjectRemoved
from shared.queries import CacheBlocks, CacheHolder, CacheHolders, FindCacheHolders
from shared.resources.base import Resource
from shared.store.client import Store
from shared.store.objects import ObjectWriter
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

BINDING = "KVCachePoolBinding"
_MOST_TOKENS = 2_000_000


class Handlers:
    """All messages that kvcache consumes."""

    def __init__(self, store: Store, objects: CacheStore, index: PrefixIndex, clock: Clock) -> None:
        self._objects = objects
        self._store = store
        self._index = index
        self._clock = clock
        self._writer = ObjectWriter(store, rules.RULES, clock)

    @request(WriteObject)
    async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:  # noqa: ARG002 - shape
        """Write a backend, a pool or a grant for a user."""
        if write.kind != BINDING or write.verb != "create":
            return await self._writer.write(write)
        try:
            async with self._objects.choosing_domains():
                checked = rules.with_holders((await self._objects.load()).holders)
                return await ObjectWriter(self._store, checked, self._clock).write(write)
        except GpubusError as error:
            return WriteAnswer(error=error.to_dict(), operation_id=write.operation_id)

    @on(KvcacheObjectApplied)
    async def on_object_applied(self, fact: KvcacheObjectApplied, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Say what holds of it: stored, not served yet."""
        await self.reconcile()

    @on(KvcacheObjectRemoved)
    async def on_object_removed(self, fact: KvcacheObjectRemoved, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """What is left may be within its total again."""
        await self.reconcile()

    @on(GatewayObjectRemoved)
    async def on_namespace_removed(self, fact: GatewayObjectRemoved, ctx: MessageContext) -> None:  # noqa: ARG002
        """Grants go with their namespace."""
        if fact.kind == "Namespace":
            await self.empty(fact.name)

    @on(ReplicaStopped)
    async def on_replica_stopped(self, fact: ReplicaStopped, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Its cache is gone. The other copies learn it from the Pods, in a minute."""
        for replica in (fact.uid, f"{fact.namespace}/{fact.name}"):
            self._index.drop(replica)

    @telemetry(CacheBlocks)
    async def on_cache_blocks(self, sample: CacheBlocks, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Feed the index."""
        take(self._index, sample)

    @query(FindCacheHolders)
    async def find_cache_holders(self, question: FindCacheHolders, ctx: MessageContext) -> CacheHolders:  # noqa: ARG002
        """Who holds the longest start of a prompt."""
        if question.block_size < 1:
            raise invalid("blockSize", "must be at least 1")
        if len(question.token_ids) > _MOST_TOKENS:
            raise invalid("tokenIds", f"must be at most {_MOST_TOKENS}")
        hashes = question.block_hashes
        if not hashes:
            try:
                hashes = chain(question.token_ids, question.block_size)
            except ValueError as error:
                raise invalid("tokenIds", str(error)) from error
        holders = self._index.find((question.model, question.block_size), hashes)
        return CacheHolders(
            holders=[CacheHolder(replica=holder.replica, blocks=holder.blocks) for holder in holders],
            blocks=len(hashes),
        )

    async def reconcile(self) -> None:
        """Bring every object's conditions up to date; nothing is written where nothing changed."""
        state = await self._objects.load()
        await self._objects.write_status(state, list(self._changed(state)))

    async def resync(self) -> None:
        """What facts may have missed: conditions, and grants whose namespace is gone."""
        await self.reconcile()
        for namespace in await self._objects.gone_namespaces():
            await self.empty(namespace)

    async def empty(self, namespace: str) -> None:
        """Remove the grants of a namespace that is gone."""
        state = await self._objects.load()
        for document in state.documents:
            if document.kind == BINDING and document.namespace == namespace:
                binding = next(b for b in state.bindings if (b.namespace, b.name) == (namespace, document.name))
                await self._objects.remove(document, rules.BINDING.facts(binding, None))
                log.info("grant_removed", namespace=namespace, name=document.name)

    def _changed(self, state: CacheState) -> list[Resource]:
        now, holders = self._clock.now(), state.holders
        told: list[tuple[Resource, Resource]] = [
            *((backend, status.backend_status(backend, now)) for backend in state.backends),
            *((pool, status.pool_status(pool, state.bindings, now)) for pool in state.pools),
            *((binding, status.binding_status(binding, holders, now)) for binding in state.bindings),
        ]
        return [new for old, new in told if new != old]


def take(index: PrefixIndex, sample: CacheBlocks) -> None:
    """One batch of one replica into the index."""
    scope = (sample.model, sample.block_size)
    index.follow(sample.replica, sample.sequence)
    if sample.cleared:
        index.clear(sample.replica, scope)
    if sample.removed:
        index.remove(sample.replica, scope, sample.removed)
    if sample.stored:
        index.store_chains(sample.replica, scope, sample.stored)
