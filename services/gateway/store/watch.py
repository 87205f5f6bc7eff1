"""The gateway's one picture of all objects: lists are snapshots of it, watches follow it.

One DocumentCache over every kind, a ring of recent changes per kind, and the log of the store for watches that are
further behind. Owns when a watch must be answered 410. Must not write. Read next: ring.py, events.py.
"""

from __future__ import annotations

from services.gateway.domain.status import expired
from services.gateway.store.events import Events
from services.gateway.store.ring import DELETED, MODIFIED, Ring, Step
from shared.clock import Clock
from shared.resources.kinds import KINDS
from shared.store.cache import Change, DocumentCache
from shared.store.client import Store
from shared.store.documents import Document, LogEntry, TooOld

Documents = list[Document]
Steps = list[Step]

STORED_KINDS = tuple(kind for kind in KINDS if kind != "Event")
CATCH_UP_SECONDS = 3.0
"""How long a reader waits for a revision that another gateway has shown it."""
_PAGE = 2000
_LOG_STEPS = 20_000
"""A watch that is further behind is cheaper to list again."""


class WatchCache:
    """Reads of every kind. Documents are shared: treat them as frozen."""

    def __init__(self, store: Store, cache: DocumentCache, clock: Clock) -> None:
        self.cache = cache
        self.events = Events(clock, self._uid_of)
        self._store = store
        self._rings = {kind: Ring() for kind in STORED_KINDS}
        self._epoch = ""
        self._torn = False
        """The cache found a difference that no log entry told: no watch can go on over it."""
        cache.listen(self._changed)

    @property
    def ready(self) -> bool:
        """Whether everything is loaded."""
        return self.cache.ready

    def revision(self, kind: str) -> int:
        """Everything of a kind up to here is in."""
        return self.events.revision if kind == "Event" else self.cache.revision

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        """One object; None when there is none."""
        if kind == "Event":
            return self.events.get(namespace, name)
        return self.cache.get(kind, namespace, name)

    def list(self, kind: str, namespace: str | None = None) -> Documents:
        """The objects of a kind, of one namespace or all, as of `revision(kind)`."""
        return self.events.list(namespace) if kind == "Event" else self.cache.list(kind, namespace)

    def ring(self, kind: str) -> Ring:
        """The recent changes of a kind."""
        self._mend()
        return self.events.ring if kind == "Event" else self._rings[kind]

    async def reached(self, kind: str, revision: int, timeout: float = CATCH_UP_SECONDS) -> bool:
        """Wait until a revision of a kind is in; False when it is not within `timeout` seconds."""
        return self.events.revision >= revision if kind == "Event" else await self.cache.reached(revision, timeout)

    async def gone(self, document: Document, timeout: float = CATCH_UP_SECONDS) -> bool:
        """Wait until an object is no longer here under its uid."""
        ring = self.ring(document.kind)
        while True:
            found = self.get(document.kind, document.namespace, document.name)
            if found is None or found.uid != document.uid:
                return True
            if not await ring.grown(timeout):
                return False

    async def since(self, kind: str, revision: int) -> Steps:
        """All steps of a kind after a revision, from the ring or, further back, from the store's log.

        Raises:
            GpubusError: answered 410; the revision is too old, was lost with an epoch, or was never given out.
        """
        if not await self.reached(kind, revision):
            raise expired(f"resource version {revision} is not known here; list again")
        ring = self.ring(kind)
        if revision >= ring.floor or kind == "Event":
            return ring.after(revision)
        floor, generation = ring.floor, ring.generation
        steps = await self._from_log(kind, revision)
        if (self.ring(kind).floor, ring.generation) != (floor, generation):
            raise expired(f"changes since resource version {revision} come too quickly; list again")
        last = steps[-1].revision if steps else revision
        return [*steps, *ring.after(max(last, floor))]

    async def _from_log(self, kind: str, revision: int) -> Steps:
        steps: Steps = []
        while len(steps) < _LOG_STEPS:
            try:
                page = await self._store.log_since(revision, {kind}, _PAGE)
            except TooOld as error:
                raise expired(str(error)) from None
            steps += map(_step, page)
            if len(page) < _PAGE:
                # The cache may be a little behind the log: nothing it has not shown yet is told.
                return [step for step in steps if step.revision <= self.cache.revision]
            revision = page[-1].revision
        raise expired(f"too many changes since resource version {revision}; list again")

    def _changed(self, change: Change) -> None:
        if change.synthetic:
            self._torn = self._torn or self.cache.ready
            self._rings[change.kind].wake()
            return
        step = Step(change.document.revision, change.type, change.document, change.old, _labels(change.old))
        self._rings[change.kind].append(step)

    def _mend(self) -> None:
        if not self._torn and self.cache.epoch == self._epoch:
            return
        self._torn, self._epoch = False, self.cache.epoch
        for ring in self._rings.values():
            ring.reset(self.cache.revision)

    def _uid_of(self, kind: str, namespace: str, name: str) -> str:
        found = self.cache.get(kind, namespace, name) if kind in self._rings else None
        return found.uid if found is not None else ""


def _labels(document: Document | None) -> dict[str, str]:
    return dict(document.labels) if document is not None else {}


def _step(entry: LogEntry) -> Step:
    known = entry.type in {MODIFIED, DELETED}
    return Step(entry.revision, entry.type, entry.document, None, dict(entry.previous_labels) if known else {})
