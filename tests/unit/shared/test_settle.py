"""The settle table as a function."""

from __future__ import annotations

import pytest

from shared.bus.settle import RETRY_SECONDS, Bug, Undecodable, Verdict, judge, outcome_of, retry_delay
from shared.errors import Aborted, InvalidArgument, NotFound, Raced, ResourceExhausted, Unavailable

ACK, NAK, DEAD = Verdict.ACK, Verdict.NAK, Verdict.DEAD_LETTER


@pytest.mark.parametrize(
    ("error", "attempt", "answers", "verdict", "outcome"),
    [
        (None, 1, False, ACK, "handled"),
        (Unavailable("x"), 1, False, NAK, "retried"),
        (Raced("x"), 7, True, NAK, "retried"),
        (Unavailable("x"), 8, False, DEAD, "dead_letter"),
        (Unavailable("x"), 8, True, DEAD, "dead_letter"),
        (NotFound("x"), 1, True, ACK, "refused"),
        (Aborted("x"), 1, True, ACK, "refused"),
        (InvalidArgument("x"), 1, False, DEAD, "dead_letter"),
        (Undecodable("x"), 1, False, DEAD, "dead_letter"),
        (Undecodable("x"), 1, True, DEAD, "dead_letter"),
        (Bug("x"), 2, False, NAK, "retried"),
        (Bug("x"), 3, False, DEAD, "dead_letter"),
        (Bug("x"), 3, True, DEAD, "dead_letter"),
    ],
    ids=lambda value: getattr(value, "code", value) if not isinstance(value, bool) else str(value),
)
def test_each_row_of_the_table(error: object, attempt: int, answers: object, verdict: Verdict, outcome: str):
    judged = judge(error, attempt=attempt, answers=bool(answers))  # type: ignore[arg-type]

    assert (judged.verdict, judged.outcome) == (verdict, outcome)
    assert judged.final == (verdict is not NAK)
    assert (judged.delay > 0) == (verdict is NAK)


def test_a_handler_may_have_fewer_attempts_also_for_bugs():
    assert judge(Unavailable("x"), attempt=2, attempts=2).verdict is DEAD
    assert judge(Bug("x"), attempt=1, attempts=1).verdict is DEAD


def test_the_thrower_says_when_to_come_back():
    assert retry_delay(ResourceExhausted("x", fields={"retry_after": 7}), 1) == 7


@pytest.mark.parametrize("attempt", range(1, 9))
def test_without_a_wish_the_schedule_applies_with_a_fifth_of_jitter(attempt: int):
    step = RETRY_SECONDS[min(attempt, 5) - 1]

    for _ in range(20):
        assert step * 0.8 <= retry_delay(Unavailable("x"), attempt) <= step * 1.2


async def test_a_handler_that_overruns_is_a_transient_failure():
    import asyncio

    result, error = await outcome_of(lambda: asyncio.sleep(5), handler="h", timeout=0.01)  # type: ignore[arg-type]

    assert result is None
    assert error is not None
    assert error.code.value == "DeadlineExceeded"


async def test_cancellation_passes():
    import asyncio

    task = asyncio.ensure_future(outcome_of(lambda: asyncio.sleep(5), handler="h", timeout=5))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
