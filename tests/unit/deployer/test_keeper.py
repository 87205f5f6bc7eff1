"""The keeper of one Pod: starts it once, says whether it is ready, starts it again after failures, stops it."""

import pytest

from services.deployer.agent.keeper import HUNG_AFTER_SECONDS
from services.deployer.domain.lifecycle import delay
from services.deployer.domain.running import Ended, Observation, Place
from shared.errors import FailedPrecondition, Unavailable
from tests.support.wait import eventually
from tests.unit.deployer.scripted import Bench, HandRuntime, a_wanted

CRASH = Ended(exit_code=1, lines=("loading", "no memory"))
PLACE = Place(host="h", address="h", port=9000, token="t")


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    await bench.close()


async def crash(bench, how=CRASH):
    """It ends, and its gap passes."""
    bench.runtime.end(how)
    await bench.until(lambda s: s.reason == "CrashLoopBackOff")


async def test_what_is_wanted_is_started_once_and_ready_when_it_answers(bench):
    bench.prober.why = "port 9000: refused"
    bench.keeper.want(a_wanted(probe={}))
    bench.run()

    starting = await bench.until(lambda s: s.phase == "Running" and s.message != "")
    assert (starting.ready, starting.reason, starting.message) == (False, "Starting", "port 9000: refused")
    assert (starting.address, starting.port, starting.token) == ("h", 8000, "t0")
    bench.prober.why = ""
    bench.clock.at += 5
    await bench.until(lambda s: s.ready)
    await bench.turns()

    assert len(bench.runtime.started) == 1
    assert bench.state().restarts == 0


async def test_the_same_wish_again_starts_nothing_again(bench):
    bench.run()
    for _ in range(3):
        bench.keeper.want(a_wanted())
        await bench.until(lambda s: s.ready)

    assert len(bench.runtime.started) == 1


async def test_one_without_a_probe_is_ready_as_soon_as_it_runs(bench):
    bench.keeper.want(a_wanted())
    bench.run()

    await bench.until(lambda s: s.ready)
    assert bench.prober.asked == 0


async def test_a_crash_is_shown_with_code_gap_and_lines_and_started_again_after_the_gap(bench):
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.until(lambda s: s.ready)

    await crash(bench)
    waiting = bench.state()
    assert (waiting.phase, waiting.exit_code, waiting.restarts) == ("Pending", 1, 0)
    assert waiting.message == "exit code 1, next start after 0.5 s\nloading\nno memory"
    await bench.turns()
    assert len(bench.runtime.started) == 1, "not before its gap is over"
    bench.clock.at += 0.5
    again = await bench.until(lambda s: s.ready)

    assert [launch.run for launch in bench.runtime.started] == [1, 2]
    assert again.restarts == 1
    assert again.token == "t1", "each start has its own token"
    assert "exit code 1" in again.message, "why it was started again stays readable"


async def test_a_new_start_is_never_shown_with_the_gap_of_the_one_before(bench):
    bench.runtime.ends_at_once = CRASH
    bench.keeper.want(a_wanted())
    bench.run()
    for failures in range(1, 5):
        await bench.until(lambda s, n=failures: s.restarts == n - 1 and s.reason == "CrashLoopBackOff")
        bench.clock.at += delay(failures)

    shown = [state for state in bench.told if state.reason == "CrashLoopBackOff"]
    assert len(shown) >= 4
    for state in shown:
        assert f"next start after {delay(state.restarts + 1):g} s" in state.message


async def test_a_start_that_is_refused_because_something_runs_counts_as_nothing(bench):
    bench.runtime.refusal = FailedPrecondition("still runs")
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.turns()

    assert bench.keeper.history.starts == 0
    bench.runtime.refusal = None
    await bench.until(lambda s: s.ready)
    assert [launch.run for launch in bench.runtime.started] == [1]


async def test_a_start_that_the_host_cannot_make_says_why_and_is_tried_again(bench):
    bench.runtime.refusal = Unavailable("no process can be started: out of memory")
    bench.keeper.want(a_wanted())
    bench.run()

    told = await bench.until(lambda s: s.message != "")
    assert (told.phase, told.reason, told.restarts) == ("Pending", "Waiting", 0)
    assert told.message == "no process can be started: out of memory"
    bench.runtime.refusal = None
    ready = await bench.until(lambda s: s.ready)
    assert (ready.restarts, ready.message) == (0, "")


async def test_a_runtime_that_cannot_look_does_not_end_the_keeper(bench):
    bench.runtime.unseen = Unavailable("no disk")
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.turns()

    bench.runtime.unseen = None
    await bench.until(lambda s: s.ready)
    assert not bench.task.done()


async def test_one_that_waits_says_for_what_and_one_that_runs_is_not_held_back(bench):
    bench.keeper.want(a_wanted(hold="the weights are not on this node yet"))
    bench.run()
    await bench.turns()
    assert bench.state().message == "the weights are not on this node yet"
    assert not bench.runtime.started

    bench.keeper.want(a_wanted())
    await bench.until(lambda s: s.ready)
    bench.keeper.want(a_wanted(hold="evicted"))
    await bench.turns()
    assert bench.state().ready


async def test_stopping_goes_on_until_nothing_runs_and_is_final(bench):
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.until(lambda s: s.ready)

    bench.keeper.cancel(7.0)
    await eventually(lambda: bench.runtime.stopped)
    assert bench.state().phase == "Running", "not before it has ended"
    bench.runtime.end(Ended(exit_code=143, signal=15))
    await bench.until(lambda s: s.phase == "Stopped")
    await bench.turns()

    assert set(bench.runtime.stopped) == {7.0}
    assert len(bench.runtime.started) == 1


async def test_one_that_was_never_here_is_confirmed_stopped_at_once(bench):
    bench.keeper.cancel(1.0)
    bench.run()

    await bench.until(lambda s: s.phase == "Stopped")
    assert not bench.runtime.stopped


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
async def test_one_that_may_end_is_not_started_again(bench, code, phase, reason):
    bench.keeper.want(a_wanted(restartPolicy="Never"))
    bench.run()
    await bench.until(lambda s: s.ready)

    bench.runtime.end(Ended(exit_code=code))
    told = await bench.until(lambda s: s.phase == phase)
    bench.clock.at += 1000
    await bench.turns()

    assert (told.reason, told.exit_code) == (reason, code)
    assert len(bench.runtime.started) == 1


async def test_one_missed_answer_is_forgiven_and_several_are_not(bench):
    bench.keeper.want(a_wanted(probe={"periodSeconds": 1, "failureThreshold": 3}))
    bench.run()
    await bench.until(lambda s: s.ready)
    bench.prober.why = "no answer within 1 s"

    for _ in range(2):
        asked = bench.prober.asked
        bench.clock.at += 2
        await eventually(lambda n=asked: bench.keeper.poke() or bench.prober.asked > n)
        assert bench.state().ready
    bench.clock.at += 2
    told = await bench.until(lambda s: not s.ready)

    assert (told.phase, told.reason, told.message) == ("Running", "ProbeFailed", "no answer within 1 s")
    bench.prober.why = ""
    bench.clock.at += 2
    await bench.until(lambda s: s.ready)
    assert len(bench.runtime.started) == 1


async def test_one_that_never_answers_is_left_to_load_and_says_what_the_probe_saw(bench):
    bench.prober.why = "HTTP 503"
    bench.keeper.want(a_wanted(probe={}))
    bench.run()
    await bench.until(lambda s: s.message == "HTTP 503")

    for _ in range(5):
        bench.clock.at += HUNG_AFTER_SECONDS
        await bench.turns()

    assert (bench.state().phase, bench.state().reason) == ("Running", "Starting")
    assert not bench.runtime.stopped


async def test_one_that_was_ready_and_fell_silent_for_long_is_started_again(bench):
    bench.keeper.want(a_wanted(probe={"periodSeconds": 1, "failureThreshold": 1}, terminationGracePeriodSeconds=4))
    bench.run()
    await bench.until(lambda s: s.ready)
    bench.prober.why = "no answer within 1 s"
    bench.clock.at += 2
    await bench.until(lambda s: not s.ready)
    assert not bench.runtime.stopped

    bench.clock.at += HUNG_AFTER_SECONDS + 1
    await eventually(lambda: bench.keeper.poke() or bench.runtime.stopped)
    assert bench.runtime.stopped[0] == 4.0
    bench.runtime.end(Ended(exit_code=137, signal=9))
    bench.prober.why = ""
    await bench.until(lambda s: s.reason == "CrashLoopBackOff")
    bench.clock.at += 1
    again = await bench.until(lambda s: s.ready)
    assert again.restarts == 1


def adopted(seen, record):
    runtime = HandRuntime()
    runtime.seen = seen
    bench = Bench(runtime)
    bench.keeper.adopt(record)
    return bench


def a_record(**history):
    return {"wanted": a_wanted().model_dump(mode="json", by_alias=True), "history": history}


async def test_what_runs_is_adopted_and_told_as_ready_in_the_first_report():
    bench = adopted(Observation(running=True, run=3, place=PLACE), a_record(starts=3, taken=2, failures=2))

    await bench.keeper.look()
    assert (bench.state().phase, bench.state().ready, bench.state().restarts) == ("Running", True, 2)
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.turns()
    assert not bench.runtime.started
    await bench.close()


async def test_nothing_adopted_is_started_or_stopped_before_the_controller_has_spoken():
    for seen in (Observation(), Observation(running=True, run=1, place=PLACE), Observation(run=1, ended=CRASH)):
        bench = adopted(seen, a_record(starts=1))
        await bench.keeper.look()

        assert not bench.runtime.started
        assert not bench.runtime.stopped


async def test_an_end_while_nobody_looked_is_taken_once():
    bench = adopted(Observation(run=2, ended=CRASH), a_record(starts=2, taken=1, failures=1))
    await bench.keeper.look()
    bench.keeper.want(a_wanted())
    bench.run()

    told = await bench.until(lambda s: s.reason == "CrashLoopBackOff")
    assert "next start after 1 s" in told.message
    bench.clock.at += 1
    await bench.until(lambda s: s.ready)
    assert [launch.run for launch in bench.runtime.started] == [3]
    await bench.close()


async def test_a_start_that_was_only_noted_counts_as_nothing():
    """Killed between the note in pod.json and the start itself."""
    bench = adopted(Observation(), a_record(starts=1))
    await bench.keeper.look()
    bench.keeper.want(a_wanted())
    bench.run()

    ready = await bench.until(lambda s: s.ready)
    assert (ready.restarts, ready.exit_code) == (0, None)
    assert [launch.run for launch in bench.runtime.started] == [1]
    await bench.close()


async def test_numbers_go_on_although_the_start_file_was_torn():
    bench = adopted(Observation(), a_record(starts=3, taken=3, failures=3))
    await bench.keeper.look()
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.until(lambda s: s.ready)
    assert [launch.run for launch in bench.runtime.started] == [4]

    await crash(bench)
    assert "next start after 4 s" in bench.state().message, "its end is not missed"
    await bench.close()


async def test_what_a_later_agent_adopts_is_what_this_one_knew(bench):
    bench.keeper.want(a_wanted())
    bench.run()
    await bench.until(lambda s: s.ready)
    await crash(bench)

    later = Bench()
    later.keeper.adopt(bench.runtime.records[-1])

    assert later.keeper.history.last == CRASH
    assert later.keeper.history.failures == 1
    assert later.keeper.recipe.wanted == a_wanted()
    assert bench.runtime.records[0]["history"]["starts"] == 1, "the start is noted before it is made"
