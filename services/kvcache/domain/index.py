"""The prefix index: which replica holds which blocks, and who holds the longest start of a prompt.

Pure, one per process. Per (model, block size) a dictionary from block hash to a bit mask of replicas. A replica that
goes only loses its bit from the mask of live ones, which is instant; its bits are swept out of the table later, in
slices, and its place is used again after that. A wrong hit is worse than a miss: a holder counts only as far as it
holds every block from the first on, and a gap in a replica's sequence forgets all of it.
Read next: keys.py, which computes the hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

_SHED = 4
"""A table that alone is too large loses this fraction of its oldest blocks at once."""
SLICE = 20_000
"""Blocks swept in one step, about 3 ms."""


class Holder(NamedTuple):
    """One replica and how many blocks from the first on it holds."""

    replica: str
    blocks: int


@dataclass(slots=True)
class Table:
    """Blocks of one model at one block size."""

    blocks: dict[int, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """Live replica -> its bit."""
    live: int = 0
    dead: int = 0
    """Bits of replicas that went and may still be in the table."""

    def place(self, replica: str) -> int:
        """The bit of a replica, given on first use: the lowest that nobody has or had since the last sweep."""
        bit = self.places.get(replica)
        if bit is None:
            taken = self.live | self.dead
            bit = self.places[replica] = ~taken & (taken + 1)
            self.live |= bit
        return bit

    def drop(self, replica: str) -> bool:
        """Forget a replica; whether it was known."""
        bit = self.places.pop(replica, 0)
        self.live &= ~bit
        self.dead |= bit
        return bool(bit)


Scope = tuple[str, int]
"""(model, block size)."""


class PrefixIndex:
    """Everything one process knows of cached blocks."""

    def __init__(self, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self._tables: dict[Scope, Table] = {}
        self._sequences: dict[str, int] = {}

    @property
    def blocks(self) -> int:
        """Blocks in all tables."""
        return sum(len(table.blocks) for table in self._tables.values())

    @property
    def replicas(self) -> set[str]:
        """Every replica that holds something."""
        return {replica for table in self._tables.values() for replica in table.places}

    def follow(self, replica: str, sequence: int) -> bool:
        """Note a batch's number; False when some were missed or the replica began anew, and it has been forgotten."""
        before = self._sequences.get(replica)
        if before is not None and sequence != before + 1:
            self.drop(replica)
        self._sequences[replica] = sequence
        return before is None or sequence == before + 1

    def store(self, replica: str, scope: Scope, hashes: Sequence[int]) -> None:
        """A replica holds these blocks now."""
        table = self._table(scope)
        bit, blocks = table.place(replica), table.blocks
        if blocks.keys().isdisjoint(hashes):  # the common case, all in C
            blocks.update(dict.fromkeys(hashes, bit))
        else:
            get = blocks.get
            for block in hashes:
                blocks[block] = get(block, 0) | bit
        if self.blocks > self.max_blocks:
            self._shed()

    def store_chains(self, replica: str, scope: Scope, chains: Iterable[Sequence[int]]) -> None:
        """The same for chains as engines tell them: the parent's hash (or 0), then the blocks."""
        for told in chains:
            self.store(replica, scope, told[1:])

    def remove(self, replica: str, scope: Scope, hashes: Iterable[int]) -> None:
        """A replica no longer holds these blocks."""
        table = self._tables.get(scope)
        bit = table.places.get(replica, 0) if table else 0
        if table is None or not bit:
            return
        blocks, keep = table.blocks, ~bit
        for block in hashes:
            mask = blocks.get(block, 0)
            if mask & bit:
                if mask & keep:
                    blocks[block] = mask & keep
                else:
                    del blocks[block]

    def clear(self, replica: str, scope: Scope) -> None:
        """A replica's cache of one model is empty."""
        table = self._tables.get(scope)
        if table is not None:
            table.drop(replica)
            self._discard_empty(scope, table)

    def drop(self, replica: str) -> bool:
        """A replica is gone; whether it was known."""
        known = [scope for scope, table in self._tables.items() if table.drop(replica)]
        for scope in known:
            self._discard_empty(scope, self._tables[scope])
        self._sequences.pop(replica, None)
        return bool(known)

    def find(self, scope: Scope, hashes: Sequence[int]) -> list[Holder]:
        """Who holds how many blocks from the first on, longest first."""
        table = self._tables.get(scope)
        if table is None:
            return []
        get, active = table.blocks.get, table.live
        left: dict[int, int] = {}
        for depth, block in enumerate(hashes):
            mask = get(block, 0)
            if mask == active:
                continue  # the common case, without arithmetic
            mask &= active
            if mask != active:
                left[depth] = active & ~mask
                active = mask
                if not active:
                    break
        if active:
            left[len(hashes)] = active
        left.pop(0, None)
        return list(_holders(table, left))

    def swept(self) -> Iterator[int]:
        """Take the bits of gone replicas out of the tables, a slice at each step; yields blocks looked at.

        Whoever iterates may let other work run between steps.
        """
        for scope in list(self._tables):
            table = self._tables[scope]
            if table.dead:
                yield from self._sweep(scope, table)

    def _sweep(self, scope: Scope, table: Table) -> Iterator[int]:
        blocks, gone = table.blocks, table.dead
        hashes = list(blocks)
        for start in range(0, len(hashes), SLICE):
            part = hashes[start : start + SLICE]
            for block in part:
                mask = blocks.get(block, 0)
                if mask & gone:
                    if mask & ~gone:
                        blocks[block] = mask & ~gone
                    else:
                        del blocks[block]
            yield len(part)
            if self._tables.get(scope) is not table:
                return
        # Nothing stored since the start can have those bits: their places are free again.
        table.dead &= ~gone

    def _table(self, scope: Scope) -> Table:
        """The table, moved to the end: the first one is the one that was longest without news."""
        table = self._tables.pop(scope, None) or Table()
        self._tables[scope] = table
        return table

    def _shed(self) -> None:
        while self.blocks > self.max_blocks:
            scope, oldest = next(iter(self._tables.items()))
            if len(self._tables) > 1:
                del self._tables[scope]
                continue
            for block in list(islice(oldest.blocks, max(1, len(oldest.blocks) // _SHED))):
                del oldest.blocks[block]

    def _discard_empty(self, scope: Scope, table: Table) -> None:
        if not table.live:
            del self._tables[scope]


def _holders(table: Table, left: dict[int, int]) -> Iterator[Holder]:
    for depth in sorted(left, reverse=True):
        mask = left[depth]
        for replica, bit in table.places.items():
            if mask & bit:
                yield Holder(replica, depth)
