"""What simulated engines cache, as telemetry for the prefix index: collected, then one message a replica and moment.

Lossy like all telemetry; a number that is missing makes the index forget the replica. Read next: gpubus/fleet.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.bus.client import BusClient
from shared.queries import CacheBlocks

GATHER_SECONDS = 0.1
"""Changes wait this long for company; nothing wakes up while nothing changes."""

Changed = Callable[[list[list[int]], list[int]], None]


@dataclass(slots=True)
class _Replica:
    node: str
    bus: BusClient
    model: str
    block_size: int
    sequence: int = 0
    stored: list[list[int]] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)


class BlockFeed:
    """All replicas of the fleet."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Replica] = {}
        self._something = asyncio.Event()

    def of_node(self, node: str, bus: BusClient) -> Callable[[str, str, int], Changed]:
        """For one node's runtime: (replica, model, block size) -> where its changes go."""

        def of_replica(replica: str, model: str, block_size: int) -> Changed:
            known = _Replica(node, bus, model, block_size)

            def changed(stored: list[list[int]], removed: list[int]) -> None:
                known.stored = _without([*known.stored, *stored], removed)
                known.removed += removed
                self._waiting[replica] = known
                self._something.set()

            return changed

        return of_replica

    async def run(self) -> None:
        """Send what changed; for ever."""
        while True:
            await self._something.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._something.clear()
            waiting, self._waiting = self._waiting, {}
            for replica, known in waiting.items():
                known.sequence += 1
                stored, known.stored = known.stored, []
                removed, known.removed = known.removed, []
                await known.bus.tell(
                    CacheBlocks(
                        source=known.node,
                        replica=replica,
                        model=known.model,
                        block_size=known.block_size,
                        sequence=known.sequence,
                        stored=stored,
                        removed=removed,
                    )
                )


def _without(chains: list[list[int]], removed: list[int]) -> list[list[int]]:
    """Chains without blocks that are gone again: a message's removals come before what it stores."""
    gone = set(removed)
    if not gone:
        return chains
    return [[told[0], *(block for block in told[1:] if block not in gone)] for told in chains]
