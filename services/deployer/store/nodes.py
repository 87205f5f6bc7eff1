"""Tells nodes that what they should run has changed, and answers what that is.

Read next: ../domain/desired.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.deployer.domain import desired, observed
from services.deployer.store.view import View
from shared.bus.client import BusClient
from shared.errors import Unavailable
from shared.queries import DesiredPods, DesiredPodsAnswer, WantedPod
from shared.resources.core import Node, Pod
from shared.resources.deployment import ANNOTATION_WORKLOAD

CATCH_UP_SECONDS = 2.0


class Nodes:
    """The controller's side of all agents."""

    def __init__(self, view: View, bus: BusClient) -> None:
        self._view = view
        self._bus = bus

    async def wake(self, nodes: Iterable[str], revision: int) -> None:
        """Nudge nodes' agents; one that misses it asks within 10 s anyway."""
        for node in sorted(nodes):
            if node:
                await self._bus.wake(node, revision)

    async def wake_all(self) -> None:
        """Nudge everybody: agents say again what runs after the store began a new epoch."""
        await self.wake(self._view.nodes, self._view.cache.revision)

    async def wake_waiting(self) -> None:
        """Nudge nodes that have a Pod to start or to stop: a wake is lost when its sender dies before it."""
        view = self._view
        waiting = {node for node in view.nodes if any(not observed.ready(pod) for pod in view.pods_on(node))}
        await self.wake(waiting, view.cache.revision)

    async def desired(self, question: DesiredPods) -> DesiredPodsAnswer:
        """The full set of one node, at least as new as the agent was told.

        Raises:
            Unavailable: this copy's view is not that new yet.
        """
        view = self._view
        if not await view.cache.reached(question.min_revision, CATCH_UP_SECONDS):
            raise Unavailable(f"revision {question.min_revision} is not here yet")
        node = view.node(question.node)
        refused = desired.refusal(node, question.machine_id)
        base = {"epoch": view.cache.epoch, "revision": view.cache.revision}
        if node is None or refused:
            return DesiredPodsAnswer(**base, refused=refused)
        pods = view.pods_on(question.node)
        return DesiredPodsAnswer(
            **base,
            pods=[self._wanted(pod, node) for pod in pods if not pod.deleting],
            stopping=[desired.stopping(pod) for pod in pods if pod.deleting],
        )

    def _wanted(self, pod: Pod, node: Node) -> WantedPod:
        workload = self._view.workload(pod.namespace, pod.metadata.annotations.get(ANNOTATION_WORKLOAD, pod.name))
        return desired.wanted(pod, workload, node, self._view.model_store(node.name))
