"""What the deployer does for each message: let the view catch up, then bring what the message is about a step closer.

Facts wake, state decides: a repeated, late or reordered message leads to the same end. The meaning is in domain/.
Read next: domain/plan.py, store/deployments.py.
"""

from __future__ import annotations

from collections.abc import Callable

from services.deployer.domain.rules import write_rules
from services.deployer.store.deployments import CATCH_UP_SECONDS, Deployments
from services.deployer.store.manifests import Manifests
from services.deployer.store.nodes import Nodes
from services.deployer.store.pods import Pods
from services.deployer.store.view import View
from shared.bus.context import MessageContext
from shared.bus.router import on, query, report, request
from shared.clock import Clock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import GpubusError, Unimplemented
from shared.events.artifact import ArtifactFact, ArtifactFailed, ArtifactReady, ArtifactResolved
from shared.events.deployment import DeploymentApplied
from shared.events.device import NodeLost, NodeRemoved, NodeReturned
from shared.events.objects import (
    DeployerObjectApplied,
    DeployerObjectRemoved,
    GatewayObjectRemoved,
    ModelstoreObjectApplied,
)
from shared.events.pool import PoolFormed
from shared.events.workload import (
    WorkloadAdmitted,
    WorkloadCancelled,
    WorkloadFact,
    WorkloadFinished,
    WorkloadHeld,
    WorkloadPreempted,
)
from shared.queries import DesiredPods, DesiredPodsAnswer
from shared.reports import PodsReported
from shared.resources.artifact import ModelArtifact
from shared.resources.deployment import ModelDeployment
from shared.resources.kinds import owned_by
from shared.store.client import Store
from shared.store.objects import ObjectWriter
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

REFUSED = "Invalid"
"""The scheduler's reason for a submission that it will never take."""


class Handlers:
    """All messages that the deployer consumes."""

    def __init__(
        self,
        *,
        store: Store,
        view: View,
        manifests: Manifests,
        deployments: Deployments,
        pods: Pods,
        nodes: Nodes,
        clock: Clock,
    ) -> None:
        self._view = view
        self._manifests = manifests
        self._deployments = deployments
        self._pods = pods
        self._nodes = nodes
        self._writer = ObjectWriter(store, write_rules(manifests.paths), clock)

    # Users and agents

    @request(WriteObject)
    async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:  # noqa: ARG002 - shape
        """Write a deployment, a Pod or a workspace for a user."""
        if write.verb == "status":
            refused = Unimplemented(f"the status of a {write.kind} is what its node reports; it cannot be written")
            return WriteAnswer(error=refused.to_dict(), operation_id=write.operation_id)
        if write.kind == "ModelDeployment" and write.verb == "create":
            await self._read_manifest(write)
        return await self._writer.write(write)

    @query(DesiredPods)
    async def desired_pods(self, question: DesiredPods, ctx: MessageContext) -> DesiredPodsAnswer:  # noqa: ARG002
        """What one node should run."""
        return await self._nodes.desired(question)

    @report(PodsReported, workers=4)
    async def on_pods_reported(self, message: PodsReported, ctx: MessageContext) -> None:
        """What one node runs; its Pods' owners act on it, once more when a copy died between the two."""
        await self._pods.report(message, again=ctx.attempt > 1)

    # Own objects

    @on(DeploymentApplied, workers=4)
    async def on_deployment_applied(self, fact: DeploymentApplied, ctx: MessageContext) -> None:
        """New, or another spec."""
        await self._caught_up(ctx)
        await self._deployments.reconcile(fact.namespace, fact.name)

    @on(DeployerObjectApplied, workers=4)
    async def on_object_applied(self, fact: DeployerObjectApplied, ctx: MessageContext) -> None:
        """A Pod of a user's own."""
        await self._caught_up(ctx)
        if fact.kind == "Pod":
            await self._pods.reconcile(fact.namespace, fact.name)

    @on(DeployerObjectRemoved, workers=4)
    async def on_object_removed(self, fact: DeployerObjectRemoved, ctx: MessageContext) -> None:
        """Gone, or asked to go: its node is told, its owner makes another."""
        await self._caught_up(ctx)
        if fact.kind == "ModelDeployment":
            await self._deployments.reconcile(fact.namespace, fact.name)
        elif fact.kind == "Pod":
            pod = self._view.pod(fact.namespace, fact.name)
            if pod is not None and pod.spec.node_name:
                await self._nodes.wake([pod.spec.node_name], ctx.resource_version)
            await self._pods.reconcile(fact.namespace, fact.name)

    @on(GatewayObjectRemoved)
    async def on_namespace_removed(self, fact: GatewayObjectRemoved, ctx: MessageContext) -> None:  # noqa: ARG002
        """Everything of ours in it goes with it."""
        if fact.kind == "Namespace":
            await self.empty(fact.name)

    # Capacity

    @on(PoolFormed)
    async def on_pool_formed(self, fact: PoolFormed, ctx: MessageContext) -> None:
        """Deployments may have waited for the pool's name."""
        await self._caught_up(ctx)
        await self._each(lambda deployment: any(role.instance_type == fact.name for role in deployment.spec.roles))

    @on(WorkloadHeld, workers=4)
    async def on_workload_held(self, fact: WorkloadHeld, ctx: MessageContext) -> None:
        """Why it waits is shown by its owner."""
        await self._owner(fact, ctx, refused=fact.message if fact.reason == REFUSED else "")

    @on(WorkloadAdmitted, workers=4)
    async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:
        """Its Pod is made."""
        await self._owner(fact, ctx)

    @on(WorkloadPreempted, workers=4)
    async def on_workload_preempted(self, fact: WorkloadPreempted, ctx: MessageContext) -> None:
        """Its Pod is stopped; what it holds is given back after that."""
        await self._owner(fact, ctx)

    @on(WorkloadFinished, workers=4)
    async def on_workload_finished(self, fact: WorkloadFinished, ctx: MessageContext) -> None:
        """It holds nothing any more."""
        await self._owner(fact, ctx, resync=True)

    @on(WorkloadCancelled, workers=4)
    async def on_workload_cancelled(self, fact: WorkloadCancelled, ctx: MessageContext) -> None:
        """Its name is free again: a deletion may end, another replica may begin."""
        await self._owner(fact, ctx, resync=True)

    # Weights

    @on(ModelstoreObjectApplied)
    async def on_artifact_applied(self, fact: ModelstoreObjectApplied, ctx: MessageContext) -> None:
        """Deployments may have waited for the artifact's name."""
        await self._caught_up(ctx)
        if fact.kind == "ModelArtifact":
            await self._using(fact.namespace, fact.name)

    @on(ArtifactResolved)
    async def on_artifact_resolved(self, fact: ArtifactResolved, ctx: MessageContext) -> None:
        """Its replicas can be asked for."""
        await self._weights(fact, ctx)

    @on(ArtifactReady, workers=4)
    async def on_artifact_ready(self, fact: ArtifactReady, ctx: MessageContext) -> None:
        """Pods that waited for it on that node may start."""
        await self._nodes.wake([fact.node], ctx.resource_version)
        await self._weights(fact, ctx)

    @on(ArtifactFailed)
    async def on_artifact_failed(self, fact: ArtifactFailed, ctx: MessageContext) -> None:
        """Why its replicas wait is shown by the deployments that use it."""
        await self._weights(fact, ctx)

    # Nodes

    @on(NodeLost)
    async def on_node_lost(self, fact: NodeLost, ctx: MessageContext) -> None:
        """Its replicas count as unready and, after the grace, are made elsewhere."""
        await self._caught_up(ctx)
        await self._pods.node_changed(fact.name)

    @on(NodeReturned)
    async def on_node_returned(self, fact: NodeReturned, ctx: MessageContext) -> None:
        """What still runs there counts again; what was replaced is stopped."""
        await self._caught_up(ctx)
        await self._nodes.wake([fact.name], ctx.resource_version)
        await self._pods.node_changed(fact.name)

    @on(NodeRemoved)
    async def on_node_removed(self, fact: NodeRemoved, ctx: MessageContext) -> None:
        """Nobody will confirm anything: its Pods are gone."""
        await self._caught_up(ctx)
        await self._pods.node_changed(fact.name)

    # Shared with the loops

    async def resync(self) -> None:
        """Compare everything with the store, saying again what may have been lost."""
        view = self._view
        known = set()
        for deployment in list(view.deployments()):
            known.add(deployment.uid)
            await self._quietly(deployment.namespace, deployment.name)
        for namespace, name, uid in set(view.owners()):
            if uid not in known:
                await self._deployments.adopt_ghost(namespace, name, uid)
        for pod in list(view.plain_pods()):
            await self._pods.reconcile(pod.namespace, pod.name, resync=True)
        for namespace in self._leaving():
            await self.empty(namespace)
        await self._nodes.wake_waiting()

    async def give_up(self, node: str) -> None:
        """The grace of a lost node is over."""
        await self._pods.node_changed(node)

    async def empty(self, namespace: str) -> None:
        """Ask everything of ours in a namespace to go."""
        for kind in owned_by("deployer"):
            for document in self._view.cache.list(kind.kind, namespace) if kind.kind in self._view.cache.kinds else []:
                if not document.deleting:
                    write = WriteObject(verb="delete", kind=kind.kind, namespace=namespace, name=document.name)
                    answer = await self._writer.write(write)
                    log.info("left_with_namespace", kind=kind.kind, name=document.name, refused=answer.error)

    def _leaving(self) -> set[str]:
        namespaces = {document.name: document for document in self._view.cache.list("Namespace")}
        used = {
            document.namespace
            for kind in owned_by("deployer")
            for document in self._view.cache.list(kind.kind)
            if not document.deleting
        }
        return {name for name in used if name not in namespaces or namespaces[name].deleting}

    async def _quietly(self, namespace: str, name: str) -> None:
        """One deployment that cannot be settled must not hold up the others."""
        try:
            await self._deployments.reconcile(namespace, name, resync=True)
        except GpubusError as error:
            log.warning("resync_failed", namespace=namespace, deployment=name, code=error.code.value, reason=str(error))

    async def _owner(self, fact: WorkloadFact, ctx: MessageContext, *, resync: bool = False, refused: str = "") -> None:
        await self._caught_up(ctx)
        if fact.owner_kind == "ModelDeployment":
            known = self._view.deployment(fact.namespace, fact.owner_name)
            if known is None or known.uid != fact.owner_uid:
                await self._deployments.adopt_ghost(fact.namespace, fact.owner_name, fact.owner_uid)
            if known is not None:
                await self._deployments.reconcile(fact.namespace, fact.owner_name, resync=resync, refused=refused)
        elif fact.owner_kind == "Pod":
            if refused:
                await self._pods.told_refusal(fact.namespace, fact.owner_name, refused)
            await self._pods.reconcile(fact.namespace, fact.owner_name, resync=resync)

    async def _weights(self, fact: ArtifactFact, ctx: MessageContext) -> None:
        await self._caught_up(ctx)
        await self._using(fact.namespace, fact.name)

    async def _using(self, namespace: str, artifact: str) -> None:
        def uses(deployment: ModelDeployment) -> bool:
            ref = deployment.spec.model.artifact_ref
            return deployment.namespace == namespace and ref is not None and ref.name == artifact

        await self._each(uses)

    async def _each(self, wanted: Callable[[ModelDeployment], bool]) -> None:
        for deployment in [found for found in self._view.deployments() if wanted(found)]:
            await self._deployments.reconcile(deployment.namespace, deployment.name)

    async def _read_manifest(self, write: WriteObject) -> None:
        """So that the rules can tell whether the engine can load what was resolved."""
        spec = (write.object or {}).get("spec")
        model = spec.get("model") if isinstance(spec, dict) else None
        ref = model.get("artifactRef") if isinstance(model, dict) else None
        name = ref.get("name") if isinstance(ref, dict) else None
        if isinstance(name, str):
            artifact = self._view.cache.read("ModelArtifact", write.namespace, name, ModelArtifact)
            if artifact is not None and artifact.status.resolved is not None:
                await self._manifests.load(artifact.status.resolved.manifest_digest)

    async def _caught_up(self, ctx: MessageContext) -> None:
        """This copy's view is as new as the fact; a resync follows later if it cannot be in time."""
        await self._view.cache.reached(ctx.resource_version, CATCH_UP_SECONDS)
