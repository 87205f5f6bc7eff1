"""Pods: what nodes report of them, what becomes of them when a node is lost, and the steps of those without a deployment.

Loads, lets the domain decide, commits once. Read next: ../domain/pods.py, ../domain/plain.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from services.deployer.domain import observed, plain, pods, rules_pod
from services.deployer.store.deployments import CATCH_UP_SECONDS, Deployments
from services.deployer.store.nodes import Nodes
from services.deployer.store.turns import Turns
from services.deployer.store.view import View
from services.deployer.store.writing import cancel_command, stop_of
from shared.clock import Clock
from shared.errors import AlreadyExists, NotFound, Raced
from shared.faults import point
from shared.messages.base import Fact
from shared.reports import PodsReported
from shared.resources.core import Pod, PodStatus
from shared.store.client import Store
from shared.store.documents import About, Commit, Delete, Document, Put, Require
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

_ATTEMPTS = 5
_AT_ONCE = 150
"""Documents in one commit."""
Change = Callable[[Pod], tuple[PodStatus, tuple[Fact, ...]] | None]
_LOST_RACE = (Raced, AlreadyExists, NotFound)


class Pods:
    """All Pods."""

    def __init__(self, store: Store, view: View, deployments: Deployments, nodes: Nodes, clock: Clock) -> None:
        self._store = store
        self._view = view
        self._deployments = deployments
        self._nodes = nodes
        self._clock = clock
        self._turns = Turns()

    async def report(self, report: PodsReported, *, again: bool = False) -> None:
        """Take what one node's agent sees: one commit, nothing when nothing changed; then act on it.

        What was said in an earlier epoch may be about writes that the store has lost: the agent says it again in this one.

        Args:
            report: The full set of one node.
            again: It was taken up before, perhaps as far as its commit: all owners act on what is there.
        """
        if report.epoch != self._store.epoch:
            await self._store.recover()  # the agent may have heard of a new epoch before this copy
        if report.epoch != self._store.epoch:
            log.info("report_of_another_epoch", node=report.node)
            return
        states = {state.uid: state for state in report.pods}
        known = {pod.uid for pod in self._view.pods_on(report.node)}
        if any(state.phase != "Stopped" and uid not in known for uid, state in states.items()):
            await self._catch_up()  # another copy may have made it; what stays unknown is the agent's to stop

        def change(pod: Pod) -> tuple[PodStatus, tuple[Fact, ...]] | None:
            meta = pods.Report(
                sequence=report.sequence, node_lost=self._view.is_lost(report.node), now=self._clock.now()
            )
            return pods.observe(pod, states.get(pod.uid), meta)

        changed = await self._change(report.node, change)
        over = [pod for pod in self._view.pods_on(report.node) if again or observed.stopped(pod)]
        await self._follow([*changed, *over])

    async def node_changed(self, node: str) -> None:
        """A node fell silent, spoke again or was removed: its Pods' readiness, and what follows for their owners."""

        def change(pod: Pod) -> tuple[PodStatus, tuple[Fact, ...]] | None:
            return pods.with_node(pod, lost=self._view.is_lost(node), now=self._clock.now())

        await self._change(node, change)
        await self._follow(self._view.pods_on(node))

    async def reconcile(self, namespace: str, name: str, *, resync: bool = False) -> None:
        """The next step of a Pod; one that belongs to a deployment is that one's matter."""
        pod = self._view.pod(namespace, name)
        if pod is None:
            return
        owner = pods.owner_of(pod)
        if owner is not None:
            await self._of_deployment(namespace, owner.name, owner.uid)
            return
        async with self._turns.of(namespace, name):
            for _ in range(_ATTEMPTS):
                if not await self._step(namespace, name, resync=resync):
                    return
                resync = False

    async def told_refusal(self, namespace: str, name: str, message: str) -> None:
        """The scheduler refused the Workload of a Pod."""
        pod = self._view.pod(namespace, name)
        if pod is None or pod.spec.node_name:
            return
        now = self._clock.now()
        conditions = pods.scheduled(pod.status.conditions, bound=False, reason="Invalid", message=message, now=now)
        status = pod.status.model_copy(update={"conditions": conditions})
        if status == pod.status:
            return
        document = self._view.document(pod)
        body = document.patched(pod.model_copy(update={"status": status}))
        await self._store.commit(Commit(puts=(Put(*document.key, body, document.revision),)))

    async def _step(self, namespace: str, name: str, *, resync: bool) -> bool:
        """One decision; whether another may follow."""
        pod, workload = self._view.pod(namespace, name), self._view.workload(namespace, name)
        if pod is None:
            return False
        now = self._clock.now()
        step = plain.step(pod, workload, nodes=self._view.nodes, resync=resync, now=now)
        if step is None:
            return False
        commit = self._commit(pod, step)
        try:
            point("deployer.before-commit")
            done = await self._store.commit(commit)
            point("deployer.after-commit")
        except _LOST_RACE:
            await self._catch_up()
            return True
        revision = done.revisions[-1] if done.revisions else 0
        await self._view.cache.reached(revision, CATCH_UP_SECONDS)
        bound = step.pod.spec.node_name if step.pod is not None else ""
        await self._nodes.wake({bound, pod.spec.node_name if step.stop or step.remove else ""}, revision)
        return bool(step.pod or step.stop or step.submit)

    def _commit(self, pod: Pod, step: plain.Step) -> Commit:
        document, now = self._view.document(pod), self._clock.now()
        new = plain.submitted(pod, now) if step.submit is not None else step.pod
        puts: tuple[Put, ...] = ()
        if step.stop:
            puts = (stop_of(document, now),)
        elif new is not None:
            puts = (Put(*document.key, document.patched(new), document.revision),)
        binds = step.binds
        requires = (Require.revision("Workload", pod.namespace, binds.name, binds.revision),) if binds else ()
        cancel = (cancel_command(pod.namespace, step.cancel),) if step.cancel is not None else ()
        return Commit(
            puts=puts,
            deletes=(Delete(*document.key, document.revision),) if step.remove else (),
            requires=requires,
            facts=_gone(pod) if step.remove else (),
            commands=(*((step.submit,) if step.submit is not None else ()), *cancel),
            release=bool(step.remove or step.cancel),
            epoch=self._view.cache.epoch,
        )

    async def _change(self, node: str, change: Change) -> list[Pod]:
        """Commit what `change` makes of a node's Pods; the Pods that changed."""
        for attempt in range(_ATTEMPTS):
            made = [(pod, found) for pod in self._view.pods_on(node) if (found := change(pod)) is not None]
            try:
                for start in range(0, len(made), _AT_ONCE):
                    await self._write(made[start : start + _AT_ONCE])
            except _LOST_RACE:
                if attempt == _ATTEMPTS - 1:
                    raise
                await self._catch_up()
                continue
            return [pod for pod, _ in made]
        raise AssertionError("the last attempt returns or raises")

    async def _write(self, made: Sequence[tuple[Pod, tuple[PodStatus, tuple[Fact, ...]]]]) -> None:
        puts: list[Put] = []
        facts: list[About] = []
        for pod, (status, told) in made:
            document: Document = self._view.document(pod)
            body = document.patched(pod.model_copy(update={"status": status}))
            facts += [About(fact, len(puts)) for fact in told]
            puts.append(Put(*document.key, body, document.revision))
        point("deployer.before-commit")
        done = await self._store.commit(Commit(puts=puts, facts=facts, epoch=self._view.cache.epoch))
        point("deployer.after-commit")
        await self._view.cache.reached(done.revisions[-1], CATCH_UP_SECONDS)

    async def _follow(self, changed: Iterable[Pod]) -> None:
        """Let the owners of changed Pods act, each once."""
        owners: dict[tuple[str, str, str], None] = {}
        alone: dict[tuple[str, str], None] = {}
        for pod in changed:
            owner = pods.owner_of(pod)
            if owner is not None:
                owners[pod.namespace, owner.name, owner.uid] = None
            else:
                alone[pod.namespace, pod.name] = None
        for namespace, name, uid in owners:
            await self._of_deployment(namespace, name, uid)
        for namespace, name in alone:
            await self.reconcile(namespace, name)

    async def _of_deployment(self, namespace: str, name: str, uid: str) -> None:
        deployment = self._view.deployment(namespace, name)
        if deployment is not None and deployment.uid == uid:
            await self._deployments.reconcile(namespace, name)
        else:
            await self._deployments.adopt_ghost(namespace, name, uid)

    async def _catch_up(self) -> None:
        await self._view.cache.reached(await self._store.revision(), CATCH_UP_SECONDS)


def _gone(pod: Pod) -> tuple[Fact, ...]:
    return rules_pod.facts(pod, None)
