"""What discovery does for each message: load, decide, commit. The meaning is in domain/.

Read next: domain/inventory.py (reports), domain/claims.py, domain/liveness.py (heartbeats).
"""

from __future__ import annotations

from prometheus_client import Counter

from services.discovery.domain import identity, inventory
from services.discovery.domain.claims import ClaimOutcome, ClaimReason, decide_claim
from services.discovery.domain.inventory import Outcome, ReportReason
from services.discovery.domain.liveness import Liveness
from services.discovery.domain.reading import Reading, read
from services.discovery.domain.rules import refusal
from services.discovery.store import NodeStore, decided
from shared.bus.context import MessageContext
from shared.bus.router import on, query, report, request, telemetry
from shared.clock import Clock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.events.device import NodeRemoved
from shared.queries import ClaimAnswer, ClaimNode, Heartbeat
from shared.reports import NodeReported
from shared.resources.core import Node
from shared.store.cache import DocumentCache
from shared.store.objects import ObjectWriter
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

REPORTS = "gpubus_node_reports_total"
CLAIMS = "gpubus_node_claims_total"

reports = Counter(REPORTS, "Reports of nodes, by what became of them.", ["reason"])
claims = Counter(CLAIMS, "Claims to nodes, by what became of them.", ["reason"])


class Handlers:
    """All messages that discovery consumes."""

    def __init__(
        self, nodes: NodeStore, writer: ObjectWriter, cache: DocumentCache, liveness: Liveness, clock: Clock
    ) -> None:
        self._nodes = nodes
        self._cache = cache
        self._writer = writer
        self._liveness = liveness
        self._clock = clock

    @report(NodeReported, workers=4)
    async def on_node_reported(self, fact: NodeReported, ctx: MessageContext) -> None:
        """Make Node and Devices what the agent sees."""
        reading = read(fact)
        if reading.problems:
            log.warning("report_partly_unreadable", node=fact.node, problems=reading.problems[:10])
        outcome = await decided(lambda: self._apply(reading, ctx))
        reports.labels(outcome.reason.value).inc()
        if outcome.reason is ReportReason.APPLIED:
            log.info("node_reported", node=fact.node, sequence=fact.sequence, facts=_names(outcome))

    @query(ClaimNode)
    async def claim_node(self, question: ClaimNode, ctx: MessageContext) -> ClaimAnswer:  # noqa: ARG002 - shape
        """Let one agent start speak for a node."""
        held = self._cache.read("Node", "", question.node, Node)
        if held is not None and held.status.incarnation == question.incarnation:
            # The usual question, every 10 s from every node: is all still known? A late answer mends itself then.
            return _answer(ClaimOutcome(ClaimReason.SAME), self._cache.epoch, held.status.observed_sequence)
        outcome, observed = await decided(lambda: self._claim(question))
        claims.labels(outcome.reason.value).inc()
        return _answer(outcome, self._nodes.epoch, observed)

    @telemetry(Heartbeat)
    async def on_heartbeat(self, sample: Heartbeat, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Remember that it lives."""
        now = self._clock.monotonic()
        told = sample.nodes if sample.source == identity.FLEET else {sample.source: sample.incarnation}
        for node, incarnation in told.items():
            self._liveness.heard(node, incarnation, now)

    @on(NodeRemoved)
    async def on_node_removed(self, fact: NodeRemoved, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Its devices go with it."""
        await decided(lambda: self.remove_orphan(fact.name))

    @request(WriteObject)
    async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:  # noqa: ARG002 - shape
        """Write a Node for a user."""
        refused = refusal(write)
        if refused is not None:
            return WriteAnswer(error=refused.to_dict(), operation_id=write.operation_id)
        return await self._writer.write(write)

    async def remove_orphan(self, name: str) -> bool:
        """Remove the Devices of a node that is gone; False when there is nothing to remove."""
        stored = await self._nodes.load(name)
        if stored.node is not None or stored.devices is None:
            return False
        await self._nodes.remove_devices(stored, inventory.removed_devices(name, stored.devices))
        log.info("devices_removed", node=name)
        return True

    async def _apply(self, reading: Reading, ctx: MessageContext) -> Outcome:
        stored = await self._nodes.load(reading.node)
        outcome = inventory.decide_report(stored.node, stored.devices, reading, self._clock.now())
        if outcome.reason is ReportReason.APPLIED:
            await self._nodes.write(
                stored,
                node=outcome.node,
                devices=outcome.devices,
                node_facts=outcome.node_facts,
                device_facts=outcome.device_facts,
                mark=ctx.mark(),
            )
        return outcome

    async def _claim(self, claim: ClaimNode) -> tuple[ClaimOutcome, int]:
        stored, now = await self._nodes.load(claim.node), self._clock.monotonic()
        holder = stored.node.status.incarnation if stored.node else ""
        hearing = self._liveness.hearing(claim.node, holder, now)
        outcome = decide_claim(stored.node, claim, hearing, self._clock.now())
        if outcome.node is not None:
            await self._nodes.write(stored, node=outcome.node)
            log.info("node_claimed", node=claim.node, reason=outcome.reason.value, incarnation=claim.incarnation)
        if outcome.accepted:
            self._liveness.heard(claim.node, claim.incarnation, now)
        known = outcome.node or stored.node
        return outcome, known.status.observed_sequence if known else 0


def _answer(outcome: ClaimOutcome, epoch: str, observed: int) -> ClaimAnswer:
    return ClaimAnswer(
        accepted=outcome.accepted,
        reason=outcome.reason.value,
        message=outcome.message,
        epoch=epoch,
        observed_sequence=observed,
    )


def _names(outcome: Outcome) -> list[str]:
    return [type(fact).__name__ for fact in (*outcome.node_facts, *outcome.device_facts)][:20]
