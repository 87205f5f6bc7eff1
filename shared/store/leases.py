"""Leases: one holder at a time, judged by the server's clock, and the loop that works only while it holds one.

A holder that froze learns it too late, so commits under a lease also carry its fencing number.
Must not know what the work is. Read next: scripts/lease.lua.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shared.clock import Clock
from shared.errors import GpubusError, Transient
from shared.store import keys, wire
from shared.store.documents import LeaseLost, StaleEpoch
from shared.telemetry.logging import get_logger

if TYPE_CHECKING:
    from shared.store.client import Store

TTL_SECONDS = 2.0
RENEW_SECONDS = 0.5
_CANCEL_AGAIN_SECONDS = 1.0
_RETAKE_SECONDS = 0.8
"""A holder that missed a renewal by this much and comes back under its own name has been restarted."""
_MICRO = 1_000_000
_log = get_logger(__name__)


class Lease:
    """One process's claim to one name among the copies of its service."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.key = keys.lease(store.service, name)
        self.nonce = secrets.token_hex(12)
        self.fencing = 0
        """Revision at which it was taken: grows with every holder, never repeats."""
        self._store = store
        self._held_until = 0.0

    @property
    def held(self) -> bool:
        """Whether this process may still act on it, by its own clock, counted from before the last renewal was sent."""
        return self.fencing > 0 and self._store.clock.monotonic() < self._held_until

    async def acquire(self) -> bool:
        """Take it if it is free, expired, of an older epoch, or left by this holder's previous process."""
        return await self._ask("acquire")

    async def renew(self) -> bool:
        """Keep it; False when it is lost for good."""
        return await self._ask("renew")

    async def release(self) -> None:
        """Give it back, if it is still ours; the next holder need not wait."""
        if self.fencing:
            self.fencing = 0
            await self._call("release")

    async def _ask(self, action: str) -> bool:
        sent = self._store.clock.monotonic()
        reply = await self._call(action)
        if reply[0] != b"ok":
            self.fencing = 0
            return False
        self.fencing = int(reply[1])
        self._store.saw(self.fencing)
        self._held_until = sent + TTL_SECONDS
        return True

    async def _call(self, action: str) -> list[bytes]:
        store = self._store
        numbers = (int(TTL_SECONDS * _MICRO), store.epoch, int(_RETAKE_SECONDS * _MICRO), store.options.log_keep_us)
        holder = f"{store.service}/{store.instance}"
        names = (keys.META, self.key, keys.LOG)
        reply: list[bytes] = await store.run_script("lease", names, (action, self.nonce, holder, *numbers))
        if reply[0] == b"err":
            try:
                wire.raise_refusal(reply)
            except StaleEpoch:
                await store.recover()
                return [b"lost", b""]
        return reply


async def run_leased(store: Store, name: str, body: Callable[[Lease], Awaitable[None]], clock: Clock) -> None:
    """Wait for the lease, run `body(lease)`, cancel it when the lease is lost, wait again; for ever.

    Returns when `body` returns, raises what it raises; the lease is given back either way and on cancellation.
    """
    while True:
        lease = store.lease(name)
        while not await _tried(lease.acquire):  # noqa: ASYNC110 - the lease is in the server, no local event tells
            await asyncio.sleep(RENEW_SECONDS)
        _log.info("lease_acquired", lease=name, fencing=lease.fencing)
        try:
            if await _while_held(lease, body, clock):
                return
        finally:
            await _given_back(lease)
        _log.warning("lease_lost", lease=name)


async def _while_held(lease: Lease, body: Callable[[Lease], Awaitable[None]], clock: Clock) -> bool:
    """True when the body ended by itself, False when the lease was lost first."""
    work, renewals = asyncio.ensure_future(_bare(body, lease)), asyncio.ensure_future(_renewed(lease, clock))
    try:
        await asyncio.wait({work, renewals}, return_when=asyncio.FIRST_COMPLETED)
        ended = work.done()
    finally:  # no TaskGroup: told to end in the moment in which the lease is lost, it would raise the loss alone
        await _ended(work, renewals)
    errors = [error for task in (work, renewals) if not task.cancelled() and (error := task.exception())]
    for error in errors:
        if not isinstance(error, LeaseLost):
            raise error
    return ended and not errors


async def _ended(*tasks: asyncio.Future[None]) -> None:
    """Cancel until they end: below Python 3.12 `wait_for` in the clients' code may swallow one cancellation."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)


async def _bare(body: Callable[[Lease], Awaitable[None]], lease: Lease) -> None:
    await body(lease)


async def _renewed(lease: Lease, clock: Clock) -> None:
    """Returns when the lease is lost."""
    while lease.held:
        before = clock.monotonic()
        await asyncio.sleep(RENEW_SECONDS)
        if clock.monotonic() - before > TTL_SECONDS:
            return  # this process was frozen: others may have held it since
        await _tried(lease.renew)


async def _tried(action: Callable[[], Awaitable[bool]]) -> bool:
    """The store being away is no news about who holds the lease."""
    try:
        async with asyncio.timeout(RENEW_SECONDS):
            return await action()
    except (Transient, TimeoutError):
        return False


async def _given_back(lease: Lease) -> None:
    try:
        async with asyncio.timeout(RENEW_SECONDS):
            await lease.release()
    except (GpubusError, TimeoutError):
        _log.info("lease_left_to_expire", lease=lease.name)
