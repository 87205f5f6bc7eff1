"""The ledger hashes: opened by what nodes report, mirrored into Devices.status, audited against the documents.

The hash is what commits check; the mirror is what every copy and every user sees. Read next: ../domain/ledger.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from services.scheduler.domain import ledger
from services.scheduler.domain.ledger import CHANGES, EPOCH, ORPHAN_PREFIX, Difference, Holding, Step
from services.scheduler.domain.orphans import Owned, holding_of, orphans_of
from services.scheduler.projections.board import Board
from services.scheduler.store.admissions import changed, counters
from services.scheduler.store.view import CATCH_UP_SECONDS, caught_up
from shared.errors import AlreadyExists, NotFound, Raced, Unavailable
from shared.events.pool import CapacityFreed
from shared.messages.base import Fact
from shared.reports import PodsReported
from shared.resources.base import Metadata, OwnerReference, is_true
from shared.resources.core import Node
from shared.resources.device import Devices, DevicesStatus, OrphanHolding
from shared.resources.kinds import WORKER
from shared.store import keys
from shared.store.client import Store
from shared.store.documents import Assign, Commit, Put, Require
from shared.telemetry.logging import get_logger

_ATTEMPTS = 5
log = get_logger(__name__)
Hash = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Reported:
    """What a report changes in a node's ledger."""

    assigns: list[Assign]
    steps: list[Step]
    opened: bool
    """The node was closed before: it had not reported under this epoch."""
    freed: list[Holding]


class LedgerStore:
    """Ledgers of all nodes."""

    def __init__(self, store: Store, board: Board) -> None:
        self._store = store
        self._board = board
        self._seen: dict[str, tuple[str, int]] = {}

    async def report(self, report: PodsReported) -> str:
        """Take what runs on a node: open its ledger in this epoch, charge and free orphans. Why, in one word.

        Raises:
            Unavailable: the documents could not be read up to now; take the report again.
        """
        if report.epoch != self._store.epoch:
            await self._store.recover()  # the agent may have heard of a new epoch before this copy
        if report.epoch != self._store.epoch:
            return "OtherEpoch"
        incarnation, sequence = self._seen.get(report.node, ("", 0))
        if incarnation == report.incarnation and report.sequence < sequence:
            return "Stale"
        for _ in range(_ATTEMPTS):
            try:
                reason = await self._take(report)
            except Raced:
                await caught_up(self._store, self._board.cache)
                continue
            self._seen[report.node] = (report.incarnation, report.sequence)
            return reason
        raise Unavailable(f"the ledger of node {report.node} changes too fast")

    async def _take(self, report: PodsReported) -> str:
        key = keys.ledger(report.node)
        stored = await self._store.read_hash(key)
        before = _orphans(stored)
        if report.pods:  # an admission, or its end, that this copy has not heard of yet would mislead
            await caught_up(self._store, self._board.cache)
        after = orphans_of(report.pods, self._owned(report.node))
        change = _reported(report, stored, before, after)
        if change.assigns:
            put = self._mirrored(report.node, report.epoch, list(after.values()))
            await self._store.commit(
                Commit(
                    puts=(put,) if put is not None else (),
                    assigns=change.assigns,
                    counters=[*counters(change.steps), changed(report.node)],
                    requires=(Require.equals(key, CHANGES, stored.get(CHANGES)),),
                    facts=self._freed(report.node, change),
                    epoch=report.epoch,
                )
            )
            log.info("node_reported", node=report.node, opened=change.opened, orphans=sorted(after))
            if put is not None:
                return "Applied"
        await self.mirror(report.node)
        return "Applied" if change.assigns else "NothingChanged"

    def _owned(self, node: str) -> dict[tuple[str, str], Owned]:
        return {
            key: Owned(key[0], key[1], frozenset(holding.cards)) for key, holding in self._board.nodes.holdings_on(node)
        }

    def _freed(self, node: str, change: _Reported) -> list[Fact]:
        if not change.opened and not change.freed:
            return []
        reason = "NodeReported" if change.opened else "OrphanStopped"
        cards = [card for holding in change.freed for card in holding.cards]
        return [
            CapacityFreed(name=key.name, node=node, devices=cards, reason=reason)
            for key in self._board.nodes.pools_of(node)
        ]

    async def mirror(self, node: str) -> None:
        """Bring Devices.status up to what the ledger says of the node's epoch and orphans."""
        for _ in range(_ATTEMPTS):
            stored = await self._store.read_hash(keys.ledger(node))
            epoch, orphans = stored.get(EPOCH, ""), list(_orphans(stored).values())
            known = self._board.cache.get("Devices", "", node) is not None
            put = self._mirrored(node, epoch, orphans) if known else await self._first(node, epoch, orphans)
            if put is None:
                return
            try:
                done = await self._store.commit(Commit(puts=(put,), requires=(Require.exists("Node", "", node),)))
            except (Raced, AlreadyExists):
                await caught_up(self._store, self._board.cache)
                continue
            except NotFound:
                return
            await self._board.cache.reached(done.revisions[-1], CATCH_UP_SECONDS)
            return
        log.info("mirror_left_to_resync", node=node)

    def _mirrored(self, node: str, epoch: str, orphans: list[OrphanHolding]) -> Put | None:
        """The Devices document with what the ledger says; None when it says so already, or is not there yet."""
        document = self._board.cache.get("Devices", "", node)
        if document is None:
            return None
        status = document.body.get("status") or {}
        new = {**status, "ledgerEpoch": epoch, "orphans": [orphan.model_dump(by_alias=True) for orphan in orphans]}
        if (status.get("ledgerEpoch", ""), status.get("orphans") or []) == (epoch, new["orphans"]):
            return None
        return Put("Devices", "", node, {**document.body, "status": new}, document.revision)

    async def _first(self, name: str, epoch: str, orphans: list[OrphanHolding]) -> Put | None:
        """A node without cards has no Devices object until it has told what runs there."""
        document = await self._store.get("Node", "", name)
        node = document.read(Node) if document is not None else None
        if not epoch or node is None or node.deleting or not is_true(node.status.conditions, "Ready"):
            return None
        owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=node.uid, controller=True)
        metadata = Metadata(name=name, owner_references=[owner])
        status = DevicesStatus(ledger_epoch=epoch, orphans=orphans)
        devices = Devices(api_version=WORKER, kind="Devices", metadata=metadata, status=status)
        return Put("Devices", "", name, devices.to_json(), None)

    async def close(self, node: str) -> None:
        """A node that was removed while something is held there: closed until it tells anew what runs.

        What is held stays charged. A node on which nothing was held may come back as it went: nothing runs there.
        """
        key = keys.ledger(node)
        stored = await self._store.read_hash(key)
        if EPOCH not in stored or not _counted(stored):
            return
        guards = (
            Require.equals(key, CHANGES, stored.get(CHANGES)),
            Require.equals(keys.doc("Node", "", node), "uid", None),  # a node of that name may have come back
        )
        try:
            await self._store.commit(Commit(assigns=(Assign(key, EPOCH, None),), requires=guards))
        except Raced:
            log.info("ledger_left_open", node=node)

    async def audit(self, node: str) -> list[Difference]:
        """Compare one ledger with what documents and orphans hold, and set right what differs.

        The order of reading makes a race harmless: hash first, then documents at least as new; any commit in between
        has counted itself in the hash, and then the repair is refused.

        Raises:
            Raced: somebody changed it meanwhile; audit again. Unavailable: the documents could not be read up to now.
        """
        key = keys.ledger(node)
        stored = await self._store.read_hash(key)
        await caught_up(self._store, self._board.cache)
        held = ledger.Used()
        for _, holding in self._board.nodes.holdings_on(node):
            held.add(holding)
        for orphan in _orphans(stored).values():
            held.add(holding_of(node, orphan))
        differences = ledger.compare(stored, held.amounts())
        if differences:
            repairs = [Assign(key, found.field, str(found.held) if found.held else None) for found in differences]
            guard = Require.equals(key, CHANGES, stored.get(CHANGES))
            commit = Commit(assigns=repairs, counters=(changed(node),), requires=(guard,), release=True)
            await self._store.commit(commit)
            shown = [f"{found.field}: {found.stored} -> {found.held}" for found in differences]
            log.warning("ledger_repaired", node=node, differences=shown)
        if stored.get(EPOCH, "") != self._board.nodes.epoch_of(node):
            await self.mirror(node)
        return differences


def _reported(
    report: PodsReported, stored: Hash, before: Mapping[str, OrphanHolding], after: Mapping[str, OrphanHolding]
) -> _Reported:
    key, node = keys.ledger(report.node), report.node
    opened = stored.get(EPOCH) != report.epoch
    assigns = [Assign(key, EPOCH, report.epoch)] if opened else []
    steps: list[Step] = []
    freed: list[Holding] = []
    for uid in sorted(before.keys() | after.keys()):
        old, new = before.get(uid), after.get(uid)
        if old == new:
            continue
        if old is not None:
            freed.append(holding_of(node, old))
            steps += ledger.release(freed[-1])
        if new is not None:
            steps += ledger.charge(holding_of(node, new))
        value = orjson.dumps(new.model_dump(by_alias=True)).decode() if new is not None else None
        assigns.append(Assign(key, f"{ORPHAN_PREFIX}{uid}", value))
    return _Reported(assigns, steps, opened, freed)


def _orphans(stored: Hash) -> dict[str, OrphanHolding]:
    return {
        name.removeprefix(ORPHAN_PREFIX): OrphanHolding.model_validate_json(value)
        for name, value in sorted(stored.items())
        if name.startswith(ORPHAN_PREFIX)
    }


def _counted(stored: Hash) -> bool:
    return any(value not in {"", "0"} for name, value in stored.items() if name not in {EPOCH, CHANGES})
