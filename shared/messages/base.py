"""Bases of everything that travels on the bus, and `Decision`, the one result type of every `decide`.

Owns immutability and the tolerant reader. Must not know any transport or any concrete message.
Read next: shared/messages/catalog.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

CLUSTER_SCOPE = "_"


class Message(BaseModel):
    """Frozen, camelCase on the wire, unknown fields ignored (additive evolution)."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    @property
    def scope(self) -> str:
        """The namespace this is about, or `_` for a cluster-wide thing."""
        return str(getattr(self, "namespace", "") or CLUSTER_SCOPE)

    @property
    def key(self) -> str:
        """The name this is about; the last subject token."""
        return str(getattr(self, "name", "") or CLUSTER_SCOPE)


class Fact(Message):
    """Something that happened, published only by its owner's relay. A wake-up: state decides."""

    AGGREGATE: ClassVar[str]
    """First variable token of the subject, e.g. `device`."""
    FACT: ClassVar[str]
    """Second one, past tense, e.g. `found`."""


class Command(Message):
    """An order to one service, from another service's outbox."""

    SERVICE: ClassVar[str]
    COMMAND: ClassVar[str]


class Report(Message):
    """What an agent sees on its node; carries the agent's incarnation and a rising sequence."""

    SERVICE: ClassVar[str]
    WHAT: ClassVar[str]
    node: str
    incarnation: str
    sequence: int


class Query(Message):
    """A question, answered over core NATS."""

    SERVICE: ClassVar[str]
    QUESTION: ClassVar[str]
    ANSWER: ClassVar[type[Message]]
    PER_NODE: ClassVar[Literal["no", "asker", "answerer"]] = "no"
    """`asker`: a node asks (subject ends in its name); `answerer`: the node's agent answers."""

    @property
    def key(self) -> str:
        """The node, for questions that have one."""
        return str(getattr(self, "node", "") or CLUSTER_SCOPE)


class Telemetry(Message):
    """Lossy samples over core NATS: heartbeats, progress, cache blocks."""

    WHAT: ClassVar[str]
    source: str
    """The node or service that speaks; the last subject token."""


State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Decision(Generic[State]):
    """What a pure `decide` wants: the next state (None = leave as it is), messages to send, and always a reason."""

    reason: str
    state: State | None = None
    facts: tuple[Fact, ...] = ()
    commands: tuple[Command, ...] = ()
    requeue_after: float | None = None
    """Seconds after which to look again although nothing changed."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Structured detail for the canonical log line."""
