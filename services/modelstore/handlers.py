"""What modelstore does for each message: load, decide, commit. The meaning is in domain/.

Read next: domain/delivery.py (reports, desired copies), loops.py (resolution).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from services.modelstore.domain import delivery, lifecycle
from services.modelstore.domain.progress import Progress
from services.modelstore.domain.reasons import ResolveReason
from services.modelstore.domain.revision import MAX_MANIFEST_BYTES, SIMULATED
from services.modelstore.ports import ReadToken
from services.modelstore.store import ArtifactStore, decided, release
from shared.bus.client import BusClient
from shared.bus.context import MessageContext
from shared.bus.router import on, query, report, request, telemetry
from shared.clock import Clock
from shared.commands.objects import WriteAnswer, WriteObject
from shared.errors import GpubusError, Unavailable
from shared.events.artifact import ArtifactResolved
from shared.events.deployment import DeploymentRemoved
from shared.events.device import NodeRemoved
from shared.events.objects import GatewayObjectApplied, GatewayObjectRemoved, ModelstoreObjectRemoved
from shared.events.workload import WorkloadAdmitted
from shared.manifest import Manifest, ManifestFile
from shared.queries import DesiredModels, DesiredModelsAnswer, ModelProgress, WantedFile, WantedModel
from shared.reports import ModelsReported
from shared.resources.artifact import ModelArtifact, NodeModelStore, Resolved
from shared.resources.core import Node
from shared.resources.workload import Workload
from shared.store.cache import DocumentCache
from shared.store.objects import ObjectWriter
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

REACH_SECONDS = 2.0
_MANIFESTS = 64
"""Manifests kept in memory; they are small beside their models."""


class Handlers:
    """All messages that modelstore consumes."""

    def __init__(
        self,
        *,
        store: ArtifactStore,
        cache: DocumentCache,
        writer: ObjectWriter,
        bus: BusClient,
        read_token: ReadToken,
        hub_endpoint: str,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._store = store
        self._cache = cache
        self._writer = writer
        self._bus = bus
        self._read_token = read_token
        self._hub_endpoint = hub_endpoint
        self._clock = clock
        self._manifests: dict[str, Manifest] = {}
        self._progress = progress

    @request(WriteObject)
    async def write_object(self, write: WriteObject, ctx: MessageContext) -> WriteAnswer:  # noqa: ARG002 - shape
        """Create, replace or delete a ModelArtifact or NodeModelStore."""
        return await self._writer.write(write)

    @on(WorkloadAdmitted)
    async def on_workload_admitted(self, fact: WorkloadAdmitted, ctx: MessageContext) -> None:
        """Its nodes ask what they should hold."""
        await self._cache.reached(ctx.resource_version, REACH_SECONDS)
        workload = self._cache.read("Workload", fact.namespace, fact.name, Workload)
        if workload is not None:
            await self._wake(delivery.nodes_of(workload))

    @on(ArtifactResolved)
    async def on_artifact_resolved(self, fact: ArtifactResolved, ctx: MessageContext) -> None:
        """Nodes that wait for it ask now."""
        await self._cache.reached(ctx.resource_version, REACH_SECONDS)
        await self._wake(delivery.nodes_wanting(fact.namespace, fact.name, self._workloads()))

    @on(ModelstoreObjectRemoved)
    async def on_artifact_removed(self, fact: ModelstoreObjectRemoved, ctx: MessageContext) -> None:  # noqa: ARG002
        """Let it go, unless somebody uses it."""
        if fact.kind == "ModelArtifact":
            await decided(lambda: release(self._store, self._cache, fact.namespace, fact.name))

    @on(DeploymentRemoved)
    async def on_deployment_removed(self, fact: DeploymentRemoved, ctx: MessageContext) -> None:
        """Artifacts that only it used may go."""
        await self._cache.reached(ctx.resource_version, REACH_SECONDS)
        for artifact in list(self._cache.read_all("ModelArtifact", ModelArtifact, fact.namespace)):
            if artifact.deleting:
                await decided(_releasing(self._store, self._cache, artifact))

    @on(GatewayObjectApplied)
    async def on_secret_applied(self, fact: GatewayObjectApplied, ctx: MessageContext) -> None:
        """Ask again with a new token, or at a new endpoint."""
        await self._cache.reached(ctx.resource_version, REACH_SECONDS)
        for artifact in list(self._cache.read_all("ModelArtifact", ModelArtifact)):
            changed = _depends(artifact, fact)
            if changed is not None and lifecycle.needs_resolution(artifact):
                await decided(_asking(self._store, artifact, changed, self._clock))

    @on(GatewayObjectRemoved)
    async def on_namespace_removed(self, fact: GatewayObjectRemoved, ctx: MessageContext) -> None:
        """Its artifacts go with it, unless it was made anew meanwhile."""
        if fact.kind != "Namespace" or not await self._store.namespace_leaves(fact.name):
            return
        await self._cache.reached(ctx.resource_version, REACH_SECONDS)
        for document in self._cache.list("ModelArtifact", fact.name):
            await self._writer.write(
                WriteObject(verb="delete", kind="ModelArtifact", namespace=fact.name, name=document.name)
            )

    @on(NodeRemoved)
    async def on_node_removed(self, fact: NodeRemoved, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Its copies are gone with it, unless it joined anew meanwhile."""
        if not await self._store.node_known(fact.name):
            self._progress.forget(fact.name)
            await decided(lambda: self._store.remove_node(fact.name))

    @report(ModelsReported)
    async def on_models_reported(self, fact: ModelsReported, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Make the node's store what its agent sees."""
        if not await self._cache.reached(await self._store.revision(), REACH_SECONDS):
            # An artifact that is not seen yet would never get its fact.
            raise Unavailable("the documents that this report is about are not here yet")
        await decided(lambda: self._observe(fact))
        self._progress.forget(fact.node, {state.digest for state in fact.models if state.state == "Downloading"})

    @telemetry(ModelProgress)
    async def on_model_progress(self, sample: ModelProgress, ctx: MessageContext) -> None:  # noqa: ARG002 - shape
        """Remember how far it is; nothing is written."""
        self._progress.tell(sample.source, sample.digest, sample.downloaded_bytes, sample.size_bytes)

    @query(DesiredModels)
    async def desired_models(self, question: DesiredModels, ctx: MessageContext) -> DesiredModelsAnswer:  # noqa: ARG002
        """The full set of copies that one node should hold."""
        await self._cache.reached(question.min_revision, REACH_SECONDS)
        told = {"epoch": self._cache.epoch, "revision": self._cache.revision}
        node = self._cache.read("Node", "", question.node, Node)
        known = node.status.node_info.machine_id if node is not None else ""
        if known and question.machine_id and known != question.machine_id:
            return DesiredModelsAnswer(**told, refused=f"node {question.node} is another machine")
        artifacts = {(a.namespace, a.name): a for a in self._cache.read_all("ModelArtifact", ModelArtifact)}
        wanted = delivery.wanted_on(question.node, self._workloads(), artifacts)
        models = await self._models(wanted.values(), frozenset(question.known))
        stored = self._cache.read("NodeModelStore", "", question.node, NodeModelStore)
        seen = stored.status.observed_sequence if stored is not None else 0
        return DesiredModelsAnswer(**told, models=models, observed_sequence=seen)

    async def _observe(self, fact: ModelsReported) -> None:
        found = await self._store.node(fact.node)
        document, old = found if found is not None else (None, None)
        named: dict[str, list[ModelArtifact]] = {}
        for artifact in self._cache.read_all("ModelArtifact", ModelArtifact):
            if artifact.status.resolved is not None:
                named.setdefault(artifact.status.resolved.manifest_digest, []).append(artifact)
        observed = delivery.observe(old, fact, named)
        if observed.store is not None:
            await self._store.write_node(document, observed.store, observed.facts)

    async def _models(self, wanted: Iterable[ModelArtifact], known: frozenset[str]) -> list[WantedModel]:
        """With the files that the agent does not know yet, as many as one answer holds; it asks for the others next."""
        models, room = [], MAX_MANIFEST_BYTES
        for artifact in wanted:
            told = artifact.status.resolved
            manifest = await self._manifest(told.manifest_digest) if told is not None else None
            if told is None or manifest is None:
                continue
            tell = manifest.digest not in known and len(manifest.text) <= room
            room -= len(manifest.text) if tell else 0
            model = await self._model(artifact, told, manifest.files if tell else ())
            models += [model] if model is not None else []
        return models

    async def _model(
        self, artifact: ModelArtifact, told: Resolved, files: Sequence[ManifestFile]
    ) -> WantedModel | None:
        source = lifecycle.hub_source(artifact)
        if source is None:
            return None
        token = ""
        if source.secret_ref is not None and told.endpoint not in {"", SIMULATED}:
            try:
                token = (await self._read_token(artifact.namespace, source.secret_ref.name)).strip()
            except GpubusError as error:
                log.warning("token_not_read", namespace=artifact.namespace, name=artifact.name, reason=str(error))
        return WantedModel(
            digest=told.manifest_digest,
            size_bytes=told.size_bytes,
            endpoint=told.endpoint or self._hub_endpoint,
            repository=source.repository,
            revision=told.revision,
            token=token,
            simulated=told.endpoint == SIMULATED,
            files=[WantedFile(path=f.path, size=f.size, algorithm=f.algorithm, hash=f.hash) for f in files],
        )

    async def _manifest(self, digest: str) -> Manifest | None:
        if digest not in self._manifests:
            found = await self._store.manifest(digest)
            if found is None:
                log.error("manifest_missing", digest=digest)
                return None
            while len(self._manifests) >= _MANIFESTS:
                self._manifests.pop(next(iter(self._manifests)))
            self._manifests[digest] = found
        return self._manifests[digest]

    def _workloads(self) -> Iterable[Workload]:
        return self._cache.read_all("Workload", Workload)

    async def _wake(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            await self._bus.wake(node, self._cache.revision)


def _depends(artifact: ModelArtifact, fact: GatewayObjectApplied) -> ResolveReason | None:
    source = lifecycle.hub_source(artifact)
    if source is None:
        return None
    if fact.kind == "Setting" and fact.name.startswith("model-artifact-"):
        return ResolveReason.SETTING_CHANGED
    named = source.secret_ref is not None and (artifact.namespace, source.secret_ref.name) == (
        fact.namespace,
        fact.name,
    )
    return ResolveReason.SECRET_CHANGED if fact.kind == "Secret" and named else None


def _releasing(store: ArtifactStore, cache: DocumentCache, artifact: ModelArtifact) -> Callable[[], Awaitable[None]]:
    return lambda: release(store, cache, artifact.namespace, artifact.name)


def _asking(
    store: ArtifactStore, artifact: ModelArtifact, why: ResolveReason, clock: Clock
) -> Callable[[], Awaitable[None]]:
    async def ask() -> None:
        found = await store.artifact(artifact.namespace, artifact.name)
        if found is not None and found[1].uid == artifact.uid:
            decision = lifecycle.asked_again(found[1], why, "what it depends on changed; asking again", clock.now())
            await store.write_artifact(found[0], decision)

    return ask
