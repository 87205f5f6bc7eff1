"""Node and Devices documents in domain types, and the commits that change them.

Must not decide. Read next: handlers.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shared.errors import AlreadyExists, Raced
from shared.faults import point
from shared.messages.base import Fact
from shared.resources.base import Resource
from shared.resources.core import Node
from shared.resources.device import Devices
from shared.store.client import Store
from shared.store.documents import About, Commit, Committed, Delete, Document, InboxMark, Put
from shared.store.leases import Lease

T = TypeVar("T")

_ATTEMPTS = 5
_JITTER_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of one node, as of one read."""

    name: str
    node_document: Document | None
    devices_document: Document | None
    node: Node | None
    devices: Devices | None


class NodeStore:
    """Reads and writes nodes by name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def epoch(self) -> str:
        """The store's epoch."""
        return self._store.epoch

    async def load(self, name: str) -> Stored:
        """The node and its devices."""
        found = await self._store.get_many([("Node", "", name), ("Devices", "", name)])
        node, devices = found["Node", "", name], found["Devices", "", name]
        return Stored(
            name, node, devices, node.read(Node) if node else None, devices.read(Devices) if devices else None
        )

    async def load_nodes(self, names: Sequence[str]) -> Mapping[str, tuple[Document, Node]]:
        """Those of the named nodes that exist."""
        found = await self._store.get_many([("Node", "", name) for name in names])
        return {document.name: (document, document.read(Node)) for document in found.values() if document}

    async def write(
        self,
        stored: Stored,
        *,
        node: Node | None = None,
        devices: Devices | None = None,
        node_facts: Sequence[Fact] = (),
        device_facts: Sequence[Fact] = (),
        mark: InboxMark | None = None,
    ) -> Committed:
        """Write what changed, with the facts of each document."""
        puts: list[Put] = []
        facts: list[Fact | About] = []
        for resource, document, about in (
            (node, stored.node_document, node_facts),
            (devices, stored.devices_document, device_facts),
        ):
            if resource is not None:
                puts.append(_put(resource, document))
            # A fact about a document that stays speaks with the revision of the one that was written.
            facts += [About(fact, len(puts) - 1) for fact in about]
        point("discovery.before-commit")
        done = await self._store.commit(Commit(puts=puts, facts=facts, mark=mark))
        point("discovery.after-commit")
        return done

    async def write_nodes(self, changes: Sequence[tuple[Document, Node, Sequence[Fact]]], lease: Lease) -> None:
        """Several nodes in one commit, under the sweeper's lease."""
        puts = [_put(node, document) for document, node, _ in changes]
        facts = [About(fact, position) for position, (_, _, about) in enumerate(changes) for fact in about]
        await self._store.commit(Commit(puts=puts, facts=facts, lease=lease, epoch=self._store.epoch))

    async def remove_devices(self, stored: Stored, facts: Sequence[Fact]) -> None:
        """Remove the Devices of a node that is gone."""
        document = stored.devices_document
        assert document is not None, "only stored devices are removed"
        delete = Delete("Devices", "", stored.name, document.revision)
        await self._store.commit(Commit(deletes=(delete,), facts=tuple(facts), release=True))

    async def orphans(self) -> list[str]:
        """Names of Devices without their Node."""
        taken = await self._store.snapshot(["Node", "Devices"])
        nodes = {document.name for document in taken.of("Node")}
        return [document.name for document in taken.of("Devices") if document.name not in nodes]


async def decided(attempt: Callable[[], Awaitable[T]]) -> T:
    """Load, decide, commit; again when another writer was faster, five times at most."""
    for left in range(_ATTEMPTS - 1, 0, -1):
        try:
            return await attempt()
        except (Raced, AlreadyExists):
            await asyncio.sleep(random.uniform(0, _JITTER_SECONDS * (_ATTEMPTS - left)))  # noqa: S311 - spreads retries
    return await attempt()


def _put(resource: Resource, document: Document | None) -> Put:
    body = document.patched(resource) if document else resource.to_json()
    return Put(resource.kind, "", resource.name, body, document.revision if document else None)
