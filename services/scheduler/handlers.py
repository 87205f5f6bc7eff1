"""What the scheduler does for each message: load, decide, commit. The meaning is in domain/.

Facts about nodes and devices reshape pools; commands move Workloads; reports open ledgers. Admission itself is a leased
loop. Read next: domain/admission.py, store/workloads.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.scheduler.domain import explain
from services.scheduler.domain.cleanup import Surroundings
from services.scheduler.domain.rules import RULES, with_kept_metadata
from services.scheduler.projections.board import Board
from services.scheduler.store.ledgers import LedgerStore
from services.scheduler.store.pools import PoolStore
from services.scheduler.store.workloads import WorkloadStore
from shared.bus.context import MessageContext
from shared.bus.router import command, on, query, report, request
from shared.commands.objects import WriteAnswer, WriteObject
from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.errors import NotFound, Raced, Unimplemented, invalid
from shared.events.device import (
    DeviceChanged,
    DeviceDegraded,
    DeviceFound,
    DeviceLost,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeReturned,
)
from shared.events.objects import (
    DiscoveryObjectApplied,
    GatewayObjectApplied,
    GatewayObjectRemoved,
    SchedulerObjectApplied,
    SchedulerObjectRemoved,
)
from shared.events.pool import CapacityFreed
from shared.queries import ExplainPlacement, PlacementExplanation
from shared.reports import PodsReported
from shared.resources.base import from_validation
from shared.resources.workload import WorkloadSpec
from shared.store.documents import Document
from shared.store.objects import ObjectWriter
from shared.telemetry.logging import get_logger

_CATCH_UP_SECONDS = 2.0
log = get_logger(__name__)


class Handlers:
    """All messages that the scheduler consumes."""

    def __init__(
        self, *, board: Board, pools: PoolStore, workloads: WorkloadStore, ledgers: LedgerStore, writer: ObjectWriter
    ) -> None:
        self._board = board
        self._pools = pools
        self._workloads = workloads
        self._ledgers = ledgers
        self._writer = writer

    @on(NodeJoined)
    async def on_node_joined(self, fact: NodeJoined, ctx: MessageContext) -> None:
        """A node: its pools grow, and it may have told already what runs there."""
        await self._reshape(ctx)
        await self._ledgers.mirror(fact.name)

    @on(NodeLost)
    async def on_node_lost(self, fact: NodeLost, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Its devices are unavailable, never free: pools shrink, the ledger stays charged."""
        await self._reshape(ctx)

    @on(NodeReturned)
    async def on_node_returned(self, fact: NodeReturned, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Pools grow back."""
        await self._reshape(ctx)

    @on(NodeRemoved)
    async def on_node_removed(self, fact: NodeRemoved, ctx: MessageContext) -> None:
        """Closed for good; plain workloads end there, owned ones when their owner says so."""
        await self._reshape(ctx)
        await self._ledgers.close(fact.name)
        held = [key for key, _ in self._board.nodes.holdings_on(fact.name)]
        await self._clean_up(key for key in held)

    @on(DeviceFound)
    async def on_device_found(self, fact: DeviceFound, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """A card: its pool forms or grows."""
        await self._reshape(ctx)

    @on(DeviceChanged)
    async def on_device_changed(self, fact: DeviceChanged, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """A card is another one, or well again."""
        await self._reshape(ctx)

    @on(DeviceDegraded)
    async def on_device_degraded(self, fact: DeviceDegraded, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """A card that is unhealthy is given out no more."""
        await self._reshape(ctx)

    @on(DeviceLost)
    async def on_device_lost(self, fact: DeviceLost, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """A card is gone: its pool shrinks."""
        await self._reshape(ctx)

    @on(DiscoveryObjectApplied)
    async def on_node_applied(self, fact: DiscoveryObjectApplied, ctx: MessageContext) -> None:
        """Labels, taints, cordon or size of a node changed."""
        if fact.kind == "Node":
            await self._reshape(ctx)

    @on(CapacityFreed)
    async def on_capacity_freed(self, fact: CapacityFreed, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Whoever waits for the pool is looked at, if this copy holds it; the log has told the others."""
        self._board.on_pool(self._board.pool_of(fact.name))

    @on(SchedulerObjectApplied)
    async def on_object_applied(self, fact: SchedulerObjectApplied, ctx: MessageContext) -> None:  # noqa: ARG002
        """An InstanceType was made, held or released: entrances and status follow."""
        await self._caught_up(ctx)
        self._board.shape_changed = True
        await self._pools.reshape()

    @on(SchedulerObjectRemoved)
    async def on_object_removed(self, fact: SchedulerObjectRemoved, ctx: MessageContext) -> None:
        """A Workload ends in the commit that gives back what it holds; a type goes when nobody runs in it."""
        await self._caught_up(ctx)
        if fact.kind == "Workload":
            await self._clean_up([(fact.namespace, fact.name)])
        else:
            await self._pools.reshape()

    @on(GatewayObjectApplied)
    async def on_namespace_applied(self, fact: GatewayObjectApplied, ctx: MessageContext) -> None:
        """A namespace gets its entrances; a setting may change which pools there are."""
        if fact.kind in {"Namespace", "Setting"}:
            await self._reshape(ctx)

    @on(GatewayObjectRemoved)
    async def on_namespace_removed(self, fact: GatewayObjectRemoved, ctx: MessageContext) -> None:
        """Its entrances go, and its workloads with it."""
        if fact.kind not in {"Namespace", "Setting"}:
            return
        await self._reshape(ctx)
        found = self._board.cache.list("Workload", fact.name) if fact.kind == "Namespace" else []
        await self._clean_up((document.namespace, document.name) for document in found)

    @command(SubmitWorkload, workers=8)
    async def submit_workload(self, order: SubmitWorkload, ctx: MessageContext) -> None:
        """Queue it; a repeat of the same uid is absorbed."""
        await self._workloads.submit(order, ctx.mark())

    @command(CancelWorkload, workers=8)
    async def cancel_workload(self, order: CancelWorkload, ctx: MessageContext) -> None:
        """End it and give back what it holds, once."""
        await self._workloads.cancel(order, ctx.mark())

    @report(PodsReported, workers=4)
    async def on_pods_reported(self, fact: PodsReported, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Open the node's ledger in this epoch; running Pods without a Workload hold their cards as orphans."""
        reason = await self._ledgers.report(fact)
        log.debug("pods_reported", node=fact.node, sequence=fact.sequence, reason=reason)

    @request(WriteObject)
    async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:  # noqa: ARG002 - shape
        """Write a Workload or an InstanceType for a user."""
        if write.verb == "status":
            refused = Unimplemented(f"the status of a {write.kind} is what the scheduler decides; it cannot be written")
            return WriteAnswer(error=refused.to_dict(), operation_id=write.operation_id)
        stored = self._board.cache.get(write.kind, write.namespace, write.name) if write.kind in RULES else None
        return await self._writer.write(with_kept_metadata(write, stored.body if stored is not None else None))

    @query(ExplainPlacement)
    async def explain_placement(self, question: ExplainPlacement, ctx: MessageContext) -> PlacementExplanation:  # noqa: ARG002
        """Why a workload is where it is or waits, or what would become of one that is not submitted."""
        if question.workload is not None:
            return self._what_if(question)
        document = self._board.cache.get("Workload", question.namespace, question.name)
        if document is None:
            raise NotFound(f'workload "{question.name}" not found in namespace "{question.namespace}"')
        return self._why(document)

    def _why(self, document: Document) -> PlacementExplanation:
        board = self._board
        spec = document.body.get("spec") or {}
        demand = board.workloads.demand(document.namespace, spec)
        pool = board.pool_of(demand.queue)
        board.refresh()
        waiting = board.workloads.waiting((document.namespace, document.name))
        chosen = frozenset(str(found["nodeName"]) for found in explain.places(document.body))
        return PlacementExplanation(
            namespace=document.namespace,
            name=document.name,
            **explain.why_here(document.body),
            queue_position=board.workloads.queue(pool).position(waiting.uid) if waiting is not None else None,
            nodes=explain.node_by_node(board.nodes.pool(pool), demand, chosen),
        )

    def _what_if(self, question: ExplainPlacement) -> PlacementExplanation:
        board = self._board
        demand = board.workloads.demand(question.namespace, _checked(question.workload or {}))
        if demand.request.invalid:
            raise invalid("workload", demand.request.invalid)
        pool = board.pool_of(demand.queue)
        snapshot = board.snapshot(pool, {})
        verdict = explain.what_if(snapshot, demand)
        return PlacementExplanation(
            namespace=question.namespace,
            name=question.name,
            state="Waiting" if verdict else "Admitted",
            reason=verdict.reason.value if verdict else "Admitted",
            message=verdict.message if verdict else "it would be admitted now if nobody were ahead of it",
            nodes=explain.node_by_node(snapshot.pool, demand),
        )

    async def _reshape(self, ctx: MessageContext) -> None:
        await self._caught_up(ctx)
        await self._pools.reshape()

    async def _caught_up(self, ctx: MessageContext) -> None:
        """This copy's view is as new as the fact; a resync follows later if it cannot be in time."""
        await self._board.cache.reached(ctx.resource_version, _CATCH_UP_SECONDS)

    async def _clean_up(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            await self.clean_up(key)

    async def clean_up(self, key: tuple[str, str]) -> None:
        """End one workload if nobody else does."""
        cache = self._board.cache
        document = cache.get("Workload", *key)
        if document is None:
            return
        namespace = cache.get("Namespace", "", document.namespace)
        leaving = document.deleting or namespace is None or namespace.deleting
        around = Surroundings(leaving, lambda node: cache.get("Node", "", node) is not None)
        try:
            await self._workloads.clean_up(document, around)
        except Raced:
            log.debug("clean_up_raced", namespace=key[0], workload=key[1])


def _checked(spec: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        return WorkloadSpec.model_validate(spec).model_dump(mode="json", by_alias=True)
    except ValidationError as error:
        raise from_validation(error, "workload") from error
