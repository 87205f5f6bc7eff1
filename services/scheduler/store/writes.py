"""The one way in which the scheduler writes: whatever another writer did first is a race, and is decided again.

The store tells a document that has come, gone or moved by three errors. Two of them would end a fact's handler for
good, although all of them mean the same here: what was read is old. Users' objects go through ObjectWriter instead,
where those errors are answers. Read next: view.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.scheduler.store.view import caught_up
from shared.errors import AlreadyExists, NotFound, Raced
from shared.store.cache import DocumentCache
from shared.store.client import Store
from shared.store.documents import Commit, Committed

ATTEMPTS = 5
T = TypeVar("T")


async def commit(store: Store, change: Commit) -> Committed:
    """Commit a change that was decided on what was read.

    Raises:
        Raced: something of it has changed, come or gone since. What else `Store.commit` raises.
    """
    try:
        return await store.commit(change)
    except (AlreadyExists, NotFound) as error:
        raise Raced(error.message, (), error.fields) from error


async def decided(store: Store, cache: DocumentCache, attempt: Callable[[], Awaitable[T]]) -> T:
    """Read, decide, commit; again on a view as new as the store when another writer was faster.

    Raises:
        Raced: five times in a row; take the message again later. Unavailable: the view lags behind.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt()
        except Raced:
            await caught_up(store, cache)
    return await attempt()
