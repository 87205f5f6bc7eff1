"""Many deadlines on one timer."""

import asyncio

from services.gateway.dataplane.patience import Patience


class Waiting:
    """Notes that it was late."""

    def __init__(self):
        self.times = 0

    def late(self):
        self.times += 1


async def until(check):
    for _ in range(2000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not reached")


async def test_only_what_is_late_is_called_and_only_once():
    patience, late, early, ended = Patience(), Waiting(), Waiting(), Waiting()
    patience.begin(late, 0.01)
    patience.begin(early, 3600)
    patience.begin(ended, 0.01)
    patience.end(ended)
    patience.end(ended)

    await until(lambda: late.times)
    second = Waiting()
    patience.begin(second, 0.0)
    await until(lambda: second.times)

    assert (late.times, early.times, ended.times) == (1, 0, 0)
    patience.end(early)


async def test_a_new_beginning_moves_the_deadline():
    patience, moved, mark = Patience(), Waiting(), Waiting()
    patience.begin(moved, 0.0)
    patience.begin(moved, 3600)
    patience.begin(mark, 0.01)

    await until(lambda: mark.times)

    assert moved.times == 0
    patience.end(moved)


async def test_it_sleeps_while_nobody_waits_and_wakes_again():
    patience = Patience()
    for _ in range(3):
        waiting = Waiting()
        patience.begin(waiting, 0.0)
        await until(lambda waiting=waiting: waiting.times)
        await until(lambda: not patience._ticking)


async def test_one_may_begin_and_end_others_when_it_is_late():
    patience, other, again = Patience(), Waiting(), Waiting()

    class Meddling(Waiting):
        def late(self):
            super().late()
            patience.end(other)
            patience.begin(again, 0.0)

    meddling = Meddling()
    patience.begin(meddling, 0.0)
    patience.begin(other, 3600)

    await until(lambda: again.times)

    assert (meddling.times, other.times) == (1, 0)
