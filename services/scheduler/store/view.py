"""Whether this copy's view of the documents is as new as the store.

Read next: ../projections/board.py.
"""

from __future__ import annotations

from shared.errors import Unavailable
from shared.store.cache import DocumentCache
from shared.store.client import Store

CATCH_UP_SECONDS = 2.0


async def caught_up(store: Store, cache: DocumentCache) -> None:
    """Wait until every document written before now is in the view.

    Raises:
        Unavailable: it lags behind.
    """
    if not await cache.reached(await store.revision(), CATCH_UP_SECONDS):
        raise Unavailable("this copy's view of the documents lags behind")
