"""What is stored and how a write is described: documents, snapshots, commits and the errors only a store has.

Pure data; must not talk to Redis. Read next: shared/store/client.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from shared.errors import Aborted, FailedPrecondition, Raced
from shared.messages.base import Command, Fact
from shared.resources.base import from_validation, read_tolerant
from shared.store.patching import patched

if TYPE_CHECKING:
    from shared.store.leases import Lease

R = TypeVar("R", bound=BaseModel)

ANY: Final = -2
"""Expectation of a put or delete: whatever revision is there."""
MAX_DOCUMENTS = 200
"""Documents in one commit (contract): a script must not hold the server for long."""


class TooOld(Aborted):
    """The log no longer holds (or never held) everything after the asked revision: list again (HTTP 410 Gone)."""


class LeaseLost(Raced):
    """The commit's lease expired or has another holder; whoever holds it now decides."""


class StaleEpoch(Raced):
    """The store lost writes or failed over since the decision's state was read: reload and decide again."""


@dataclass(frozen=True, slots=True)
class Document:
    """One stored object. `body` carries no resourceVersion; treat it as frozen, it is shared between readers."""

    kind: str
    namespace: str
    name: str
    uid: str
    revision: int
    schema: int
    body: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str]:
        """(kind, namespace, name)."""
        return (self.kind, self.namespace, self.name)

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels."""
        labels: Mapping[str, str] = (self.body.get("metadata") or {}).get("labels") or {}
        return labels

    @property
    def deleting(self) -> bool:
        """A deletion was asked for and finalizers still hold it."""
        return bool((self.body.get("metadata") or {}).get("deletionTimestamp"))

    def json(self) -> dict[str, Any]:
        """The body as clients see it: with metadata.resourceVersion."""
        metadata = {**(self.body.get("metadata") or {}), "resourceVersion": str(self.revision)}
        return {**self.body, "metadata": metadata}

    def read(self, model: type[R]) -> R:
        """A typed view; fields this version does not know are left out of it (and kept by `patched`).

        Raises:
            FailedPrecondition: what is stored does not fit the model; someone changed it by hand.
        """
        try:
            return read_tolerant(model, self.json())
        except ValidationError as error:
            where = f"{self.kind} {self.namespace}/{self.name}"
            raise FailedPrecondition(f"stored {where} cannot be read: {from_validation(error)}") from error

    def patched(self, model: BaseModel) -> dict[str, Any]:
        """The body with the fields that the model knows replaced by its values; unknown stored fields stay."""
        return patched(self.body, model)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All documents of some kinds at one instant."""

    revision: int
    epoch: str
    documents: tuple[Document, ...]

    def of(self, kind: str) -> tuple[Document, ...]:
        """The documents of one kind, ordered by namespace and name."""
        return tuple(document for document in self.documents if document.kind == kind)


@dataclass(frozen=True, slots=True)
class Put:
    """Write a document. `expect`: None = must not exist (AlreadyExists), a revision = that one (Raced), ANY.

    A new document without metadata.uid, creationTimestamp or generation gets them.
    """

    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]
    expect: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document now; missing is NotFound with ANY, Raced with a revision."""

    kind: str
    namespace: str
    name: str
    expect: int = ANY


@dataclass(frozen=True, slots=True)
class Counter:
    """Add to an integer in a hash. Leaving [floor, ceiling] refuses the whole commit with Raced."""

    key: str
    field: str
    delta: int
    floor: int | None = 0
    ceiling: int | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """Set (or, with None, remove) a hash field. The commit needs a lease or an expected revision to order it."""

    key: str
    field: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Require:
    """A condition checked inside the commit; build with the class methods."""

    what: str
    key: tuple[str, str, str]
    value: str | int | None = None

    @classmethod
    def exists(cls, kind: str, namespace: str, name: str) -> Require:
        """The document exists; else NotFound."""
        return cls("exists", (kind, namespace, name))

    @classmethod
    def revision(cls, kind: str, namespace: str, name: str, revision: int) -> Require:
        """The document has that revision; else Raced."""
        return cls("revision", (kind, namespace, name), revision)

    @classmethod
    def equals(cls, hash_key: str, hash_field: str, value: str | None) -> Require:
        """The hash field has that value (None: is absent); else Raced."""
        return cls("equals", (hash_key, hash_field, ""), value)


@dataclass(frozen=True, slots=True)
class InboxMark:
    """Remembers that a handler has taken a message, and what it answered (15 minutes)."""

    handler: str
    message_id: str
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class About:
    """A message with the document it speaks about: an index into puts then deletes of the commit."""

    message: Fact | Command
    document: int
    correlation_id: str = ""
    """The operation it belongs to, where one commit speaks for several; the current one's when empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One atomic write: everything in it happens, or nothing does.

    `facts` and `commands` go to the owner's outbox. A fact speaks with the revision of the last document unless
    wrapped in `About`. `release` marks commits that free things: they may use the last fifth of the outbox and
    pass when memory is full. `deadline_us` is Redis time. `epoch` is that of the state the decision was made on
    (`snapshot.epoch`, `cache.epoch`); the store's current one when left out.
    """

    puts: Sequence[Put] = ()
    deletes: Sequence[Delete] = ()
    counters: Sequence[Counter] = ()
    assigns: Sequence[Assign] = ()
    requires: Sequence[Require] = ()
    facts: Sequence[Fact | About] = ()
    commands: Sequence[Command | About] = ()
    mark: InboxMark | None = None
    lease: Lease | None = None
    release: bool = False
    deadline_us: int | None = None
    epoch: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did.

    `duplicate`: the inbox already had the mark; nothing was written now, `revisions` and `answer` are the first ones.
    """

    revisions: tuple[int, ...] = ()
    """Of puts then deletes, in order."""
    duplicate: bool = False
    answer: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One written document as the log has it."""

    revision: int
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    """ADDED, MODIFIED or DELETED; EPOCH marks the start of a new epoch and has no document."""
    document: Document
    """The whole document; of a deleted one the last state, with the deletion's revision."""
    previous_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """(kind, namespace, name)."""
        return (self.kind, self.namespace, self.name)
