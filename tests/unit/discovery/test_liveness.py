import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.discovery.domain.liveness import Hearing, Liveness, Seat, Verdict


def a_fleet(count: int) -> list[Seat]:
    return [Seat(f"n{i}", f"i{i}") for i in range(count)]


class Story:
    """Nodes that beat each second at their own phase, judged four times a second."""

    def __init__(self, count: int) -> None:
        self.seats = a_fleet(count)
        self.ears = Liveness(0.0)
        self.now = 0.0
        self.silent: set[str] = set()
        self.lost: list[tuple[str, float]] = []
        self.returned: list[str] = []
        self.crowds: list[int] = []
        self.verdict = Verdict()

    def run(self, seconds: float, *, deaf: bool = False) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = round(self.now + 0.05, 6)
            for position, seat in enumerate(self.seats):
                phase = position * 7 % 20
                if not deaf and seat.name not in self.silent and round(self.now * 20) % 20 == phase:
                    self.ears.heard(seat.name, seat.incarnation, self.now)
            if round(self.now * 100) % 25 == 0 and not deaf:
                self.judge()
            if not deaf:
                self.ears.awake(self.now)

    def judge(self) -> None:
        self.verdict = self.ears.judge(self.seats, self.now)
        self.lost += [(name, self.now) for name in self.verdict.lost]
        recent = {name for name, at in self.lost if self.now - at < 3.0}
        still = {seat.name for seat in self.seats if seat.lost} | set(self.verdict.lost)
        if self.verdict.lost:
            self.crowds.append(len(recent & still))
        self.returned += self.verdict.returned
        gone, back = set(self.verdict.lost), set(self.verdict.returned)
        self.seats = [
            Seat(s.name, s.incarnation, (s.lost or s.name in gone) and s.name not in back) for s in self.seats
        ]

    @property
    def lost_names(self) -> set[str]:
        return {name for name, _ in self.lost}


@pytest.mark.parametrize(
    ("count", "dead", "lost"),
    [
        (1, 1, True), (2, 1, True), (3, 1, True), (4, 1, True), (6, 2, True), (9, 3, True), (200, 60, True),
        (2, 2, False), (3, 2, False), (4, 2, False), (5, 2, False), (7, 3, False), (8, 5, False), (200, 67, False),
    ],
)  # fmt: skip
def test_more_than_a_third_and_at_least_two_are_held_and_fewer_are_lost(count, dead, lost):
    story = Story(count)
    story.run(5)
    assert not story.lost

    story.silent = {f"n{i}" for i in range(dead)}
    story.run(8)

    assert story.lost_names == (story.silent if lost else set())
    assert set(story.verdict.held) == (set() if lost else story.silent)
    assert lost or (story.verdict.crowd, story.verdict.of) == (dead, count)


def test_a_lost_node_is_lost_within_a_tick_of_the_time_out():
    story = Story(3)
    story.run(5)
    story.silent = {"n1"}
    story.run(6)

    assert story.lost_names == {"n1"}
    assert 2.0 <= story.lost[0][1] - 5.0 <= 3.3


def test_nothing_is_judged_before_one_full_time_out_of_listening():
    story = Story(3)
    story.silent = {"n0"}

    story.run(2.9)
    assert not story.lost
    story.run(0.5)

    assert story.lost_names == {"n0"}


def test_a_frozen_judge_listens_anew_before_it_judges():
    story = Story(20)
    story.run(5)
    story.run(90, deaf=True)

    story.run(10)

    assert not story.lost
    assert not story.verdict.held


def test_a_node_that_stays_silent_beside_a_crowd_is_lost_when_the_crowd_returns():
    story = Story(6)
    story.run(5)
    story.silent = {"n0", "n1", "n2", "n3"}
    story.run(6)
    assert not story.lost

    story.silent = {"n0"}
    story.run(6)

    assert story.lost_names == {"n0"}


def test_nodes_that_fall_one_after_the_other_within_one_time_out_count_together():
    story = Story(4)
    story.run(5)
    story.silent = {"n0"}
    story.run(2.5)
    story.silent = {"n0", "n1"}
    story.run(8)

    assert story.lost_names == {"n0"}
    assert story.verdict.held == ("n1",)


def test_a_lost_node_returns_when_it_is_heard():
    story = Story(3)
    story.run(5)
    story.silent = {"n2"}
    story.run(5)
    assert story.lost_names == {"n2"}

    story.silent = set()
    story.run(2)

    assert story.returned == ["n2"]


def test_beats_of_another_incarnation_do_not_keep_a_node_alive():
    ears = Liveness(0.0)
    ears.judge([Seat("n0", "new")], 0.0)
    for second in range(1, 6):
        ears.heard("n0", "old", float(second))
        ears.awake(float(second))

    assert ears.hearing("n0", "new", 5.0) is Hearing.SILENT
    assert ears.judge([Seat("n0", "new")], 5.0).lost == ("n0",)


def test_an_agent_that_just_claimed_has_a_full_time_out_to_be_heard():
    ears = Liveness(0.0)
    for second in range(1, 20):
        ears.awake(float(second))

    assert ears.hearing("n0", "new", 20.0) is Hearing.UNJUDGED
    assert ears.judge([Seat("n0", "new")], 21.0).lost == ()
    ears.awake(22.0)
    assert ears.judge([Seat("n0", "new")], 23.1).lost == ("n0",)


def test_what_was_not_listened_for_is_not_known():
    ears = Liveness(10.0)

    assert ears.hearing("n0", "i0", 10.0) is Hearing.UNJUDGED
    assert ears.hearing("n0", "i0", 11.5) is Hearing.UNJUDGED
    assert ears.hearing("n0", "i0", 13.0) is Hearing.SILENT
    ears.heard("n0", "i0", 13.0)
    assert ears.hearing("n0", "i0", 15.9) is Hearing.ALIVE


def test_receive_times_of_gone_incarnations_are_forgotten():
    ears = Liveness(0.0)
    for number in range(1000):
        ears.heard("n0", f"i{number}", 1.0)

    ears.judge([Seat("n0", "i5")], 100.0)

    assert len(ears._heard) == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.data())
def test_no_crowd_is_ever_declared_lost_within_one_time_out(count, data):
    story = Story(count)
    story.run(4)
    for _ in range(data.draw(st.integers(1, 4))):
        story.silent = set(data.draw(st.lists(st.sampled_from([s.name for s in story.seats]), max_size=count)))
        story.run(data.draw(st.sampled_from([0.5, 1.5, 3.0, 5.0])))

    assert all(crowd < 2 or 3 * crowd <= count for crowd in story.crowds)
