"""What the agent does next with one Pod."""

import itertools

import pytest

from services.deployer.domain import lifecycle
from services.deployer.domain.lifecycle import Act, History, Order
from services.deployer.domain.running import Ended, Observation

RUN, HOLD, GO = Order(run=True), Order(run=True, hold="weights"), Order(run=False)
RUNNING, NOTHING = Observation(running=True, run=1), Observation()


@pytest.mark.parametrize(
    ("order", "seen", "history", "act"),
    [
        (RUN, NOTHING, History(), Act.START),
        (HOLD, NOTHING, History(), Act.WAIT),
        (HOLD, RUNNING, History(starts=1), Act.WAIT),
        (RUN, RUNNING, History(starts=1), Act.WAIT),
        (RUN, Observation(run=1), History(starts=1), Act.TAKE_END),
        (RUN, Observation(run=1), History(starts=1, taken=1, not_before=11), Act.WAIT),
        (RUN, Observation(run=1), History(starts=1, taken=1, not_before=10), Act.START),
        (RUN, Observation(run=1), History(starts=1, taken=1, finished="Succeeded"), Act.WAIT),
        (GO, RUNNING, History(starts=1), Act.STOP),
        (GO, NOTHING, History(), Act.CONFIRM),
    ],
)
def test_next_act(order, seen, history, act):
    assert lifecycle.decide(order, seen, history, now=10) is act


def test_nothing_is_started_while_something_runs():
    for order, starts, taken in itertools.product((RUN, HOLD, GO), range(3), range(3)):
        history = History(starts=starts, taken=taken)

        assert lifecycle.decide(order, RUNNING, history, now=99) is not Act.START


def test_gaps_between_starts_double_up_to_a_minute():
    gaps = [lifecycle.delay(failures) for failures in range(1, 12)]

    assert gaps[:4] == [0.5, 1, 2, 4]
    assert all(b == min(60, a * 2) for a, b in itertools.pairwise(gaps))
    assert gaps[-1] == 60


def test_a_start_that_ran_long_is_forgiven():
    history = History(starts=9, failures=8)

    after = lifecycle.ended(history, Ended(exit_code=1), ran_seconds=601, policy="Always", now=100)

    assert after.failures == 1
    assert after.not_before == 100.5


@pytest.mark.parametrize(
    ("policy", "code", "finished"),
    [
        ("Always", 0, ""),
        ("Always", 1, ""),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, ""),
        ("Never", 0, "Succeeded"),
        ("Never", 3, "Failed"),
    ],
)
def test_the_restart_policy_is_kubernetes(policy, code, finished):
    after = lifecycle.ended(History(starts=1), Ended(exit_code=code), ran_seconds=1, policy=policy, now=0)

    assert after.finished == finished
    assert after.taken == 1


def test_an_end_that_nobody_saw_counts_as_a_failure():
    after = lifecycle.ended(History(starts=1), Ended(), ran_seconds=1, policy="OnFailure", now=0)

    assert after.finished == ""
    assert after.failures == 1
    assert "shim was killed" in lifecycle.sentence(Ended(), 1)


def test_the_sentence_has_code_gap_and_last_lines():
    end = Ended(exit_code=3, lines=("loading", "out of memory"))

    assert lifecycle.sentence(end, 4) == "exit code 3, next start after 4 s\nloading\nout of memory"
