"""Fields for running commits."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.store.slots import QUARANTINE_SECONDS, Slots


class StillClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds


def test_fields_are_as_many_as_commits_at_once() -> None:
    slots = Slots(StillClock())
    for _ in range(5):
        first, second = slots.take(), slots.take()
        assert {first.number, second.number} == {0, 1}
        assert first.commit_id != second.commit_id
        slots.give(first)
        slots.give(second)


def test_a_spoiled_field_rests_before_another_commit_gets_it() -> None:
    clock = StillClock()
    slots = Slots(clock)
    slot = slots.take()
    slot.spoil()
    slots.give(slot)

    other = slots.take()
    assert other.number != slot.number
    clock.seconds = QUARANTINE_SECONDS
    slots.take()
    assert slots.take().number in {slot.number, 2}
    assert slots._made == 3
