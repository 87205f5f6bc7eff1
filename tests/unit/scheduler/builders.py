"""Builders of the scheduler's tests: nodes, pods, pools and queues that read like what they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.domain.admission import Limits, Snapshot, TypeState
from services.scheduler.domain.nodes import CardGroup, NodeFacts, NodeView
from services.scheduler.domain.pools import PoolKey
from services.scheduler.domain.queue import Demand, Queue, Waiting
from services.scheduler.domain.request import Request
from services.scheduler.domain.snapshot import PoolView
from shared.resources.core import PodSpec, Taint

A10G = "nvidia-a10g"
GPU = "nvidia.com/gpu"
POOL = PoolKey(A10G, "linux", "amd64")
CPU_POOL = PoolKey("", "linux", "amd64")
TYPE = POOL.name
GI = 1024**3
SECOND = 1_000_000


def a_pod(*containers: Mapping[str, Any], **spec: Any) -> PodSpec:
    """A PodSpec whose containers have the given `resources`."""
    shapes = [{"name": f"c{i}", "resources": resources} for i, resources in enumerate(containers)]
    return PodSpec.model_validate({"containers": shapes or [{"name": "c0"}], **spec})


def limits(**numbers: Any) -> dict[str, Any]:
    """Container resources with limits only; `gpu` is NVIDIA's key."""
    return {"limits": {GPU if name == "gpu" else name: value for name, value in numbers.items()}}


def cards_of(node: str, count: int) -> tuple[str, ...]:
    """Ids of a node's cards."""
    return tuple(f"{node}-gpu-{index}" for index in range(count))


def facts(
    name: str = "n1",
    *,
    cards: int = 0,
    cpu: int = 32,
    memory_gi: int = 128,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    **more: Any,
) -> NodeFacts:
    """A node as discovery would describe it."""
    ids = cards_of(name, cards)
    group = CardGroup(A10G, "nvidia", "a10g", "NVIDIA A10G", 23028, 80, "Ampere", ids, frozenset(ids))
    return NodeFacts(
        name=name,
        os="linux",
        arch="amd64",
        labels={"kubernetes.io/hostname": name, **(labels or {})},
        taints=tuple(taints),
        cpu_milli=cpu * 1000,
        memory_bytes=memory_gi * GI,
        groups={A10G: group} if cards else {},
        **more,
    )


def a_node(name: str = "n1", *, free: int | None = None, confirmed: bool = True, **about: Any) -> NodeView:
    """A node with `free` of its cards free (all when not said)."""
    known = facts(name, **about)
    cards = known.cards(A10G)
    left = cards if free is None else cards[len(cards) - free :]
    return NodeView(known, {A10G: left} if cards else {}, known.cpu_milli, known.memory_bytes, confirmed)


def a_pool(*nodes: NodeView, key: PoolKey = POOL) -> PoolView:
    """A pool of nodes."""
    pool = PoolView(key)
    for node in nodes:
        pool.put(node)
    return pool


def asks(cards: int = 0, **more: Any) -> Request:
    """A request for NVIDIA cards."""
    return Request(manufacturer="nvidia" if cards else "", cards=cards, **more)


def waits(
    name: str,
    request: Request,
    *,
    priority: int = 0,
    at: int = 1,
    queue: str = TYPE,
    reason: str = "",
    message: str = "",
    inactive: bool = False,
) -> Waiting:
    """A workload that came at second `at`."""
    order = (-priority, at * SECOND, "default", name)
    demand = Demand(queue, "gpustack-fnv64-x", request, inactive)
    return Waiting(f"uid-{name}", "default", name, order, demand, at * SECOND, float(at), reason, message)


def a_queue(*workloads: Waiting) -> Queue:
    """A queue of workloads."""
    queue = Queue()
    for waiting in workloads:
        queue.put(waiting)
    return queue


def a_snapshot(pool: PoolView, queue: Queue, **more: Any) -> Snapshot:
    """A snapshot in which the pool's own type is active."""
    return Snapshot(pool, queue, **{"types": {pool.key.name: TypeState()}, **more})


NO_PATIENCE = Limits(patience=0)
