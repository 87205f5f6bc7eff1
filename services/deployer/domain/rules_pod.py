"""What a user's own Pod may be and how it may change. It waits at a queue like everything that takes capacity.

Pure. Facts: the reference operator's section 3.3 (the rules for whole cards), Kubernetes' rules for Pod updates.
Read next: rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.deployer.domain.pod_requests import request_causes
from shared.errors import Cause
from shared.events.objects import DeployerObjectApplied, DeployerObjectRemoved
from shared.messages.base import Fact
from shared.resources.base import Resource
from shared.resources.core import Container, Pod
from shared.resources.deployment import ANNOTATION_ALLOCATED, ANNOTATION_WORKLOAD, ANNOTATION_WORKLOAD_UID
from shared.resources.pool import LABEL_QUEUE
from shared.store.rules import Lookup, WriteRules
from shared.units import parse_quantity

FINALIZER = "gpubus.io/confirmed-stopped"
"""Held until the node says that nothing of it runs any more."""
FORBIDDEN, REQUIRED = "FieldValueForbidden", "FieldValueRequired"
SYSTEM_ANNOTATIONS = (ANNOTATION_ALLOCATED, ANNOTATION_WORKLOAD, ANNOTATION_WORKLOAD_UID)
"""Written by the platform only: what a Pod holds is decided at admission."""


def validate(new: Pod, old: Pod | None, _lookup: Lookup) -> list[Cause]:
    """Everything wrong with a Pod."""
    if old is not None:
        return list(_changed(new, old))
    return [
        *_runnable(new),
        *request_causes(new.spec.containers, "spec.containers"),
        *_own_annotations(new),
    ]


def facts(old: Resource | None, new: Resource | None) -> tuple[Fact, ...]:
    """Applied when it is new, removed when it is gone or its deletion was asked for."""
    shown = new or old
    assert shown is not None, "a write has an object before or after"
    named: dict[str, Any] = {
        "kind": shown.kind,
        "namespace": shown.namespace,
        "name": shown.name,
        "uid": shown.uid,
        "generation": shown.metadata.generation,
    }
    if new is None or (new.deleting and not (old and old.deleting)):
        return (DeployerObjectRemoved(**named),)
    if old is None or old.metadata.generation != new.metadata.generation:
        return (DeployerObjectApplied(**named),)
    return ()


def _runnable(new: Pod) -> Iterator[Cause]:
    spec = new.spec
    if LABEL_QUEUE not in new.metadata.labels:
        sentence = "name the queue it waits at: the ENTRANCE column of `kubectl get instancetypes`"
        yield Cause(f"metadata.labels[{LABEL_QUEUE}]", sentence, REQUIRED)
    if len(spec.containers) > 1:
        yield Cause("spec.containers", f"a process Pod has one container, found {len(spec.containers)}", FORBIDDEN)
    if spec.init_containers:
        yield Cause("spec.initContainers", "not served yet: only one container", FORBIDDEN)
    if not spec.containers[0].command:
        sentence = "is needed: the process runtime runs commands of this host, images are not used"
        yield Cause("spec.containers[0].command", sentence, REQUIRED)
    names = [container.name for container in spec.containers]
    for position, name in enumerate(names):
        if name in names[:position]:
            yield Cause(f"spec.containers[{position}].name", f"{name!r} is given twice", "FieldValueDuplicate")
    if spec.node_name:
        yield Cause("spec.nodeName", "is chosen at admission; select nodes with nodeSelector", FORBIDDEN)


def _own_annotations(new: Pod) -> Iterator[Cause]:
    for name in SYSTEM_ANNOTATIONS:
        if name in new.metadata.annotations:
            yield Cause(f"metadata.annotations[{name}]", "is written by the platform", FORBIDDEN)


def finalizer_causes(new: Resource, old: Resource, finalizer: str) -> Iterator[Cause]:
    """Taking our finalizer off would free cards that something may still run on."""
    if finalizer in old.metadata.finalizers and finalizer not in new.metadata.finalizers:
        sentence = (
            f"{finalizer} goes when the node confirms that nothing runs; if the node is gone for good, delete the Node"
        )
        yield Cause("metadata.finalizers", sentence, FORBIDDEN)


def _changed(new: Pod, old: Pod) -> Iterator[Cause]:
    yield from finalizer_causes(new, old, FINALIZER)
    if _controller(new) != _controller(old):
        yield Cause("metadata.ownerReferences", "its controller cannot be changed", FORBIDDEN)
    for name in SYSTEM_ANNOTATIONS:
        if new.metadata.annotations.get(name) != old.metadata.annotations.get(name):
            yield Cause(f"metadata.annotations[{name}]", "is written by the platform", FORBIDDEN)
    if new.metadata.labels.get(LABEL_QUEUE) != old.metadata.labels.get(LABEL_QUEUE):
        yield Cause(f"metadata.labels[{LABEL_QUEUE}]", "cannot be changed; create another Pod", FORBIDDEN)
    if _fixed_part(new) != _fixed_part(old):
        sentence = "may not change but for containers[*].image, tolerations and terminationGracePeriodSeconds"
        yield Cause("spec", sentence, FORBIDDEN)


def _controller(pod: Pod) -> list[str]:
    return [owner.uid for owner in pod.metadata.owner_references if owner.controller]


def _fixed_part(pod: Pod) -> dict[str, Any]:
    """The spec without what Kubernetes lets change, quantities as numbers."""
    body = pod.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    for field in ("tolerations", "terminationGracePeriodSeconds", "activeDeadlineSeconds"):
        body.pop(field, None)
    for container, typed in zip(body["containers"], pod.spec.containers, strict=True):
        container.pop("image", None)
        container["resources"] = _quantities(typed)
    return body


def _quantities(container: Container) -> dict[str, Any]:
    resources = container.resources
    return {
        "limits": {key: parse_quantity(text) for key, text in resources.limits.items()},
        "requests": {key: parse_quantity(text) for key, text in resources.requests.items()},
    }


RULES = WriteRules(kind="Pod", validate=validate, facts=facts, finalizers=(FINALIZER,))
