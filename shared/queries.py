"""Questions over core NATS and their answers, and lossy telemetry.

Read next: shared/bus/client.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from shared.messages.base import Message, Query, Telemetry


class ClaimAnswer(Message):
    """Whether this agent start speaks for the node."""

    accepted: bool
    reason: str = ""
    message: str = ""
    epoch: str = Field(default="", description="The store's epoch; a new one may have forgotten the last report.")
    observed_sequence: int = Field(default=0, description="The newest report of this incarnation that is stored.")


class ClaimNode(Query):
    """When: a discovery agent starts or reconnects. Who: discovery agent; answered by discovery. Key: node."""

    SERVICE: ClassVar[str] = "discovery"
    QUESTION: ClassVar[str] = "claim-node"
    ANSWER: ClassVar[type[Message]] = ClaimAnswer
    PER_NODE: ClassVar[Literal["no", "asker", "answerer"]] = "asker"
    node: str
    machine_id: str
    boot_id: str
    incarnation: str
    previous: list[str] = Field(
        default_factory=list,
        description="Incarnations that this agent's data dir held before, known only to who holds its lock: the proof that their agent is gone.",
    )


class DesiredQuery(Query):
    """Base of an agent's question: what should this node have?"""

    QUESTION: ClassVar[str] = "desired"
    PER_NODE: ClassVar[Literal["no", "asker", "answerer"]] = "asker"
    node: str
    incarnation: str = ""
    machine_id: str = ""
    min_revision: int = Field(default=0, description="From the wake: the answer must be at least this new.")


class DesiredAnswer(Message):
    """Base of the full set, with what it is based on; agents ignore an older one than they hold."""

    epoch: str
    revision: int
    refused: str = Field(
        default="", description="Why this agent does not speak for the node; it must then change nothing."
    )


class WantedFile(Message):
    """One file of the manifest."""

    path: str
    size: int
    algorithm: Literal["sha256", "gitsha1"]
    hash: str


class WantedModel(Message):
    """One copy the node should hold."""

    digest: str
    size_bytes: int
    endpoint: str = Field(description="Base URL that speaks the Hugging Face read API.")
    repository: str
    revision: str
    token: str = Field(
        default="", description="Bearer for this repository only; never logged, never sent to another host.", repr=False
    )
    simulated: bool = False
    files: list[WantedFile] = Field(default_factory=list)


class DesiredModelsAnswer(DesiredAnswer):
    """The models a node should hold."""

    models: list[WantedModel] = Field(default_factory=list)
    observed_sequence: int = Field(
        default=0,
        description="The newest stored report of this node; an agent that sent a newer one sends it again, and goes on counting from here.",
    )


class DesiredModels(DesiredQuery):
    """When: on connect, on wake, every 10 s. Who: modelstore agent; answered by modelstore. Key: node."""

    SERVICE: ClassVar[str] = "modelstore"
    ANSWER: ClassVar[type[Message]] = DesiredModelsAnswer
    known: list[str] = Field(
        default_factory=list,
        description="Digests whose files the agent knows; they are answered without, and so are those beyond one answer's room.",
    )


class WantedPod(Message):
    """One Pod the node should run."""

    uid: str
    namespace: str
    name: str
    pod: dict[str, Any] = Field(description="Pod as JSON.")
    workload: str = ""
    runtime: Literal["process", "simulated"] = "process"
    engine: str = ""
    served_model: str = ""
    model_path: str = Field(default="", description="Directory of the verified weights on this node.")
    hold: str = Field(default="", description="Why it must not be started yet; one that runs goes on.")
    devices: list[str] = Field(default_factory=list)
    credits: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0


class StoppingPod(Message):
    """One Pod that must not run here any more; reported as Stopped once that is certain."""

    uid: str
    namespace: str = ""
    name: str = ""
    grace_seconds: int = 30


class DesiredPodsAnswer(DesiredAnswer):
    """The Pods a node should run; a Pod that is not in it must be stopped."""

    pods: list[WantedPod] = Field(default_factory=list)
    stopping: list[StoppingPod] = Field(default_factory=list)


class DesiredPods(DesiredQuery):
    """When: on connect, on wake, every 10 s. Who: deployer agent; answered by deployer. Key: node."""

    SERVICE: ClassVar[str] = "deployer"
    ANSWER: ClassVar[type[Message]] = DesiredPodsAnswer


class LogAnswer(Message):
    """A piece of a Pod's log."""

    text: str = ""
    next_offset: int = 0
    ended: bool = False


class ReadLog(Query):
    """When: a user asks for logs. Who: gateway; answered by the node's deployer agent. Key: node."""

    SERVICE: ClassVar[str] = "deployer"
    QUESTION: ClassVar[str] = "read-log"
    ANSWER: ClassVar[type[Message]] = LogAnswer
    PER_NODE: ClassVar[Literal["no", "asker", "answerer"]] = "answerer"
    node: str
    uid: str
    offset: int = Field(default=-1, description="Byte offset; -1: the last `tail_lines`.")
    tail_lines: int = 100
    max_bytes: int = 65536
    previous: bool = False


class PlacementExplanation(Message):
    """Why a workload is where it is, or why it waits, node by node."""

    namespace: str
    name: str
    state: str
    reason: str
    message: str
    queue_position: int | None = None
    nodes: list[dict[str, Any]] = Field(default_factory=list, description="node, fits, reason, score.")


class ExplainPlacement(Query):
    """When: a user asks why. Who: gateway, CLI; answered by scheduler."""

    SERVICE: ClassVar[str] = "scheduler"
    QUESTION: ClassVar[str] = "explain-placement"
    ANSWER: ClassVar[type[Message]] = PlacementExplanation
    namespace: str
    name: str = ""
    workload: dict[str, Any] | None = Field(default=None, description="WorkloadSpec: what if this were submitted?")


class CacheHolder(Message):
    """A replica that holds a prefix."""

    replica: str
    blocks: int


class CacheHolders(Message):
    """Who holds how much of the prefix, longest first."""

    holders: list[CacheHolder] = Field(default_factory=list)
    blocks: int = 0


class FindCacheHolders(Query):
    """When: a router wants the warmest replica. Who: gateway; answered by kvcache."""

    SERVICE: ClassVar[str] = "kvcache"
    QUESTION: ClassVar[str] = "find-cache-holders"
    ANSWER: ClassVar[type[Message]] = CacheHolders
    model: str
    token_ids: list[int] = Field(default_factory=list)
    block_hashes: list[int] = Field(default_factory=list)
    block_size: int = 16


class SecretAnswer(Message):
    """Decoded values."""

    data: dict[str, str] = Field(default_factory=dict, repr=False)


class ReadSecret(Query):
    """When: a controller or agent needs a Secret that is assigned to it. Who: modelstore, deployer; answered by gateway."""

    SERVICE: ClassVar[str] = "gateway"
    QUESTION: ClassVar[str] = "read-secret"
    ANSWER: ClassVar[type[Message]] = SecretAnswer
    namespace: str
    name: str
    keys: list[str] = Field(default_factory=list)


class OperationAnswer(Message):
    """What became of an operation whose answer was lost."""

    known: bool
    answer: dict[str, Any] | None = None


class Heartbeat(Telemetry):
    """Every second from each discovery agent (or fleet, one per node). Lossy: silence is judged, not counted."""

    WHAT: ClassVar[str] = "heartbeat"
    incarnation: str
    sequence: int = 0
    nodes: dict[str, str] = Field(
        default_factory=dict, description="Only from source `fleet`: every simulated node and its incarnation."
    )


class ModelProgress(Telemetry):
    """Bytes of a running delivery. Lossy: the report says when it is done."""

    WHAT: ClassVar[str] = "progress"
    digest: str
    downloaded_bytes: int
    size_bytes: int
    bytes_per_second: int = 0


class CacheBlocks(Telemetry):
    """Blocks stored and removed by one replica's engine. Lossy: `sequence` shows gaps, the index is a hint."""

    WHAT: ClassVar[str] = "cache-blocks"
    replica: str
    model: str
    block_size: int
    sequence: int
    stored: list[list[int]] = Field(default_factory=list, description="Chains: [parent hash or 0, hash, hash, ...].")
    removed: list[int] = Field(default_factory=list)
    cleared: bool = False
