"""The simulated hub and the simulated vault: made-up manifests, deliveries that take the time and write no bytes.

Read next: gpubus/fleet.py.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

from services.modelstore.domain.revision import SIMULATED, Listing
from services.modelstore.ports import HeldCopy
from shared.manifest import ManifestFile
from shared.queries import WantedModel

_SMALL = 1024
_STEP_SECONDS = 0.25


class SimulatedSource:
    """Any repository resolves; the same name always to the same commit and files."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes

    async def list_commit(self, repository: str, revision: str, token: str) -> Listing:  # noqa: ARG002 - port
        """A commit and a manifest made from the name."""
        seed = f"{repository}@{revision}"
        files = (
            ManifestFile("config.json", _SMALL, "gitsha1", hashlib.sha1(seed.encode()).hexdigest()),  # noqa: S324 - git
            ManifestFile("model.safetensors", self._size, "sha256", hashlib.sha256(seed.encode()).hexdigest()),
        )
        return Listing(hashlib.sha1(f"commit {seed}".encode()).hexdigest(), files, SIMULATED)  # noqa: S324 - an id


class SimulatedVault:
    """Copies of one simulated node, in memory; a link of so many bytes a second, endless when 0."""

    def __init__(self, node: str, bytes_per_second: int = 0) -> None:
        self._node = node
        self._rate = bytes_per_second
        self._held: dict[str, HeldCopy] = {}

    async def held(self) -> Sequence[HeldCopy]:
        """What was fetched since the process started."""
        return tuple(self._held.values())

    async def fetch(self, model: WantedModel, progress: Callable[[int], None]) -> HeldCopy:
        """Wait as long as the link would take."""
        there = 0
        while self._rate and there < model.size_bytes:
            await asyncio.sleep(_STEP_SECONDS)
            there = min(model.size_bytes, there + int(self._rate * _STEP_SECONDS))
            progress(there)
        progress(model.size_bytes)
        copy = HeldCopy(model.digest, model.size_bytes, f"/simulated/{self._node}/{model.digest}")
        self._held[model.digest] = copy
        return copy

    def space(self) -> tuple[int, int, int]:
        """An endless disk."""
        return 0, sum(copy.size_bytes for copy in self._held.values()), 0
