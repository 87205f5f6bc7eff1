"""The one door to redis-py: pools, timeouts, retried reads, and redis-py's errors as ours.

Must not know documents. Read next: shared/store/client.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    GpubusError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

ANSWER_SECONDS = 5.0
"""Without an answer for this long a connection is given up."""
READ_PAUSES = (0.05, 0.2, 0.5, 1.0)
"""Seconds between attempts of a read; a restart of the embedded server takes about 20 ms."""
_CONNECT_SECONDS = 2.0
_REPLICA_MS = 1000
_AT_ONCE = 64
"""Commands in flight from one process; more wait here rather than open more connections."""


class Lost(Unavailable):
    """The connection broke while an answer was awaited: whether the command ran is unknown."""


class NoScript(Unavailable):
    """The server does not know the script: it is a new process, or someone flushed it."""


@contextmanager
def mapped() -> Iterator[None]:
    """Turn redis-py's errors into ours."""
    try:
        yield
    except redis_errors.NoScriptError as error:
        raise NoScript("Redis does not know the script") from error
    except redis_errors.RedisError as error:
        raise _translated(error) from error
    except OSError as error:
        raise Lost(f"the connection to Redis broke: {error}") from error


def _translated(error: redis_errors.RedisError) -> GpubusError:
    text = str(error)
    if isinstance(error, redis_errors.ConnectionError) and "connecting to" in text:
        return Unavailable(f"Redis cannot be reached: {text}")
    if text.startswith(_REFUSES_WRITES):
        return Unavailable(f"Redis refuses writes: {text}")
    if "WRONGTYPE" in text:
        return FailedPrecondition(f"the store was changed by hand: {text}")
    for types, build, sentence in _ERRORS:
        if isinstance(error, types):
            return build(f"{sentence}: {text}")
    return GpubusError(f"Redis: {text}")


_REFUSES_WRITES = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY ")
_ERRORS: tuple[tuple[tuple[type[Exception], ...], type[GpubusError], str], ...] = (
    (
        (redis_errors.AuthenticationError, redis_errors.AuthenticationWrongNumberOfArgsError),
        Unauthenticated,
        "Redis refuses this user",
    ),
    ((redis_errors.NoPermissionError, redis_errors.AuthorizationError), PermissionDenied, "Redis forbids this"),
    ((redis_errors.OutOfMemoryError,), ResourceExhausted, "Redis is out of memory"),
    ((redis_errors.BusyLoadingError, redis_errors.ReadOnlyError), Unavailable, "Redis is not ready"),
    ((redis_errors.ConnectionError, redis_errors.TimeoutError), Lost, "the connection to Redis broke"),
)
"""First match wins: authentication and loading errors are connection errors to redis-py."""


def _execute(redis: Redis, args: tuple[Any, ...]) -> Awaitable[Any]:
    answer: Awaitable[Any] = redis.execute_command(*args)  # type: ignore[no-untyped-call]
    return answer


class Connection:
    """Commands for one process. Raw replies (bytes); every call raises only GpubusErrors."""

    def __init__(self, url: str, name: str) -> None:
        common: dict[str, Any] = {
            "protocol": 2,
            "client_name": name,
            "driver_info": None,  # CLIENT SETINFO is unknown before 7.2, and so is the right to it
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": _CONNECT_SECONDS,
            "socket_keepalive": True,
        }
        self._redis = Redis.from_url(url, socket_timeout=ANSWER_SECONDS, max_connections=4 * _AT_ONCE, **common)
        # A blocking read waits as long as it asked to; a dead peer shows by the ordinary calls around it.
        self._waiting = Redis.from_url(url, socket_timeout=None, max_connections=4 * _AT_ONCE, **common)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self.answering = True
        """Whether the last command got an answer."""

    async def call(self, *args: Any) -> Any:
        """One command, one attempt."""
        async with self._turn:
            try:
                with mapped():
                    answer = await _execute(self._redis, args)
            except GpubusError as error:
                self.answering = isinstance(error, NoScript) or not isinstance(error, Unavailable)
                raise
        self.answering = True
        return answer

    async def confirmed(self, replicas: int, *args: Any) -> Any:
        """One command that writes, answered when as many replicas have it.

        Raises:
            DeadlineExceeded: the primary has it, too few replicas confirmed it.
        """
        async with self._turn, self.pinned() as ask:
            answer = await ask(*args)
            reached = await ask("WAIT", replicas, _REPLICA_MS)
        if reached < replicas:
            raise DeadlineExceeded(
                f"written, but only {reached} of {replicas} replicas confirmed it; a failover may lose it"
            )
        return answer

    async def read(self, *args: Any) -> Any:
        """One command that changes nothing; tried again for about two seconds when the connection breaks."""
        return await self.retried(lambda: self.call(*args))

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run something that changes nothing until it answers or about two seconds have passed."""
        for pause in READ_PAUSES:
            try:
                return await attempt()
            except NoScript:
                raise
            except Unavailable:
                await asyncio.sleep(pause)
        return await attempt()

    async def blocking(self, block_ms: int, *args: Any) -> Any:
        """A command that waits in the server for up to `block_ms`; has its own connection."""
        with mapped():
            try:
                # The margin covers a server that is there but frozen.
                async with asyncio.timeout(block_ms / 1000 + ANSWER_SECONDS):
                    return await _execute(self._waiting, args)
            except TimeoutError as error:
                raise Lost("Redis did not answer a blocking read") from error

    @asynccontextmanager
    async def pinned(self) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """Several commands over one connection: when it breaks, the rest fails instead of reaching another server."""
        with mapped():
            async with self._redis.client() as link:
                yield lambda *args: _execute(link, args)

    async def info(self) -> dict[str, Any]:
        """INFO as a dictionary."""
        found: dict[str, Any] = await self.read("INFO")
        return found

    async def close(self) -> None:
        """Close every connection."""
        await self._redis.aclose()
        await self._waiting.aclose()
