"""A Pod's status from reports, and the facts of each change."""

from datetime import timedelta

import pytest

from services.deployer.domain import pods
from services.deployer.domain.observed import READY, STOPPED
from services.deployer.domain.pods import Report, observe, with_node
from shared.reports import PodState
from shared.resources.base import get_condition, is_true
from tests.support.deployer import NOW, World, a_deployment, a_plain_pod, deleting


def a_replica():
    world = World(a_deployment())
    world.settle()
    world.admit()
    world.settle()
    return world.pods["m-server-r0"]


def a_state(phase: str = "Running", **fields):
    defaults = {"address": "127.0.0.1", "port": 8000, "token": "t", "started_unix": 1} if phase == "Running" else {}
    return PodState(uid="pod-m-server-r0", phase=phase, **defaults | fields)


def meta(sequence: int, *, lost: bool = False) -> Report:
    return Report(sequence=sequence, node_lost=lost, now=NOW + timedelta(seconds=sequence))


def after(pod, *steps, lost: bool = False):
    """The Pod after several reports, and the names of all facts."""
    told = []
    for sequence, state in enumerate(steps, start=pod.status.observed_sequence + 1):
        found = observe(pod, state, meta(sequence, lost=lost))
        if found is not None:
            status, facts = found
            pod = pod.model_copy(update={"status": status})
            told += [type(fact).__name__ for fact in facts]
    return pod, told


def test_a_start_is_told_step_by_step():
    pod, told = after(a_replica(), a_state("Pending"), a_state(), a_state(ready=True))

    assert told == ["ReplicaStarted", "ReplicaReady"]
    assert pod.status.endpoint.port == 8000
    assert pod.status.endpoint.replica_uid == pod.uid
    assert is_true(pod.status.conditions, READY)


def test_nothing_changes_when_nothing_changed():
    pod, _ = after(a_replica(), a_state(ready=True))

    assert observe(pod, a_state(ready=True), meta(9)) is None


def test_an_older_report_is_dropped():
    pod, _ = after(a_replica(), a_state(ready=True), a_state(ready=False))

    assert observe(pod, a_state(ready=True), meta(1)) is None
    assert observe(pod, a_state(ready=True), meta(2)) is None


def test_a_crash_shows_code_count_and_last_line():
    crash = a_state("Pending", restarts=0, exit_code=1, reason="CrashLoopBackOff", message="exit code 1\nboom")

    pod, told = after(a_replica(), a_state(ready=True), crash)

    container = pod.status.container_statuses[0]
    assert told == ["ReplicaStarted", "ReplicaReady", "ReplicaFailed", "ReplicaUnready"]
    assert container.state.waiting == {"reason": "CrashLoopBackOff", "message": "exit code 1\nboom"}
    assert container.last_state.terminated["exitCode"] == 1
    assert pod.status.endpoint is None
    assert get_condition(pod.status.conditions, READY).reason == "CrashLoopBackOff"


def test_each_crash_is_told_once():
    down = [a_state("Pending", restarts=n, exit_code=1, reason="CrashLoopBackOff") for n in range(3)]
    up = [a_state(restarts=n, exit_code=1) for n in range(1, 3)]

    _, told = after(a_replica(), a_state(), down[0], up[0], down[1], up[1], down[2])

    assert told.count("ReplicaFailed") == 3
    assert told.count("ReplicaStarted") == 3


def test_a_confirmed_stop_voids_the_endpoint_and_is_final():
    pod, told = after(a_replica(), a_state(ready=True), a_state("Stopped"))

    assert told[-2:] == ["ReplicaUnready", "ReplicaStopped"]
    assert is_true(pod.status.conditions, STOPPED)
    assert pod.status.endpoint is None
    assert observe(pod, a_state(ready=True), meta(99)) is None


def test_a_pod_that_its_node_has_forgotten_is_not_ready():
    pod, told = after(a_replica(), a_state(ready=True), None)

    assert told[-1] == "ReplicaUnready"
    assert pod.status.endpoint is None


def test_a_pod_that_was_never_reported_stays_as_it_is():
    assert observe(a_replica(), None, meta(5)) is None


def test_a_silent_nodes_pod_is_unknown_and_comes_back_without_a_new_report():
    pod, _ = after(a_replica(), a_state(ready=True))

    status, facts = with_node(pod, lost=True, now=NOW)
    assert get_condition(status.conditions, READY).status == "Unknown"
    assert [type(f).__name__ for f in facts] == ["ReplicaUnready"]

    pod = pod.model_copy(update={"status": status})
    status, facts = with_node(pod, lost=False, now=NOW)
    assert is_true(status.conditions, READY)
    assert [type(f).__name__ for f in facts] == ["ReplicaReady"]


def test_a_node_change_that_changes_nothing_writes_nothing():
    pod, _ = after(a_replica(), a_state(ready=True))

    assert with_node(pod, lost=False, now=NOW) is None
    assert with_node(a_replica(), lost=True, now=NOW) is None


def test_a_report_of_a_lost_node_does_not_make_its_pods_ready():
    pod, told = after(a_replica(), a_state(ready=True), lost=True)

    assert not is_true(pod.status.conditions, READY)
    assert "ReplicaReady" not in told


def test_an_ignored_image_is_said():
    pod, _ = after(a_replica(), a_state(conditions=["ImageNotUsed"]))

    assert is_true(pod.status.conditions, "ImageNotUsed")


@pytest.mark.parametrize(
    ("phase", "code", "told"),
    [("Succeeded", 0, ["PodStarted", "PodFinished"]), ("Failed", 2, ["PodStarted", "PodFailed"])],
)
def test_a_plain_pod_ends_once(phase, code, told):
    pod = a_plain_pod(nodeName="n1")
    end = a_state(phase, exit_code=code)

    pod, found = after(pod, a_state(), end, end)

    assert found == told
    assert pod.status.finished == phase
    assert pod.status.container_statuses[0].state.terminated["exitCode"] == code


def test_transition_times_move_with_the_status_only():
    pod, _ = after(a_replica(), a_state(), a_state(message="x", reason="ProbeFailed"), a_state(ready=True))

    assert get_condition(pod.status.conditions, pods.SCHEDULED).last_transition_time == NOW
    assert get_condition(pod.status.conditions, READY).last_transition_time == NOW + timedelta(seconds=3)


def test_a_pod_that_must_stop_never_becomes_ready():
    starting, _ = after(a_replica(), a_state())

    pod, told = after(deleting(starting), a_state(ready=True))

    assert "ReplicaReady" not in told
    assert get_condition(pod.status.conditions, READY).reason == "Terminating"


def test_a_pod_that_must_stop_and_whose_node_comes_back_does_not_become_ready_again():
    ready, _ = after(a_replica(), a_state(ready=True))
    pod = deleting(ready)
    status, _ = with_node(pod, lost=True, now=NOW)
    pod = pod.model_copy(update={"status": status})

    status, facts = with_node(pod, lost=False, now=NOW)

    assert not is_true(status.conditions, READY)
    assert facts == ()


def test_a_pod_that_must_stop_stays_ready_until_it_has_stopped():
    ready, _ = after(a_replica(), a_state(ready=True))

    assert observe(deleting(ready), a_state(ready=True), meta(9)) is None
