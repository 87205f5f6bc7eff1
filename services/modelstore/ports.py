"""What modelstore needs from outside: sources that list repositories, and a place for copies.

Read next: drivers/huggingface.py, drivers/disk.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.modelstore.domain.reasons import DeliveryReason, ResolveReason
from services.modelstore.domain.revision import Listing
from shared.queries import WantedModel

ReadToken = Callable[[str, str], Awaitable[str]]
"""(namespace, Secret) to the token in it."""


@dataclass(eq=False)
class SourceError(Exception):
    """A source did not list; the message is a sentence for users and carries no secret."""

    reason: ResolveReason
    message: str


@dataclass(eq=False)
class DeliveryError(Exception):
    """A copy could not be made; the message is a sentence for users and carries no secret."""

    reason: DeliveryReason
    message: str


class ModelSource(Protocol):
    """Lists every file of one commit."""

    async def list_commit(self, repository: str, revision: str, token: str) -> Listing:
        """The commit that a branch, tag or commit means now, and all of its files.

        Raises:
            SourceError: why not.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A complete, verified copy on this node."""

    digest: str
    size_bytes: int
    path: str


class Vault(Protocol):
    """Copies on one node."""

    async def held(self) -> Sequence[HeldCopy]:
        """What is published and whole, read from disk."""
        ...

    async def fetch(self, model: WantedModel, progress: Callable[[int], None]) -> HeldCopy:
        """Make the copy; `progress` gets the bytes that are there so far, from any thread.

        Raises:
            DeliveryError: why not. What was verified stays and is not fetched again.
        """
        ...

    def space(self) -> tuple[int, int, int]:
        """(bytes of the file system, bytes of the store, percent used)."""
        ...
