"""Which pools one copy of the service holds: an even share, given up when more copies come, grown when some go.

Pure. Read next: ../loops.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def share(pools: int, copies: int) -> int:
    """How many pools one of `copies` live copies holds at most."""
    return -(-pools // max(copies, 1))


def surplus(held: Sequence[str], pools: Collection[str], copies: int) -> list[str]:
    """Pools to give up: those that are gone, then the last ones over the share."""
    gone = [name for name in held if name not in pools]
    kept = [name for name in held if name in pools]
    return [*gone, *kept[share(len(pools), copies) :]]


def wanted(held: Collection[str], pools: Sequence[str], copies: int) -> list[str]:
    """Pools to try to take, in order; empty when the share is full."""
    if len(held) >= share(len(pools), copies):
        return []
    return [name for name in pools if name not in held]
