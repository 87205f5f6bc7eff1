"""Waiting for what was committed to be published, before a test counts facts."""

from __future__ import annotations

from contextlib import suppress

from shared.store.client import Store
from shared.store.outbox import Outbox
from tests.support.wait import eventually


async def published(store: Store, timeout: float = 10) -> None:
    """Return when the outbox of the store's service is empty, or after `timeout` seconds: then nobody relays."""

    async def empty() -> bool:
        return await Outbox(store).depth() == 0

    with suppress(AssertionError):
        await eventually(empty, timeout=timeout)
