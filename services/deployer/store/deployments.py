"""Brings one deployment closer to what it wants: load what is there, let the domain plan, commit, until nothing is left.

Each commit replaces the deployment's own document, so its decisions are made one after the other whoever makes them.
Read next: ../domain/plan.py, then writing.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from services.deployer.domain import desired, status
from services.deployer.domain.observed import Seen
from services.deployer.domain.plan import plan
from services.deployer.domain.render import Weights, assigned
from services.deployer.domain.steps import Plan
from services.deployer.store.manifests import Manifests
from services.deployer.store.nodes import Nodes
from services.deployer.store.turns import Turns
from services.deployer.store.view import View
from services.deployer.store.writing import commit_of, ghost_commit_of
from shared.clock import Clock
from shared.errors import AlreadyExists, NotFound, Raced
from shared.faults import point
from shared.resources.artifact import ModelArtifact
from shared.resources.base import Metadata
from shared.resources.deployment import EngineSpec, ModelDeployment, ModelDeploymentSpec, ModelRef, Role
from shared.resources.pool import InstanceType
from shared.resources.workload import Workload
from shared.store.client import Store
from shared.store.documents import Commit, Committed
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

_ATTEMPTS = 5
_ROUNDS = 50
"""Commits in one go; a deployment of 1024 replicas needs about ten."""
CATCH_UP_SECONDS = 2.0


class Deployments:
    """All deployments."""

    def __init__(self, store: Store, view: View, manifests: Manifests, nodes: Nodes, clock: Clock) -> None:
        self._store = store
        self._view = view
        self._manifests = manifests
        self._nodes = nodes
        self._clock = clock
        self._turns = Turns()

    async def reconcile(self, namespace: str, name: str, *, resync: bool = False, refused: str = "") -> None:
        """Make what can be made now.

        Args:
            namespace: Its namespace.
            name: Its name; a deployment that is not there leaves nothing to do.
            resync: Say again what may have been lost.
            refused: Why the scheduler refused a Workload of it.

        Raises:
            Raced: others were faster again and again; try later.
        """
        async with self._turns.of(namespace, name):
            for _ in range(_ROUNDS):
                if not await self._round(namespace, name, resync=resync, refused=refused):
                    return
                resync = False
        log.warning("deployment_not_settled", namespace=namespace, deployment=name)

    async def _round(self, namespace: str, name: str, *, resync: bool, refused: str) -> bool:
        """One plan and commit; False when there was nothing to do."""
        for attempt in range(_ATTEMPTS):
            await self._load_manifest(namespace, name)
            deployment = self._view.deployment(namespace, name)  # from here to the commit nothing is awaited
            if deployment is None:
                return False
            seen = self._seen(deployment, resync=resync, refused=refused)
            steps = plan(deployment, seen)
            commit = self._commit(deployment, seen, steps)
            if commit is None:
                return False
            try:
                await self._made(commit, steps)
            except (Raced, AlreadyExists, NotFound):
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._catch_up()
                continue
            self._told(deployment, steps)
            return not steps.gone
        raise Raced(f"deployment {namespace}/{name} changes too fast")

    async def adopt_ghost(self, namespace: str, name: str, uid: str) -> None:
        """Stop and take back what is left of a deployment that is no more (the store lost it)."""
        known = self._view.deployment(namespace, name)
        if known is not None and known.uid == uid:
            return
        async with self._turns.of(namespace, name, uid):
            ghost = _ghost(namespace, name, uid, self._clock.now())
            steps = plan(ghost, self._seen(ghost, resync=True))
            if steps.documents or steps.cancels:
                log.warning("deployment_ghost", namespace=namespace, deployment=name, uid=uid)
                await self._made(ghost_commit_of(ghost, steps, self._view, self._clock.now()), steps)

    def _commit(self, deployment: ModelDeployment, seen: Seen, steps: Plan) -> Commit | None:
        now = self._clock.now()
        new = status.status(deployment, seen, steps.slots, now)
        if steps.empty and new == deployment.status:
            return None
        facts = status.facts(deployment, new)
        return commit_of(deployment.model_copy(update={"status": new}), steps, facts, self._view, seen, now)

    async def _made(self, commit: Commit, steps: Plan) -> Committed:
        point("deployer.before-commit")
        done = await self._store.commit(commit)
        point("deployer.after-commit")
        revision = done.revisions[-1] if done.revisions else 0
        await self._view.cache.reached(revision, CATCH_UP_SECONDS)
        nodes = {pod.spec.node_name for pod in (*steps.stops, *(step.pod for step in steps.removes))}
        nodes |= {found.node_name for step in steps.creates if (found := assigned(step.workload)) is not None}
        await self._nodes.wake(nodes, revision)
        return done

    async def _catch_up(self) -> None:
        await self._view.cache.reached(await self._store.revision(), CATCH_UP_SECONDS)

    def _seen(self, deployment: ModelDeployment, *, resync: bool, refused: str = "") -> Seen:
        view, namespace = self._view, deployment.namespace
        workloads = view.workloads_of(deployment.uid)
        artifact = self._artifact(deployment)
        weights = self._weights(artifact)
        types = {role.instance_type for role in deployment.spec.roles}
        pools = {name: pool for name in types if (pool := view.cache.read("InstanceType", "", name, InstanceType))}
        digest = weights.resolved.manifest_digest if weights.resolved is not None else ""
        return Seen(
            workloads=workloads,
            pods=view.pods_of(deployment.uid),
            pools=pools,
            artifact=artifact,
            weights=weights,
            copies=desired.copies(view.model_stores(_places(workloads.values())), digest) if digest else {},
            nodes=view.nodes,
            lost=view.given_up(),
            simulated=view.simulated,
            taken=lambda name: view.taken(namespace, name),
            resync=resync,
            refused=refused,
        )

    def _artifact(self, deployment: ModelDeployment) -> ModelArtifact | None:
        ref = deployment.spec.model.artifact_ref
        if ref is None:
            return None
        return self._view.cache.read("ModelArtifact", deployment.namespace, ref.name, ModelArtifact)

    def _weights(self, artifact: ModelArtifact | None) -> Weights:
        resolved = artifact.status.resolved if artifact is not None else None
        paths = self._manifests.paths(resolved.manifest_digest) if resolved is not None else None
        return Weights(resolved=resolved, paths=paths)

    async def _load_manifest(self, namespace: str, name: str) -> None:
        deployment = self._view.deployment(namespace, name)
        artifact = self._artifact(deployment) if deployment is not None else None
        if artifact is not None and artifact.status.resolved is not None:
            await self._manifests.load(artifact.status.resolved.manifest_digest)

    def _told(self, deployment: ModelDeployment, steps: Plan) -> None:
        log.info(
            "deployment_reconciled",
            namespace=deployment.namespace,
            deployment=deployment.name,
            submitted=len(steps.submits) or None,
            created=len(steps.creates) or None,
            stopping=len(steps.stops) or None,
            removed=len(steps.removes) or None,
            cancelled=len(steps.cancels) or None,
            gone=steps.gone or None,
        )


def _places(workloads: Iterable[Workload]) -> set[str]:
    found = (assigned(workload) for workload in workloads)
    return {assignment.node_name for assignment in found if assignment is not None}


def _ghost(namespace: str, name: str, uid: str, now: datetime) -> ModelDeployment:
    """A deployment of which nothing is known but that it must go."""
    spec = ModelDeploymentSpec(
        model=ModelRef(name=name), engine=EngineSpec(name="Custom"), roles=[Role(name="server", instance_type="none")]
    )
    metadata = Metadata(name=name, namespace=namespace, uid=uid, deletion_timestamp=now)
    return ModelDeployment(metadata=metadata, spec=spec)
