"""What an agent knows of its cards, maker by maker: a measurement that failed changes nothing.

Pure. Absent is not zero: before a maker's first success nothing is said of it. Read next: ../agent/node.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.discovery.domain.reading import sort_groups
from shared.resources.device import AcceleratorGroup


class KnownCards:
    """The last good reading of every maker."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[AcceleratorGroup, ...]] = {}

    def read(self, source: str, groups: Iterable[AcceleratorGroup]) -> None:
        """A pass that ran: what it did not find is gone."""
        self._groups[source] = tuple(groups)

    def groups(self) -> tuple[AcceleratorGroup, ...]:
        """Everything known, sorted."""
        return sort_groups(group for groups in self._groups.values() for group in groups)
