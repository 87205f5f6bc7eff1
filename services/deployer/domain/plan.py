"""From what a deployment wants and what is there to the next steps. The file to read first.

Each replica has a slot (role, ordinal) whose attempt number only grows. A slot is open while a Workload of its attempt
may exist. The rules that keep devices safe:

* A Pod is only made for the Workload of its slot's current attempt, in a commit that requires both as they were read.
* A Workload is only taken back when no Pod of it can run, and in the commit that closes or renews its slot, so no Pod
  is ever made for it afterwards.
* A Pod's document only goes when its node has confirmed that it is stopped (or the node is no member any more).

Pure. Read next: steps.py, what a plan consists of; then ../store.py, which commits it.
"""

from __future__ import annotations

from services.deployer.domain import observed
from services.deployer.domain.blocked import blocked
from services.deployer.domain.names import replica_name, workload_uid
from services.deployer.domain.observed import Seen
from services.deployer.domain.render import ask_hash, assigned, render_hash
from services.deployer.domain.steps import Cancel, CreatePod, Plan, RemovePod, Submit
from shared.resources.core import Pod
from shared.resources.deployment import ModelDeployment, ReplicaSlot, Role
from shared.resources.workload import Workload

DOCUMENTS_AT_ONCE = 100
"""Pods written in one commit; the rest is planned again after it."""
SUBMITS_AT_ONCE = 200


def plan(deployment: ModelDeployment, seen: Seen) -> Plan:
    """The next steps. Applying them and planning again, until a plan is empty, ends in what is wanted."""
    return _Draft(deployment, seen).plan()


class _Draft:
    """Collects the steps of one plan."""

    def __init__(self, deployment: ModelDeployment, seen: Seen) -> None:
        self.deployment = deployment
        self.seen = seen
        self.slots = {(slot.role, slot.ordinal): slot for slot in deployment.status.slots}
        self.steps = Plan()
        self.may_make = not deployment.deleting and blocked(deployment, seen) is None

    def plan(self) -> Plan:
        roles = [] if self.deployment.deleting else self.deployment.spec.roles
        wanted = {(role.name, ordinal) for role in roles for ordinal in range(role.replicas)}
        for key in sorted(set(self.slots) - wanted, reverse=True):
            self._release(self.slots[key])
        for role in roles:
            self._role(role)
        self._surplus()
        self.steps.slots = tuple(self.slots[key] for key in sorted(self.slots))
        self.steps.gone = self.deployment.deleting and not self._left()
        return self.steps

    # One wanted role

    def _role(self, role: Role) -> None:
        replaceable = self._replaceable(role)
        for ordinal in range(role.replicas):
            if self._full():
                return
            slot = self.slots.get((role.name, ordinal))
            if slot is None or not slot.open:
                self._submit_next(role, ordinal, slot.attempt + 1 if slot is not None else 0)
                continue
            name = self._name(slot)
            pod = self.seen.pods.get(name)
            if pod is None:
                self._without_pod(role, slot, self.seen.workloads.get(name))
            else:
                self._with_pod(role, slot, pod, replaceable=ordinal == replaceable)

    def _without_pod(self, role: Role, slot: ReplicaSlot, workload: Workload | None) -> None:
        if workload is None:
            if self.seen.taken(self._name(slot)):
                self._submit_next(role, slot.ordinal, slot.attempt + 1)
            elif self.seen.resync and self.may_make:
                self._submit(role, slot)
        elif self._unusable(role, slot, workload):
            self._cancel(workload)
            self._submit_next(role, slot.ordinal, slot.attempt + 1)
        elif observed.admitted(workload) and self.may_make:
            self.steps.creates.append(CreatePod(role, slot.ordinal, workload))

    def _unusable(self, role: Role, slot: ReplicaSlot, workload: Workload) -> bool:
        """It asks for something else than is wanted now, or no Pod may be made of it."""
        if workload.uid != self._uid(role, slot) or observed.finished(workload) or observed.evicted(workload):
            return True
        assignment = assigned(workload)
        return assignment is not None and (
            assignment.node_name in self.seen.lost or assignment.node_name not in self.seen.nodes
        )

    def _with_pod(self, role: Role, slot: ReplicaSlot, pod: Pod, *, replaceable: bool) -> None:
        workload = self.seen.workloads.get(pod.name)
        if observed.gone(pod, self.seen.nodes):
            self._remove(pod)
            self._submit_next(role, slot.ordinal, slot.attempt + 1)
        elif pod.deleting:
            if pod.spec.node_name in self.seen.lost:
                self._submit_next(role, slot.ordinal, slot.attempt + 1)
        elif not observed.carries(workload, pod) or pod.spec.node_name in self.seen.lost:
            self.steps.stops.append(pod)
            self._submit_next(role, slot.ordinal, slot.attempt + 1)
        elif replaceable:
            self.steps.stops.append(pod)

    def _replaceable(self, role: Role) -> int | None:
        """The one replica that may be replaced now because the role was edited.

        One that serves nobody goes first; one that is ready only goes while all the others are ready, so a new
        version that does not come up stops the rollout at its first replica.
        """
        if not self.may_make:
            return None
        current = render_hash(self.deployment, role)
        outdated, waiting = [], 0
        for ordinal in range(role.replicas):
            slot = self.slots.get((role.name, ordinal))
            pod = self.seen.pods.get(self._name(slot)) if slot is not None and slot.open else None
            if pod is not None and not pod.deleting and observed.renders(pod) != current:
                outdated.append((observed.ready(pod), -ordinal))
            elif pod is None or not observed.ready(pod):
                waiting += 1
        if not outdated:
            return None
        is_ready, negative = min(outdated)
        unready = sum(not found for found, _ in outdated)
        return -negative if not is_ready or waiting + unready == 0 else None

    # What is not wanted

    def _release(self, slot: ReplicaSlot) -> None:
        """A slot beyond the wanted number: stop its Pod, then take its Workload back."""
        if not slot.open or self._full():
            return
        name = self._name(slot)
        pod, workload = self.seen.pods.get(name), self.seen.workloads.get(name)
        if pod is not None:
            if observed.gone(pod, self.seen.nodes):
                self._remove(pod)
                self._close(slot)
            elif not pod.deleting:
                self.steps.stops.append(pod)
            return
        if workload is not None:
            self._cancel(workload)
        elif (role := next((r for r in self.deployment.spec.roles if r.name == slot.role), None)) is not None:
            self.steps.cancels.append(Cancel(name, self._uid(role, slot)))  # it may be on its way
        self._close(slot)

    def _surplus(self) -> None:
        """What earlier attempts left: Pods still stopping, Workloads whose cancellation may have been lost."""
        current = {self._name(slot) for slot in self.slots.values() if slot.open}
        for name, pod in sorted(self.seen.pods.items()):
            if name in current or self._full() or pod in self.steps.stops or pod.uid in self.steps.removed:
                continue
            if observed.gone(pod, self.seen.nodes):
                self._remove(pod)
            elif not pod.deleting:
                self.steps.stops.append(pod)
        for name, workload in sorted(self.seen.workloads.items()):
            if self.seen.resync and name not in current and name not in self.seen.pods:
                self._cancel(workload)

    def _left(self) -> bool:
        """Whether something of a deployment that is being deleted is still there."""
        open_slots = any(slot.open for slot in self.slots.values())
        return open_slots or bool(self.seen.pods) or any(not observed.finished(w) for w in self.seen.workloads.values())

    # Single steps

    def _submit_next(self, role: Role, ordinal: int, attempt: int) -> None:
        """Open the slot's next attempt under a name that nothing has, or close it while nothing can be made."""
        if not self.may_make:
            self.slots[role.name, ordinal] = ReplicaSlot(
                role=role.name, ordinal=ordinal, attempt=attempt - 1, open=False
            )
            if attempt == 0:
                del self.slots[role.name, ordinal]
            return
        while self.seen.taken(replica_name(self.deployment.name, role.name, ordinal, attempt)):
            attempt += 1
        slot = ReplicaSlot(role=role.name, ordinal=ordinal, attempt=attempt)
        self.slots[role.name, ordinal] = slot
        self._submit(role, slot)

    def _submit(self, role: Role, slot: ReplicaSlot) -> None:
        self.steps.submits.append(Submit(role, slot.ordinal, self._name(slot), self._uid(role, slot)))

    def _remove(self, pod: Pod) -> None:
        workload = self.seen.workloads.get(pod.name)
        member = not pod.spec.node_name or pod.spec.node_name in self.seen.nodes
        reason = "" if member else "NodeLost"
        cancel = Cancel(workload.name, workload.uid, reason=reason) if workload is not None else None
        self.steps.removes.append(RemovePod(pod, cancel))

    def _cancel(self, workload: Workload) -> None:
        self.steps.cancels.append(Cancel(workload.name, workload.uid))

    def _close(self, slot: ReplicaSlot) -> None:
        self.slots[slot.role, slot.ordinal] = slot.model_copy(update={"open": False})

    def _full(self) -> bool:
        full = self.steps.documents >= DOCUMENTS_AT_ONCE or len(self.steps.submits) >= SUBMITS_AT_ONCE
        self.steps.more = self.steps.more or full
        return full

    def _name(self, slot: ReplicaSlot) -> str:
        return replica_name(self.deployment.name, slot.role, slot.ordinal, slot.attempt)

    def _uid(self, role: Role, slot: ReplicaSlot) -> str:
        return workload_uid(self.deployment.uid, role.name, slot.ordinal, slot.attempt, ask_hash(self.deployment, role))
