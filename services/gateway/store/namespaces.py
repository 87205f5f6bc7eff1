"""The life of namespaces: those that exist from the start, and the end of those that are deleted.

Each owner deletes its own content when it hears of the deletion; the gateway deletes its own and lets the Namespace go
when nothing is left. Must not delete what others own. Read next: ../domain/rules.py.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from services.gateway.domain.phase import condition
from services.gateway.domain.rules import FINALIZER, PROTECTED, RULES
from services.gateway.store.watch import STORED_KINDS
from shared.clock import Clock, rfc3339
from shared.commands.objects import WriteObject
from shared.errors import GpubusError, Transient, from_dict
from shared.resources.access import SETTINGS, SETTINGS_NAMESPACE
from shared.resources.core import Namespace
from shared.resources.kinds import KINDS
from shared.store.cache import DELETED, Change, DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit, Delete, Document, Put
from shared.store.leases import Lease
from shared.store.objects import ObjectWriter
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

CONTENT_KINDS = tuple(kind for kind in STORED_KINDS if KINDS[kind].namespaced)
OWN_KINDS = tuple(kind for kind in CONTENT_KINDS if KINDS[kind].owner == "gateway")
RESYNC_SECONDS = 60.0
_REMAINING = "NamespaceContentRemaining"


class Namespaces:
    """Deletes content and, at the end, the namespace; any copy may, all by compare-and-set."""

    def __init__(self, store: Store, cache: DocumentCache, writer: ObjectWriter, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._writer = writer
        self._clock = clock
        self._stirred = asyncio.Event()
        cache.listen(self._changed)

    async def found(self) -> None:
        """Create what exists from the start: two namespaces and the settings with their defaults."""
        for name in PROTECTED:
            await self._create("Namespace", "", name, {})
        for name, value in SETTINGS.items():
            await self._create("Setting", SETTINGS_NAMESPACE, name, {"spec": {"value": value}})

    async def keep(self, lease: Lease) -> None:
        """Settle what is being deleted: when something of it went, and every minute; while the lease is held."""
        while lease.held:
            self._stirred.clear()
            for namespace in self._cache.list("Namespace"):
                if namespace.deleting:
                    await self.settle(namespace.name)
            await self.found()
            try:
                async with asyncio.timeout(RESYNC_SECONDS * random.uniform(0.8, 1.2)):  # noqa: S311 - spreads copies
                    await self._stirred.wait()
            except TimeoutError:
                continue

    async def settle(self, name: str) -> None:
        """Delete our content of a namespace that is being deleted, and the namespace when it is empty."""
        namespace = await self._store.get("Namespace", "", name)
        if namespace is None or not namespace.deleting:
            return
        await self._cache.reached(namespace.revision, 2.0)
        for kind in OWN_KINDS:
            for document in self._cache.list(kind, name):
                await self._delete(document)
        left = Counter({kind: len(self._cache.list(kind, name)) for kind in CONTENT_KINDS})
        left = +left
        try:
            await (self._say(namespace, left) if left else self._end(namespace))
        except Transient as error:
            log.info("namespace_settled_elsewhere", namespace=name, code=error.code.value)
            self._stirred.set()

    async def _end(self, namespace: Document) -> None:
        finalizers = namespace.body["metadata"].get("finalizers") or []
        rest = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
        key = (namespace.kind, "", namespace.name)
        if rest:
            # Somebody else's finalizer holds it; ours is done.
            body = {**namespace.body, "metadata": {**namespace.body["metadata"], "finalizers": rest}}
            if len(rest) != len(finalizers):
                await self._store.commit(Commit(puts=(Put(*key, body, namespace.revision),), release=True))
            return
        facts = RULES["Namespace"].facts(namespace.read(Namespace), None)
        await self._store.commit(Commit(deletes=(Delete(*key, namespace.revision),), facts=facts, release=True))
        log.info("namespace_removed", namespace=namespace.name)

    async def _say(self, namespace: Document, left: Mapping[str, int]) -> None:
        message = "left: " + ", ".join(f"{count} {KINDS[kind].plural}" for kind, count in sorted(left.items()))
        if condition(namespace.body, _REMAINING).get("message") == message:
            return
        told: dict[str, Any] = {
            "type": _REMAINING,
            "status": "True",
            "reason": "SomeResourcesRemain",
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        status = namespace.body.get("status") or {}
        others = [item for item in status.get("conditions") or () if item.get("type") != _REMAINING]
        body = {**namespace.body, "status": {**status, "conditions": [*others, told]}}
        put = Put(namespace.kind, "", namespace.name, body, namespace.revision)
        await self._store.commit(Commit(puts=(put,), release=True))

    async def _delete(self, document: Document) -> None:
        request = WriteObject(
            verb="delete", kind=document.kind, namespace=document.namespace, name=document.name, expected_uid=document.uid, user="system:gateway",
        )  # fmt: skip
        answer = await self._writer.write(request)
        if answer.error is not None and answer.error["code"] != "NotFound":
            error = from_dict(answer.error)
            log.warning("content_not_deleted", kind=document.kind, name=document.name, code=error.code.value)
            self._stirred.set()

    async def _create(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        if self._cache.ready and self._cache.get(kind, namespace, name) is not None:
            return
        named = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": name}, **body}
        request = WriteObject(
            verb="create", kind=kind, namespace=namespace, name=name, object=named, user="system:gateway"
        )
        answer = await self._writer.write(request)
        if answer.error is not None and answer.error["code"] != "AlreadyExists":
            raise _failed(kind, name, answer.error)

    def _changed(self, change: Change) -> None:
        if change.kind == "Namespace":
            if change.document.deleting or (change.type == DELETED and change.key[1] in PROTECTED):
                self._stirred.set()
            return
        place = self._cache.get("Namespace", "", change.key[0]) if change.key[0] else None
        gone_setting = change.kind == "Setting" and change.type == DELETED
        if gone_setting or (place is not None and place.deleting):
            self._stirred.set()


def _failed(kind: str, name: str, error: Mapping[str, Any]) -> GpubusError:
    found = from_dict(error)
    return type(found)(f"{kind} {name} cannot be created: {found.message}", found.causes, found.fields)
