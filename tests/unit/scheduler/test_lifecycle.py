"""The life of a Workload: the whole cross product of states and verbs, and the conditions that say it."""

from itertools import product

import pytest

from services.scheduler.domain import status
from services.scheduler.domain.lifecycle import HOLDING, TABLE, State, Verb, moved, releases
from shared.resources.workload import Assignment, Workload, WorkloadReason

NOTHING_HAPPENS = {
    (State.WAITING, Verb.EVICT),
    (State.ADMITTED, Verb.HOLD),
    (State.ADMITTED, Verb.ADMIT),
    (State.EVICTED, Verb.HOLD),
    (State.EVICTED, Verb.ADMIT),
    (State.EVICTED, Verb.EVICT),
    (State.FINISHED, Verb.HOLD),
    (State.FINISHED, Verb.ADMIT),
    (State.FINISHED, Verb.EVICT),
    (State.FINISHED, Verb.FINISH),
    *((State.GONE, verb) for verb in Verb),
}
NOW = "2026-11-30T12:00:00Z"
LATER = "2026-11-30T12:00:01Z"
BODY = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "default", "uid": "u", "generation": 2},
    "spec": {"queueName": "q", "podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}], "newField": 1},
    "status": {"newField": 2},
}
PLACE = Assignment(node_name="n1", pool="p", devices=["gpu-0"], credits=1_600_000, cpu_milli=100, memory_bytes=5)


@pytest.mark.parametrize(("state", "verb"), list(product(State, Verb)))
def test_every_pair_is_in_the_table_or_known_to_do_nothing(state, verb):
    assert ((state, verb) in TABLE) != ((state, verb) in NOTHING_HAPPENS)
    assert (moved(state, verb) is None) == ((state, verb) in NOTHING_HAPPENS)


@pytest.mark.parametrize(("state", "verb"), list(product(State, Verb)))
def test_what_is_held_is_given_back_exactly_when_holding_ends(state, verb):
    after = moved(state, verb)

    assert releases(state, verb) == (state in HOLDING and after is not None and after not in HOLDING)


def admitted():
    return status.admitted(BODY, queue="p", assignment=PLACE, entered=7, now=NOW)


def test_conditions_say_the_state():
    held = status.held(BODY, reason=WorkloadReason.NO_CAPACITY, message="full", entered=7, now=NOW)

    assert status.state(BODY) is State.WAITING
    assert status.state(held) is State.WAITING
    assert status.state(admitted()) is State.ADMITTED
    assert status.state(status.evicted(admitted(), reason="Deleted", message="", now=NOW)) is State.EVICTED
    assert status.state(status.finished(admitted(), reason="Failed", message="", now=NOW)) is State.FINISHED


def test_admitted_workload_holds_exactly_its_assignment_until_it_is_finished():
    holding = status.holdings(admitted())[0]

    assert (holding.node, holding.cards, holding.credits) == ("n1", ("gpu-0",), 1_600_000)
    assert (holding.cpu_milli, holding.memory_bytes) == (100, 5)
    assert status.holdings(status.finished(admitted(), reason="Failed", message="", now=NOW)) == ()


def test_written_status_is_the_kind_s_own_shape():
    workload = Workload.model_validate(
        {**admitted(), "spec": {k: v for k, v in BODY["spec"].items() if k != "newField"}}
        | {"status": {k: v for k, v in admitted()["status"].items() if k != "newField"}}
    )

    assert workload.status.admission.pod_set_assignments[0].devices == ["gpu-0"]
    assert {c.type: c.status for c in workload.status.conditions} == {"QuotaReserved": "True", "Admitted": "True"}


def test_fields_of_another_version_stay():
    body = admitted()

    assert body["spec"]["newField"] == 1
    assert body["status"]["newField"] == 2


def test_transition_time_moves_only_with_the_status():
    first = status.held(BODY, reason=WorkloadReason.NO_CAPACITY, message="1", entered=7, now=NOW)
    second = status.held(first, reason=WorkloadReason.NEVER_FITS, message="2", entered=9, now=LATER)

    assert status.told(second) == ("NeverFits", "2")
    assert second["status"]["conditions"][0]["lastTransitionTime"] == NOW
    assert second["status"]["queuedRevision"] == 7


def test_stored_body_is_never_changed_in_place():
    before = str(BODY)
    admitted()

    assert str(BODY) == before
