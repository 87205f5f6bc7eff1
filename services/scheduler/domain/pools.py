"""Which pools there are: nodes grouped by accelerator, operating system and architecture, and their InstanceTypes.

Names are the reference's. The generic pool holds every node, accelerated ones too unless a setting says otherwise.
Pure. Read next: views.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from services.scheduler.domain.nodes import CardGroup, NodeFacts
from services.scheduler.domain.tiers import CPU_UNIT, LOCAL_STORAGE, unit_resources
from shared.resources.base import Metadata
from shared.resources.kinds import KUEUE, WORKER
from shared.resources.pool import (
    FINALIZER,
    InstanceType,
    InstanceTypeFlavor,
    InstanceTypeFlavorSpec,
    InstanceTypeSpec,
    LocalQueue,
    LocalQueueSpec,
    entrance,
)

GENERIC = "generic"
ACCELERATABLE_LABEL = "feature.gpustack.ai/acceleratable"
ENTRANCE_LABEL = "schedule.gpustack.ai/queue-entrance"
DERIVED_LABEL = "schedule.gpustack.ai/derived-from-node"
QUEUE_ANNOTATION = "schedule.gpustack.ai/queue"


class PoolKey(NamedTuple):
    """One physical pool; any number of InstanceTypes may name it."""

    accelerator: str
    """Accelerator key; empty for the generic pool."""
    os: str
    arch: str

    @property
    def name(self) -> str:
        """The InstanceType derived from nodes, and the lease of its admission cycle."""
        if not self.os:
            return "no-pool"
        return f"gpustack--{self.accelerator or GENERIC}-{self.os}-{self.arch}"


NO_POOL = PoolKey("", "", "")
"""Where workloads wait whose queue does not exist."""


def pools_of(node: NodeFacts, *, mixed: bool) -> tuple[PoolKey, ...]:
    """The pools one node belongs to; with `mixed` off a node with cards is not in the generic one."""
    accelerated = tuple(PoolKey(key, node.os, node.arch) for key in node.groups)
    generic = (PoolKey("", node.os, node.arch),) if mixed or not accelerated else ()
    return (*generic, *accelerated)


def pool_of(spec: InstanceTypeSpec) -> PoolKey:
    """The physical pool an InstanceType names."""
    return PoolKey(spec.accelerator_group if spec.acceleratable else "", spec.os, spec.arch)


def groups_by_pool(nodes: Iterable[NodeFacts], *, mixed: bool) -> dict[PoolKey, CardGroup | None]:
    """Every pool that the nodes form, with a sample of its cards (None: generic), ordered by name."""
    found: dict[PoolKey, CardGroup | None] = {}
    for node in sorted(nodes, key=lambda facts: facts.name):
        for key in pools_of(node, mixed=mixed):
            found.setdefault(key, node.groups.get(key.accelerator))
    return dict(sorted(found.items(), key=lambda item: item[0].name))


def derived_type(key: PoolKey, group: CardGroup | None) -> InstanceType:
    """The InstanceType of a pool that nodes formed."""
    spec = InstanceTypeSpec(
        accelerator_group=key.accelerator,
        acceleratable=group is not None,
        os=key.os,
        arch=key.arch,
        unit_resources=CPU_UNIT if group is None else unit_resources(group.product, group.memory_mib),
        local_storage=LOCAL_STORAGE,
        **({} if group is None else _described(group)),
    )
    labels = {**identity_labels(key.name, spec), DERIVED_LABEL: "true"}
    metadata = Metadata(name=key.name, labels=labels, finalizers=[FINALIZER])
    return InstanceType(api_version=WORKER, kind="InstanceType", metadata=metadata, spec=spec)


def identity_labels(name: str, spec: InstanceTypeSpec) -> dict[str, str]:
    """The labels every InstanceType carries."""
    return {
        "kubernetes.io/os": spec.os,
        "kubernetes.io/arch": spec.arch,
        ACCELERATABLE_LABEL: "true" if spec.acceleratable else "false",
        ENTRANCE_LABEL: entrance(name),
    }


def flavors(nodes: Iterable[NodeFacts]) -> dict[str, InstanceTypeFlavor]:
    """The catalogue rows by name: one for CPUs and one for each product, whatever the system they run."""
    rows: dict[str, InstanceTypeFlavorSpec] = {}
    for node in sorted(nodes, key=lambda facts: facts.name):
        rows.setdefault(f"gpustack--{GENERIC}", InstanceTypeFlavorSpec())
        for group in node.groups.values():
            rows.setdefault(f"gpustack--{group.key}", _flavor(group))
    return {name: _row(name, spec) for name, spec in sorted(rows.items())}


def local_queue(namespace: str, instance_type: str) -> LocalQueue:
    """An InstanceType's entrance in one namespace."""
    metadata = Metadata(
        name=entrance(instance_type), namespace=namespace, annotations={QUEUE_ANNOTATION: instance_type}
    )
    spec = LocalQueueSpec(cluster_queue=instance_type)
    return LocalQueue(api_version=KUEUE, kind="LocalQueue", metadata=metadata, spec=spec)


def _described(group: CardGroup) -> Mapping[str, Any]:
    return {
        "manufacturer": group.manufacturer,
        "product": group.name,
        "family": group.family,
        "memory": group.memory_mib,
        "cores": group.cores,
    }


def _flavor(group: CardGroup) -> InstanceTypeFlavorSpec:
    return InstanceTypeFlavorSpec(
        acceleratable=True, accelerator_group=group.key, sliceable=bool(group.sliceable), **_described(group)
    )


def _row(name: str, spec: InstanceTypeFlavorSpec) -> InstanceTypeFlavor:
    return InstanceTypeFlavor(api_version=WORKER, kind="InstanceTypeFlavor", metadata=Metadata(name=name), spec=spec)
