"""Which files resolved artifacts have: read once from the store's blobs, kept for the rules and the rendering.

Read next: deployments.py.
"""

from __future__ import annotations

from collections import OrderedDict

from shared import manifest
from shared.store import keys
from shared.store.client import Store
from shared.telemetry.logging import get_logger

log = get_logger(__name__)
_KEPT = 256
_SHOWN = ".gguf"


class Manifests:
    """Paths of manifests by digest; only of files that an engine is told by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paths: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def paths(self, digest: str) -> tuple[str, ...] | None:
        """What was read before; None when it was not."""
        return self._paths.get(digest)

    async def load(self, digest: str) -> tuple[str, ...] | None:
        """The paths, read now if they were not before; None while the blob is not there."""
        known = self._paths.get(digest)
        if known is not None:
            return known
        body = await self._store.read_blob(keys.manifest(digest))
        if body is None:
            return None
        try:
            files = manifest.decode(body).files
        except manifest.ManifestError as error:
            log.error("manifest_unreadable", digest=digest, reason=str(error))  # noqa: TRY400 - a sentence for a person
            return None
        found = tuple(file.path for file in files if file.path.lower().endswith(_SHOWN))
        self._paths[digest] = found
        while len(self._paths) > _KEPT:
            self._paths.popitem(last=False)
        return found
