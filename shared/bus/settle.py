"""What happens to a message after its handler: ack, wait, answer, or dead letter.

The one table of it, pure (`judge`), and the three places where an unknown exception is caught: a handler of a stored
message, of a request, and a callback. Must not know FastStream: agents use it too.
Read next: shared/bus/delivery.py, which carries a judgement out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import nats.errors

from shared.errors import DeadlineExceeded, GpubusError, Malformed, Permanent, Transient
from shared.messages.base import Message
from shared.telemetry.logging import get_logger

log = get_logger(__name__)

MAX_ATTEMPTS = 8
BUG_ATTEMPTS = 3
RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
JITTER = 0.2

Answer = Message | Mapping[str, Any] | None


class Undecodable(Malformed):
    """The stored bytes are not the message that the subject promises: nobody can ever handle them."""


class Bug(GpubusError):  # noqa: N818 - as the taxonomy names its classes
    """An exception that no handler should raise; its text stays in the log."""


class Verdict(StrEnum):
    """What to do with the delivery."""

    ACK = "ack"
    NAK = "nak"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, how metrics and logs call it, and what a waiting caller is told."""

    verdict: Verdict
    outcome: str
    """handled, refused, retried, or dead_letter."""
    delay: float = 0.0
    """Seconds until the redelivery, for NAK."""
    error: GpubusError | None = None

    @property
    def code(self) -> str | None:
        """The error's code, None when there was no error."""
        return self.error.code.value if self.error else None

    @property
    def final(self) -> bool:
        """Nothing more will happen with this message: a caller can be answered."""
        return self.verdict is not Verdict.NAK


def judge(error: GpubusError | None, *, attempt: int, attempts: int = MAX_ATTEMPTS, answers: bool = False) -> Judgement:
    """The settle table.

    Args:
        error: What the handler raised, None when it returned.
        attempt: Number of this delivery, from 1.
        attempts: How many deliveries this handler gets.
        answers: The message is a command: a refusal is an answer, not a failure.
    """
    if error is None:
        return Judgement(Verdict.ACK, "handled")
    if isinstance(error, Permanent) and answers and not isinstance(error, Undecodable):
        return Judgement(Verdict.ACK, "refused", error=error)
    limit = attempts if isinstance(error, Transient) else min(BUG_ATTEMPTS, attempts) if isinstance(error, Bug) else 1
    if attempt >= limit:
        return Judgement(Verdict.DEAD_LETTER, "dead_letter", error=error)
    return Judgement(Verdict.NAK, "retried", delay=retry_delay(error, attempt), error=error)


def retry_delay(error: GpubusError, attempt: int) -> float:
    """Seconds until the next attempt: what the thrower asks for, else the schedule with 20 % jitter."""
    asked = error.retry_after if isinstance(error, Transient) else None
    if asked is not None:
        return asked
    step = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS)) - 1]
    return step * (1 + JITTER * (2 * random.random() - 1))  # noqa: S311 - spreads retries, guards nothing


async def outcome_of(
    call: Callable[[], Awaitable[Answer]], *, handler: str, timeout: float
) -> tuple[Answer, GpubusError | None]:
    """Run a handler for at most `timeout` seconds; its answer or its error, never an exception (but cancellation)."""
    try:
        async with asyncio.timeout(timeout):
            return await call(), None
    except GpubusError as error:
        return None, error
    except TimeoutError:
        return None, DeadlineExceeded(f"{handler} did not finish within {timeout:g} s")
    except Exception as error:  # a bug in one handler must not stop the others; it is logged with its stack
        log.exception("handler_bug", handler=handler)
        return None, Bug("internal error", fields={"type": type(error).__name__})


async def guarded(event: str, call: Awaitable[Any]) -> None:
    """Await a callback nobody waits for; errors become one log line."""
    try:
        await call
    except GpubusError as error:
        log.warning(event, code=error.code.value, error_text=str(error))
    except nats.errors.Error as error:  # not connected, mostly
        log.warning(event, error_text=str(error))
    except Exception:  # the subscription that called it must go on
        log.exception(event)
