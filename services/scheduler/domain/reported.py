"""What a node's report of its Pods changes in the node's ledger: opened in this epoch, orphans charged and freed.

Reports are about moments, and arrive late, twice and out of order, at any copy: one that is older than what the ledger
has taken is dropped, because what ran then says nothing about now. Pure. Read next: orphans.py, ledger.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from services.scheduler.domain import ledger
from services.scheduler.domain.ledger import EPOCH, ORPHAN_PREFIX, REPORTED, Holding, Step
from services.scheduler.domain.orphans import Owned, holding_of, orphans_of
from shared.reports import PodsReported
from shared.resources.device import OrphanHolding


@dataclass(frozen=True, slots=True)
class Taken:
    """What a report changes in a node's ledger."""

    fields: Mapping[str, str | None]
    """Fields of the hash to set; None removes one."""
    steps: tuple[Step, ...]
    orphans: Mapping[str, OrphanHolding]
    """Those that there are from now on, by Pod uid."""
    opened: bool
    """The node was closed before: it had not reported under this epoch."""
    freed: tuple[Holding, ...]

    @property
    def changes(self) -> bool:
        """More than the number of the report."""
        return self.opened or any(name.startswith(ORPHAN_PREFIX) for name in self.fields)


def orphans_in(stored: Mapping[str, str]) -> dict[str, OrphanHolding]:
    """The orphans that a ledger hash holds, by Pod uid."""
    return {
        name.removeprefix(ORPHAN_PREFIX): OrphanHolding.model_validate_json(value)
        for name, value in sorted(stored.items())
        if name.startswith(ORPHAN_PREFIX)
    }


def is_stale(report: PodsReported, stored: Mapping[str, str]) -> bool:
    """Whether the ledger has taken a newer one. Numbers count within an epoch: what a new one starts with is believed."""
    return stored.get(EPOCH) == report.epoch and report.sequence < int(stored.get(REPORTED, "0"))


def taken(report: PodsReported, stored: Mapping[str, str], owned: Mapping[tuple[str, str], Owned]) -> Taken:
    """What to write for a report that is not stale; `owned` is what is admitted there by (namespace, name)."""
    before, after = orphans_in(stored), orphans_of(report.pods, owned)
    opened = stored.get(EPOCH) != report.epoch
    number = str(report.sequence)
    fields: dict[str, str | None] = {} if stored.get(REPORTED) == number else {REPORTED: number}
    if opened:
        fields[EPOCH] = report.epoch
    steps: list[Step] = []
    freed: list[Holding] = []
    for uid in sorted(before.keys() | after.keys()):
        old, new = before.get(uid), after.get(uid)
        if old == new:
            continue
        if old is not None:
            freed.append(holding_of(report.node, old))
            steps += ledger.release(freed[-1])
        if new is not None:
            steps += ledger.charge(holding_of(report.node, new))
        fields[f"{ORPHAN_PREFIX}{uid}"] = (
            orjson.dumps(new.model_dump(by_alias=True)).decode() if new is not None else None
        )
    return Taken(fields, tuple(steps), after, opened, tuple(freed))
