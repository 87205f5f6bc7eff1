"""The catalogue: every message type, who owns it, who consumes it. One explicit list; duplicates raise at import.

Streams, durables, NATS permissions, docs/events.md and the AsyncAPI files are generated from it. Consumers are pairs
(service, handler function); a contract test demands that each service registers exactly these.
Read next: shared/bus/streams.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.commands.workload import CancelWorkload, SubmitWorkload
from shared.events import artifact as a
from shared.events import deployment as d
from shared.events import device as dev
from shared.events import kvcache as k
from shared.events import objects as o
from shared.events import pool as p
from shared.events import usage as u
from shared.events import workload as w
from shared.messages.base import Command, Fact, Message, Query, Report, Telemetry
from shared.queries import (
    CacheBlocks,
    ClaimNode,
    DesiredModels,
    DesiredPods,
    ExplainPlacement,
    FindCacheHolders,
    Heartbeat,
    ModelProgress,
    ReadLog,
    ReadSecret,
)
from shared.reports import ModelsReported, NodeReported, PodsReported

Consumer = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One message type. `owner` publishes facts, answers queries and takes commands; agents send reports."""

    message: type[Message]
    owner: str
    consumers: tuple[Consumer, ...] = ()
    why_lossy: str = ""
    """Telemetry only: why losing one does no harm."""


FACTS: tuple[Entry, ...] = (
    Entry(dev.NodeJoined, "discovery", (("scheduler", "on_node_joined"),)),
    Entry(dev.NodeLost, "discovery", (("scheduler", "on_node_lost"), ("deployer", "on_node_lost"))),
    Entry(dev.NodeReturned, "discovery", (("scheduler", "on_node_returned"), ("deployer", "on_node_returned"))),
    Entry(
        dev.NodeRemoved,
        "discovery",
        (
            ("discovery", "on_node_removed"),
            ("scheduler", "on_node_removed"),
            ("modelstore", "on_node_removed"),
            ("deployer", "on_node_removed"),
        ),
    ),
    Entry(dev.DeviceFound, "discovery", (("scheduler", "on_device_found"),)),
    Entry(dev.DeviceChanged, "discovery", (("scheduler", "on_device_changed"),)),
    Entry(dev.DeviceDegraded, "discovery", (("scheduler", "on_device_degraded"),)),
    Entry(dev.DeviceLost, "discovery", (("scheduler", "on_device_lost"),)),
    Entry(o.DiscoveryObjectApplied, "discovery", (("scheduler", "on_node_applied"),)),
    Entry(o.DiscoveryObjectRemoved, "discovery"),
    Entry(p.PoolFormed, "scheduler", (("deployer", "on_pool_formed"),)),
    Entry(p.PoolResized, "scheduler"),
    Entry(p.PoolRetired, "scheduler"),
    Entry(p.CapacityFreed, "scheduler", (("scheduler", "on_capacity_freed"),)),
    Entry(w.WorkloadQueued, "scheduler"),
    Entry(w.WorkloadHeld, "scheduler", (("deployer", "on_workload_held"),)),
    Entry(
        w.WorkloadAdmitted, "scheduler", (("modelstore", "on_workload_admitted"), ("deployer", "on_workload_admitted"))
    ),
    Entry(w.WorkloadPreempted, "scheduler", (("deployer", "on_workload_preempted"),)),
    Entry(w.WorkloadFinished, "scheduler", (("deployer", "on_workload_finished"),)),
    Entry(w.WorkloadCancelled, "scheduler", (("deployer", "on_workload_cancelled"),)),
    Entry(o.SchedulerObjectApplied, "scheduler", (("scheduler", "on_object_applied"),)),
    Entry(o.SchedulerObjectRemoved, "scheduler", (("scheduler", "on_object_removed"),)),
    Entry(
        a.ArtifactResolved, "modelstore", (("modelstore", "on_artifact_resolved"), ("deployer", "on_artifact_resolved"))
    ),
    Entry(a.ArtifactDelivering, "modelstore"),
    Entry(a.ArtifactReady, "modelstore", (("deployer", "on_artifact_ready"),)),
    Entry(a.ArtifactFailed, "modelstore", (("deployer", "on_artifact_failed"),)),
    Entry(a.ArtifactEvicted, "modelstore"),
    Entry(o.ModelstoreObjectApplied, "modelstore", (("deployer", "on_artifact_applied"),)),
    Entry(o.ModelstoreObjectRemoved, "modelstore", (("modelstore", "on_artifact_removed"),)),
    Entry(k.CachePoolReady, "kvcache"),
    Entry(k.CachePoolDegraded, "kvcache"),
    Entry(k.CacheBound, "kvcache"),
    Entry(k.CacheUnbound, "kvcache"),
    Entry(o.KvcacheObjectApplied, "kvcache", (("kvcache", "on_object_applied"),)),
    Entry(o.KvcacheObjectRemoved, "kvcache", (("kvcache", "on_object_removed"),)),
    Entry(d.DeploymentApplied, "deployer", (("deployer", "on_deployment_applied"),)),
    Entry(d.DeploymentAvailable, "deployer"),
    Entry(d.DeploymentDegraded, "deployer"),
    Entry(d.DeploymentRemoved, "deployer", (("modelstore", "on_deployment_removed"),)),
    Entry(d.ReplicaStarted, "deployer"),
    Entry(d.ReplicaReady, "deployer"),
    Entry(d.ReplicaUnready, "deployer"),
    Entry(d.ReplicaFailed, "deployer"),
    Entry(d.ReplicaStopped, "deployer", (("kvcache", "on_replica_stopped"),)),
    Entry(d.PodStarted, "deployer"),
    Entry(d.PodReady, "deployer"),
    Entry(d.PodFailed, "deployer"),
    Entry(d.PodFinished, "deployer"),
    Entry(d.PodStopped, "deployer"),
    Entry(o.DeployerObjectApplied, "deployer", (("deployer", "on_object_applied"),)),
    Entry(o.DeployerObjectRemoved, "deployer", (("deployer", "on_object_removed"),)),
    Entry(
        o.GatewayObjectApplied,
        "gateway",
        (("scheduler", "on_namespace_applied"), ("modelstore", "on_secret_applied")),
    ),
    Entry(
        o.GatewayObjectRemoved,
        "gateway",
        (
            ("scheduler", "on_namespace_removed"),
            ("modelstore", "on_namespace_removed"),
            ("deployer", "on_namespace_removed"),
            ("kvcache", "on_namespace_removed"),
            ("gateway", "on_namespace_removed"),
        ),
    ),
    Entry(u.KeyIssued, "gateway"),
    Entry(u.KeyRevoked, "gateway"),
    Entry(u.RequestMetered, "gateway"),
)

COMMANDS: tuple[Entry, ...] = (
    Entry(SubmitWorkload, "scheduler", (("scheduler", "submit_workload"),)),
    Entry(CancelWorkload, "scheduler", (("scheduler", "cancel_workload"),)),
)
"""The user's `apply` is not here: its body is a bare manifest, not an envelope (services/gateway/handlers.py)."""

REPORTS: tuple[Entry, ...] = (
    Entry(NodeReported, "discovery", (("discovery", "on_node_reported"),)),
    Entry(ModelsReported, "modelstore", (("modelstore", "on_models_reported"),)),
    Entry(PodsReported, "deployer", (("deployer", "on_pods_reported"), ("scheduler", "on_pods_reported"))),
)

QUERIES: tuple[Entry, ...] = (
    Entry(ClaimNode, "discovery", (("discovery", "claim_node"),)),
    Entry(DesiredModels, "modelstore", (("modelstore", "desired_models"),)),
    Entry(DesiredPods, "deployer", (("deployer", "desired_pods"),)),
    Entry(ReadLog, "deployer"),
    Entry(ExplainPlacement, "scheduler", (("scheduler", "explain_placement"),)),
    Entry(FindCacheHolders, "kvcache", (("kvcache", "find_cache_holders"),)),
    Entry(ReadSecret, "gateway", (("gateway", "read_secret"),)),
)

TELEMETRY: tuple[Entry, ...] = (
    Entry(Heartbeat, "discovery", (("discovery", "on_heartbeat"),), "silence is judged over seconds, not single beats"),
    Entry(ModelProgress, "modelstore", (("modelstore", "on_model_progress"),), "the report says when it is done"),
    Entry(CacheBlocks, "kvcache", (("kvcache", "on_cache_blocks"),), "the index is a hint; a gap clears the replica"),
)

ENTRIES: tuple[Entry, ...] = (*FACTS, *COMMANDS, *REPORTS, *QUERIES, *TELEMETRY)


def type_name(message: type[Message]) -> str:
    """The CloudEvents type, e.g. `gpubus.workload.admitted.v1`."""
    if issubclass(message, Fact):
        return f"gpubus.{message.AGGREGATE}.{message.FACT}.v1"
    if issubclass(message, Command):
        return f"gpubus.{message.SERVICE}.{message.COMMAND}.v1"
    if issubclass(message, Report):
        return f"gpubus.{message.SERVICE}.{message.WHAT}-report.v1"
    if issubclass(message, Query):
        return f"gpubus.{message.SERVICE}.{message.QUESTION}-query.v1"
    if issubclass(message, Telemetry):
        return f"gpubus.telemetry.{message.WHAT}.v1"
    raise TypeError(f"{message.__name__} has no type name")


def _by_type(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        name = type_name(entry.message)
        if name in found:
            raise ValueError(f"two messages are called {name}")
        found[name] = entry
    return found


BY_TYPE: Mapping[str, Entry] = _by_type(ENTRIES)
BY_CLASS: Mapping[type[Message], Entry] = {entry.message: entry for entry in ENTRIES}


def owner_of(fact: type[Fact]) -> str:
    """The service that publishes a fact."""
    return BY_CLASS[fact].owner


def facts_of(service: str) -> tuple[Entry, ...]:
    """The facts one service publishes."""
    return tuple(e for e in FACTS if e.owner == service)


def consumed_by(service: str) -> tuple[tuple[Entry, str], ...]:
    """(entry, handler) of everything one service consumes."""
    return tuple((e, handler) for e in ENTRIES for name, handler in e.consumers if name == service)
