"""How far running deliveries are, as agents tell it several times a second; nothing of it is stored.

Read next: services/modelstore/loops.py, which counts with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

_STEP = 20
"""Steps that a delivery is told in: five percent each."""


class Progress:
    """The latest sample of each delivery, by (node, digest)."""

    def __init__(self, moved: Callable[[], None]) -> None:
        """`moved` is called when some delivery came a step further."""
        self._bytes: dict[tuple[str, str], int] = {}
        self._moved = moved

    def tell(self, node: str, digest: str, there: int, size: int) -> None:
        """So many bytes are there now."""
        before = self._bytes.get((node, digest), 0)
        self._bytes[node, digest] = there
        if before * _STEP // max(1, size) != there * _STEP // max(1, size):
            self._moved()

    def of(self, node: str, digest: str) -> int:
        """Bytes that were there last; 0 when nothing was told."""
        return self._bytes.get((node, digest), 0)

    def forget(self, node: str, running: Collection[str] = ()) -> None:
        """Drop what is told of a node, but for what still runs there."""
        for known in [key for key in self._bytes if key[0] == node and key[1] not in running]:
            del self._bytes[known]
