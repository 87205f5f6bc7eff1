"""Bounded polling: tests wait for a state, never for a duration.

Read next: tests/support/servers.py.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(check: Callable[[], T | Awaitable[T]], timeout: float = 10.0, interval: float = 0.02) -> T:
    """Call `check` until it returns something true, and return that.

    An AssertionError inside `check` counts as "not yet". After `timeout` seconds the last one is raised, or an
    AssertionError that shows the last value.
    """
    deadline = time.monotonic() + timeout
    while True:
        failure: AssertionError | None = None
        value: T | None = None
        try:
            result = check()
            value = await result if inspect.isawaitable(result) else result
        except AssertionError as error:
            failure = error
        if failure is None and value:
            return value
        if time.monotonic() > deadline:
            raise failure or AssertionError(f"not within {timeout} s; last value: {value!r}")
        await asyncio.sleep(interval)


def eventually_sync(check: Callable[[], T], timeout: float = 10.0, interval: float = 0.02) -> T:
    """The same for code that runs without a loop."""
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s; last value: {value!r}")
        time.sleep(interval)
