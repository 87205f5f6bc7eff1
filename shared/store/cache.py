"""An in-memory copy of some kinds, kept fresh from the log: what handlers and loops read.

Owns when it must be loaded anew (a new epoch, a hole in the log) and tells listeners the difference then.
Must not write. Read next: shared/store/log.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from shared.errors import Transient
from shared.store import log
from shared.store.documents import Document, Snapshot
from shared.telemetry.logging import get_logger

if TYPE_CHECKING:
    from shared.store.client import Store

R = TypeVar("R", bound=BaseModel)
Key = tuple[str, str]

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_BLOCK_MS = 10_000
"""An idle cache asks this seldom; a change wakes it at once."""
_PAGE = 500
_PAUSE_SECONDS = 0.5
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """One step from the old copy to the new."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    kind: str
    key: Key
    """(namespace, name)."""
    document: Document
    """The new state; of a deleted document the last one (with the deletion's revision when the log told it)."""
    old: Document | None
    synthetic: bool = False
    """Found by comparing snapshots, not read from the log: at the first load, after a hole, in a new epoch."""


class DocumentCache:
    """Run `run()` as a loop; read after `synced()`. Documents and models are shared: treat them as frozen."""

    def __init__(self, store: Store, kinds: Collection[str]) -> None:
        self.kinds = tuple(kinds)
        self.epoch = ""
        self.revision = 0
        """Everything up to here is in."""
        self._store = store
        self._documents: dict[str, dict[Key, Document]] = {kind: {} for kind in self.kinds}
        self._sorted: dict[str, list[Document] | None] = {}
        self._models: dict[tuple[str, Key], dict[type[BaseModel], BaseModel]] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._loaded = asyncio.Event()
        self._waiters: set[tuple[int, asyncio.Future[None]]] = set()

    async def run(self) -> None:
        """Load, follow the log, load again when it cannot be followed; for ever."""
        while True:
            try:
                self._load(await self._store.snapshot(self.kinds))
                _log.info("cache_loaded", kinds=",".join(self.kinds), revision=self.revision, epoch=self.epoch)
                await self._follow()
            except Transient as error:
                _log.warning("cache_interrupted", code=error.code.value, reason=error.message)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def synced(self) -> None:
        """Wait until the first load is in."""
        await self._loaded.wait()

    @property
    def ready(self) -> bool:
        """Whether the first load is in."""
        return self._loaded.is_set()

    async def reached(self, revision: int, timeout: float) -> bool:
        """Wait until a revision is in; False when it was not within `timeout` seconds."""
        if self.revision >= revision:
            return True
        waiter = (revision, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter[1]
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        """One document; None when there is none."""
        return self._documents[kind].get((namespace, name))

    def list(self, kind: str, namespace: str | None = None) -> list[Document]:
        """The documents of a kind, of one namespace or all, ordered by namespace and name."""
        ordered = self._sorted.get(kind)
        if ordered is None:
            found = self._documents[kind]
            ordered = self._sorted[kind] = [found[key] for key in sorted(found)]
        return ordered.copy() if namespace is None else [d for d in ordered if d.namespace == namespace]

    def read(self, kind: str, namespace: str, name: str, model: type[R]) -> R | None:
        """One document as a typed view, built once per revision; None when there is none."""
        document = self.get(kind, namespace, name)
        if document is None:
            return None
        kept = self._models.setdefault((kind, (namespace, name)), {})
        view = kept.get(model)
        if view is None:
            view = kept[model] = document.read(model)
        assert isinstance(view, model)
        return view

    def read_all(self, kind: str, model: type[R], namespace: str | None = None) -> Iterable[R]:
        """Typed views of a kind, ordered by namespace and name."""
        for document in self.list(kind, namespace):
            view = self.read(kind, document.namespace, document.name, model)
            if view is not None:
                yield view

    def listen(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back for each change, in order, after it is in the copy; returns the function that ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def _load(self, snapshot: Snapshot) -> None:
        self.epoch = snapshot.epoch
        new: dict[str, dict[Key, Document]] = {kind: {} for kind in self.kinds}
        for document in snapshot.documents:
            new[document.kind][document.namespace, document.name] = document
        changes = [change for kind in self.kinds for change in _difference(kind, self._documents[kind], new[kind])]
        for change in changes:
            self._apply(change)
        self._advance(snapshot.revision)
        self._loaded.set()

    async def _follow(self) -> None:
        """Returns when the copy must be loaded anew."""
        while True:
            items = await log.tail(self._store.connection, self.revision, _PAGE, _BLOCK_MS)
            if items and log.previous_of(items[0]) > self.revision:
                return
            for item in items:
                if log.type_of(item) == log.EPOCH:
                    return
                self._take(item)

    def _take(self, item: Any) -> None:
        kind, revision = log.kind_of(item), log.revision_of(item)
        if kind in self._documents:
            entry = log.entry(item)
            key = (entry.namespace, entry.name)
            self._apply(Change(entry.type, kind, key, entry.document, self._documents[kind].get(key)))
        self._store.saw(revision)
        self._advance(revision)

    def _apply(self, change: Change) -> None:
        found = self._documents[change.kind]
        self._sorted[change.kind] = None
        self._models.pop((change.kind, change.key), None)
        if change.type == DELETED:
            found.pop(change.key, None)
        else:
            found[change.key] = change.document
        for listener in self._listeners:
            listener(change)

    def _advance(self, revision: int) -> None:
        self.revision = revision
        for wanted, future in self._waiters:
            if wanted <= revision and not future.done():
                future.set_result(None)


def _difference(kind: str, old: dict[Key, Document], new: dict[Key, Document]) -> Iterable[Change]:
    for key, document in old.items():
        if key not in new or new[key].uid != document.uid:
            yield Change(DELETED, kind, key, document, document, synthetic=True)
    for key, document in new.items():
        before = old.get(key)
        if before is None or before.uid != document.uid:
            yield Change(ADDED, kind, key, document, None, synthetic=True)
        elif before.revision != document.revision:
            yield Change(MODIFIED, kind, key, document, before, synthetic=True)
