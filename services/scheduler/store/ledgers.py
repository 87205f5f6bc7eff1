"""The ledger hashes: opened by what nodes report, mirrored into Devices.status, audited against the documents.

The hash is what commits check; the mirror is what every copy and every user sees. Read next: ../domain/ledger.py,
../domain/reported.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.domain import ledger
from services.scheduler.domain.ledger import CHANGES, EPOCH, REPORTED, Difference
from services.scheduler.domain.orphans import Owned, holding_of
from services.scheduler.domain.reported import Taken, is_stale, orphans_in, taken
from services.scheduler.projections.board import Board
from services.scheduler.store.admissions import changed, counters
from services.scheduler.store.view import CATCH_UP_SECONDS, caught_up
from services.scheduler.store.writes import commit, decided
from shared.errors import Raced
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

log = get_logger(__name__)
Hash = Mapping[str, str]


class LedgerStore:
    """Ledgers of all nodes."""

    def __init__(self, store: Store, board: Board) -> None:
        self._store = store
        self._board = board

    async def report(self, report: PodsReported) -> str:
        """Take what runs on a node: open its ledger in this epoch, charge and free orphans. Why, in one word.

        Raises:
            Raced, Unavailable: others write there too, or the documents could not be read up to now; take it again.
        """
        if report.epoch != self._store.epoch:
            await self._store.recover()  # the agent may have heard of a new epoch before this copy
        if report.epoch != self._store.epoch:
            return "OtherEpoch"
        return await decided(self._store, self._board.cache, lambda: self._take(report))

    async def _take(self, report: PodsReported) -> str:
        key = keys.ledger(report.node)
        stored = await self._store.read_hash(key)
        if is_stale(report, stored):
            return "Stale"
        if report.pods:  # an admission, or its end, that this copy has not heard of yet would mislead
            await caught_up(self._store, self._board.cache)
        change = taken(report, stored, self._owned(report.node))
        put = self._mirrored(report.node, report.epoch, list(change.orphans.values())) if change.changes else None
        if change.fields:
            same = [Require.equals(key, name, stored.get(name)) for name in (REPORTED, CHANGES)]
            await commit(
                self._store,
                Commit(
                    puts=(put,) if put is not None else (),
                    assigns=[Assign(key, *item) for item in change.fields.items()],
                    counters=[*counters(change.steps), changed(report.node)] if change.changes else (),
                    requires=same,
                    facts=self._freed(report.node, change),
                    epoch=report.epoch,
                ),
            )
        if change.changes:
            log.info("node_reported", node=report.node, opened=change.opened, orphans=sorted(change.orphans))
        if put is None:
            await self.mirror(report.node)
        return "Applied" if change.changes else "NothingChanged"

    def _owned(self, node: str) -> dict[tuple[str, str], Owned]:
        return {
            key: Owned(key[0], key[1], frozenset(holding.cards)) for key, holding in self._board.nodes.holdings_on(node)
        }

    def _freed(self, node: str, change: Taken) -> list[Fact]:
        if not change.opened and not change.freed:
            return []
        reason = "NodeReported" if change.opened else "OrphanStopped"
        cards = [card for holding in change.freed for card in holding.cards]
        return [
            CapacityFreed(name=key.name, node=node, devices=cards, reason=reason)
            for key in self._board.nodes.pools_of(node)
        ]

    async def mirror(self, node: str) -> None:
        """Bring Devices.status up to what the ledger says of the node's epoch and orphans.

        Discovery writes the same document; whoever comes second reads again.
        """
        try:
            await decided(self._store, self._board.cache, lambda: self._mirror(node))
        except Raced as error:
            log.info("mirror_left_to_audit", node=node, error_text=str(error))

    async def _mirror(self, node: str) -> None:
        key = keys.ledger(node)
        stored = await self._store.read_hash(key)
        epoch, orphans = stored.get(EPOCH, ""), list(orphans_in(stored).values())
        known = self._board.cache.get("Devices", "", node) is not None
        put = self._mirrored(node, epoch, orphans) if known else await self._first(node, epoch, orphans)
        if put is None or await self._store.get("Node", "", node) is None:
            return
        guards = (Require.exists("Node", "", node), Require.equals(key, CHANGES, stored.get(CHANGES)))
        done = await commit(self._store, Commit(puts=(put,), requires=guards))
        await self._board.cache.reached(done.revisions[-1], CATCH_UP_SECONDS)

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

        What is held stays charged. A node on which nothing was held may come back as it went: nothing runs there. The
        numbers of its reports begin anew: another host may take the name.
        """
        await decided(self._store, self._board.cache, lambda: self._close(node))

    async def _close(self, node: str) -> None:
        key = keys.ledger(node)
        stored = await self._store.read_hash(key)
        if not stored or await self._store.get("Node", "", node) is not None:
            return  # a node of that name has come back, and its agent tells what runs
        forgotten = [name for name in (EPOCH, REPORTED) if name in stored and (name == REPORTED or _counted(stored))]
        if not forgotten:
            return
        guards = (
            Require.equals(key, CHANGES, stored.get(CHANGES)),
            Require.equals(keys.doc("Node", "", node), "uid", None),
        )
        assigns = [Assign(key, name, None) for name in forgotten]
        await commit(self._store, Commit(assigns=assigns, counters=(changed(node),), requires=guards))

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
        for orphan in orphans_in(stored).values():
            held.add(holding_of(node, orphan))
        differences = ledger.compare(stored, held.amounts())
        if differences:
            repairs = [Assign(key, found.field, str(found.held) if found.held else None) for found in differences]
            guard = Require.equals(key, CHANGES, stored.get(CHANGES))
            repair = Commit(assigns=repairs, counters=(changed(node),), requires=(guard,), release=True)
            await commit(self._store, repair)
            shown = [f"{found.field}: {found.stored} -> {found.held}" for found in differences]
            log.warning("ledger_repaired", node=node, differences=shown)
        if self._mirrored(node, stored.get(EPOCH, ""), list(orphans_in(stored).values())) is not None:
            await self.mirror(node)
        return differences


def _counted(stored: Hash) -> bool:
    return any(value not in {"", "0"} for name, value in stored.items() if name not in {EPOCH, CHANGES, REPORTED})
