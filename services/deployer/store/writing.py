"""A plan as one commit: documents, commands, facts and what they were decided on.

Must not decide. Read next: deployments.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from services.deployer.domain import render
from services.deployer.domain.observed import Seen
from services.deployer.domain.pods import scheduled
from services.deployer.domain.steps import Cancel, CreatePod, Plan, Submit
from services.deployer.store.view import View
from shared.clock import rfc3339
from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.events.deployment import DeploymentRemoved
from shared.messages.base import Command, Fact
from shared.resources.core import Pod
from shared.resources.deployment import ModelDeployment
from shared.store.documents import Commit, Delete, Document, Put, Require
from shared.store.patching import patched


def commit_of(
    deployment: ModelDeployment, steps: Plan, facts: Sequence[Fact], view: View, seen: Seen, now: datetime
) -> Commit:
    """The commit of a plan; `deployment` carries its new status."""
    document = view.cache.get("ModelDeployment", deployment.namespace, deployment.name)
    assert document is not None, "nothing was awaited since it was read"
    key = document.key
    own = () if steps.gone else (Put(*key, document.patched(deployment), document.revision),)
    removed = (_removed(deployment),) if steps.gone else ()
    return Commit(
        puts=(*_pods(deployment, steps, view, seen, now), *own),
        deletes=(*_deletes(steps, view), *((Delete(*key, document.revision),) if steps.gone else ())),
        requires=tuple(_requires(deployment, steps)),
        facts=(*facts, *removed),
        commands=(*_submits(deployment, steps, seen), *_cancels(deployment, steps)),
        release=bool(steps.removes or steps.cancels or steps.gone),
        epoch=view.cache.epoch,
    )


def ghost_commit_of(ghost: ModelDeployment, steps: Plan, view: View, now: datetime) -> Commit:
    """The commit of a plan for a deployment that has no document: its Pods' own revisions order it."""
    return Commit(
        puts=tuple(_stop(view.document(pod), now) for pod in steps.stops),
        deletes=tuple(_deletes(steps, view)),
        commands=tuple(_cancels(ghost, steps)),
        release=True,
        epoch=view.cache.epoch,
    )


def stop_of(document: Document, now: datetime) -> Put:
    """A Pod that must end: out of its node's desired set, its document stays until the node has confirmed."""
    return _stop(document, now)


def _pods(deployment: ModelDeployment, steps: Plan, view: View, seen: Seen, now: datetime) -> Iterator[Put]:
    for pod in steps.stops:
        yield _stop(view.document(pod), now)
    for step in steps.creates:
        made = _pod(deployment, step, seen, now)
        yield Put("Pod", deployment.namespace, made.name, patched({}, made, open_parts_replaced=True), None)


def _pod(deployment: ModelDeployment, step: CreatePod, seen: Seen, now: datetime) -> Pod:
    pool = seen.pools[step.role.instance_type].spec
    made = render.pod(deployment, step.role, step.ordinal, step.workload, pool, seen.weights)
    conditions = scheduled([], bound=True, now=now)
    return made.model_copy(update={"status": made.status.model_copy(update={"conditions": conditions})})


def _stop(document: Document, now: datetime) -> Put:
    grace = (document.body.get("spec") or {}).get("terminationGracePeriodSeconds") or 0
    marks = {"deletionTimestamp": rfc3339(now), "deletionGracePeriodSeconds": grace}
    return Put(*document.key, {**document.body, "metadata": {**document.body["metadata"], **marks}}, document.revision)


def _deletes(steps: Plan, view: View) -> Iterator[Delete]:
    for step in steps.removes:
        document = view.document(step.pod)
        yield Delete(*document.key, document.revision)


def _requires(deployment: ModelDeployment, steps: Plan) -> Iterator[Require]:
    for step in steps.creates:
        yield Require.revision("Workload", deployment.namespace, step.workload.name, step.workload.revision)


def _submits(deployment: ModelDeployment, steps: Plan, seen: Seen) -> Iterator[Command]:
    for step in steps.submits:
        yield SubmitWorkload(
            namespace=deployment.namespace,
            name=step.name,
            uid=step.uid,
            spec=_workload(deployment, step, seen),
            owner_kind="ModelDeployment",
            owner_name=deployment.name,
            owner_uid=deployment.uid,
            labels=render.labels(deployment, step.role, step.ordinal),
        )


def _workload(deployment: ModelDeployment, step: Submit, seen: Seen) -> dict[str, Any]:
    pool = seen.pools[step.role.instance_type].spec
    spec = render.workload_spec(deployment, step.role, step.ordinal, pool)
    body: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return body


def _cancels(deployment: ModelDeployment, steps: Plan) -> Iterator[Command]:
    removed = (step.cancel for step in steps.removes)
    for cancel in (*steps.cancels, *(found for found in removed if found is not None)):
        yield cancel_command(deployment.namespace, cancel)


def cancel_command(namespace: str, cancel: Cancel) -> CancelWorkload:
    """A Workload taken back."""
    return CancelWorkload(
        namespace=namespace, name=cancel.name, uid=cancel.uid, outcome=cancel.outcome, reason=cancel.reason
    )


def _removed(deployment: ModelDeployment) -> Fact:
    return DeploymentRemoved(
        namespace=deployment.namespace,
        name=deployment.name,
        uid=deployment.uid,
        model=deployment.spec.model.name,
        generation=deployment.metadata.generation,
    )
