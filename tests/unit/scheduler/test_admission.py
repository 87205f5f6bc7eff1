"""The admission cycle: the rule of the queue, exact devices, and a plain reason for everybody who waits."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.domain import filters, status
from services.scheduler.domain.admission import Limits, TypeState, decide_cycle
from services.scheduler.domain.request import Tolerated
from shared.resources.core import Taint
from shared.resources.workload import Assignment
from shared.resources.workload import WorkloadReason as Why
from tests.unit.scheduler.builders import (
    CPU_POOL,
    GI,
    NO_PATIENCE,
    POOL,
    TYPE,
    a_node,
    a_pool,
    a_queue,
    a_snapshot,
    asks,
    waits,
)


def cycle(pool, *workloads, now=10.0, limits=NO_PATIENCE, **more):
    return decide_cycle(a_snapshot(pool, a_queue(*workloads), **more), now, limits).state


def places(done):
    return {a.waiting.name: (a.assignment.node_name, *a.assignment.devices) for a in done.admissions}


def reasons(done):
    return {h.waiting.name: h.verdict.reason for h in done.holds}


def message(done):
    return done.holds[0].verdict.message


def test_fitting_workload_gets_exact_devices():
    done = cycle(a_pool(a_node(cards=4, free=3)), waits("w", asks(2, cpu_milli=1000, memory_bytes=GI)))

    got = done.admissions[0].assignment
    assert (got.node_name, got.devices, got.credits) == ("n1", ["n1-gpu-1", "n1-gpu-2"], 1_600_000)
    assert (got.cpu_milli, got.memory_bytes, got.pool) == (1000, GI, POOL.name)


def test_higher_priority_goes_first_then_the_older():
    queue = (waits("old", asks(1), at=1), waits("new", asks(1), at=5), waits("vip", asks(1), at=9, priority=1))

    done = cycle(a_pool(a_node(cards=2)), *queue)

    assert list(places(done)) == ["vip", "old"]
    assert reasons(done) == {"new": Why.NO_CAPACITY}


def test_blocked_head_never_blocks_a_smaller_one_behind_it():
    blocked = [waits(name, asks(4), at=at) for at, name in enumerate("ABC")]

    done = cycle(a_pool(a_node(cards=4, free=1)), *blocked, waits("E", asks(1), at=9))

    assert list(places(done)) == ["E"]
    assert [h.waiting.name for h in done.holds] == ["A", "B", "C"]


def test_thousand_blocked_ones_ahead_change_nothing():
    blocked = [waits(f"b{i}", asks(4), at=i) for i in range(1000)]

    done = cycle(a_pool(a_node(cards=4, free=1)), *blocked, waits("E", asks(1), at=5000))

    assert list(places(done)) == ["E"]
    assert done.more
    assert len(done.holds) == NO_PATIENCE.holds


def test_fuller_node_is_taken_first():
    done = cycle(a_pool(a_node("a", cards=8), a_node("b", cards=8, free=2)), waits("w", asks(1)))

    assert places(done)["w"][0] == "b"


def test_node_with_the_weights_is_preferred_to_a_fuller_one():
    nodes = [a_node("a", cards=8, free=2), a_node("b", cards=8)]
    holder = type(nodes[1])(nodes[1].facts, nodes[1].free, 32000, 128 * GI, artifacts=frozenset({"sha256:x"}))

    done = cycle(a_pool(nodes[0], holder), waits("w", asks(1, artifact="sha256:x")))

    assert places(done)["w"][0] == "b"


def test_work_without_cards_keeps_off_nodes_with_cards():
    pool = a_pool(a_node("a", cards=8), a_node("b"), key=CPU_POOL)

    assert places(cycle(pool, waits("w", asks(cpu_milli=1000), queue=CPU_POOL.name)))["w"] == ("b",)


def test_real_nodes_are_used_before_simulated_ones():
    simulated = a_node("a", cards=2, labels={"gpubus.io/simulated": "true"})
    pool = a_pool(simulated, a_node("b", cards=1, free=0))
    selects = asks(1, selector=(("gpubus.io/simulated", "true"),))

    done = cycle(pool, waits("plain", asks(1)), waits("selects", selects))

    assert places(done) == {"selects": ("a", "a-gpu-0")}
    assert message(done) == "waiting for 1 more card: 1 of 1 nodes is full"


def test_pool_of_simulated_nodes_admits_to_them():
    pool = a_pool(a_node("a", cards=1, labels={"gpubus.io/simulated": "true"}))

    assert places(cycle(pool, waits("w", asks(1)))) == {"w": ("a", "a-gpu-0")}


@pytest.mark.parametrize(
    ("closed", "text"),
    [
        ({"cordoned": True}, "no node that could hold it is open: node n1 is cordoned"),
        ({"ready": False}, "no node that could hold it is open: node n1 is not ready"),
    ],
)
def test_closed_node_takes_nobody_and_the_reason_says_so(closed, text):
    done = cycle(a_pool(a_node(cards=1, **closed)), waits("w", asks(1)))

    assert (places(done), reasons(done), message(done)) == ({}, {"w": Why.NO_CAPACITY}, text)


def test_node_that_has_not_reported_takes_nobody():
    done = cycle(a_pool(a_node(cards=1, confirmed=False)), waits("w", asks(1)))

    assert reasons(done) == {"w": Why.NODES_UNCONFIRMED}
    assert message(done) == "no node that could hold it is open: node n1 has not reported yet what runs there"


def test_waiting_names_what_is_lacking_and_who_is_closed():
    nodes = [a_node(name, cards=2, free=free) for name, free in (("a", 0), ("c", 1), ("d", 0))]

    done = cycle(a_pool(*nodes, a_node("b", cards=2, cordoned=True)), waits("w", asks(2)))

    assert message(done) == "waiting for 1 more card: 3 of 4 nodes have too little room, node b is cordoned"


def test_full_nodes_are_called_full():
    nodes = [a_node(name, cards=2, free=0) for name in "acd"]

    done = cycle(a_pool(*nodes, a_node("b", cards=2, cordoned=True)), waits("w", asks(1)))

    assert message(done) == "waiting for 1 more card: 3 of 4 nodes are full, node b is cordoned"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (asks(9), "asks for 9 cards, the largest node of pool {pool} has 8 cards"),
        (asks(1, cpu_milli=33_000), "asks for 33 cores, the largest node of pool {pool} has 32 cores"),
        (asks(1, memory_bytes=129 * GI), "asks for 129Gi memory, the largest node of pool {pool} has 128Gi memory"),
    ],
)
def test_request_over_the_largest_node_never_fits_and_names_both_numbers(request_, text):
    done = cycle(a_pool(a_node("a", cards=8), a_node("b", cards=8)), waits("w", request_))

    assert (reasons(done), message(done)) == ({"w": Why.NEVER_FITS}, text.format(pool=POOL.name))


def test_two_cards_on_one_card_nodes_never_fit_until_a_larger_node_comes():
    pool = a_pool(a_node("a", cards=1), a_node("b", cards=1))
    assert reasons(cycle(pool, waits("w", asks(2)))) == {"w": Why.NEVER_FITS}

    pool.put(a_node("c", cards=2))

    assert places(cycle(pool, waits("w", asks(2)))) == {"w": ("c", "c-gpu-0", "c-gpu-1")}


def test_numbers_that_no_one_node_has_together_never_fit():
    nodes = [a_node("a", cards=8, memory_gi=64), a_node("b", cards=1, memory_gi=512)]

    done = cycle(a_pool(*nodes), waits("w", asks(8, memory_bytes=256 * GI)))

    assert reasons(done) == {"w": Why.NEVER_FITS}
    assert message(done).startswith("asks for 8 cards and 256Gi memory on one node")


def test_label_that_no_node_has_is_named():
    done = cycle(a_pool(a_node(cards=1)), waits("w", asks(1, selector=(("zone", "z9"),))))

    assert reasons(done) == {"w": Why.NO_NODE_MATCHES}
    assert message(done) == f"no node of pool {POOL.name} matches: node n1 lacks label zone=z9"


def test_many_refusals_are_counted_not_listed():
    nodes = [a_node(f"n{i}", cards=1) for i in range(5)]

    done = cycle(a_pool(*nodes), waits("w", asks(1, selector=(("zone", "z9"),))))

    assert message(done).endswith("matches: 5 nodes are like n0, which lacks label zone=z9")


@pytest.mark.parametrize(
    ("toleration", "admitted"),
    [
        (None, False),
        (Tolerated("team", "Equal", "a", "NoSchedule"), True),
        (Tolerated("team", "Equal", "b", "NoSchedule"), False),
        (Tolerated("team", "Exists", "", ""), True),
        (Tolerated("", "Exists", "", ""), True),
        (Tolerated("team", "Exists", "", "NoExecute"), False),
    ],
)
def test_taint_keeps_away_who_does_not_tolerate_it(toleration, admitted):
    node = a_node(cards=1, taints=[Taint(key="team", value="a", effect="NoSchedule")])
    request = asks(1, tolerations=(toleration,) if toleration else ())

    assert bool(places(cycle(a_pool(node), waits("w", request)))) is admitted


def test_preference_taint_keeps_nobody_away():
    node = a_node(cards=1, taints=[Taint(key="team", value="a", effect="PreferNoSchedule")])

    assert places(cycle(a_pool(node), waits("w", asks(1))))


def test_node_name_pins():
    done = cycle(a_pool(a_node("a", cards=1), a_node("b", cards=1)), waits("w", asks(1, node_name="b")))

    assert places(done)["w"][0] == "b"


def test_cards_asked_of_the_generic_pool_are_sent_to_another_entrance():
    done = cycle(a_pool(a_node(cards=1), key=CPU_POOL), waits("w", asks(1), queue=CPU_POOL.name))

    assert reasons(done) == {"w": Why.NEVER_FITS}
    assert "use the entrance of a pool that has" in message(done)


def test_cards_of_another_maker_are_not_given():
    from services.scheduler.domain.request import Request

    done = cycle(a_pool(a_node(cards=1)), waits("w", Request(manufacturer="amd", cards=1)))

    assert reasons(done) == {"w": Why.NEVER_FITS}
    assert "amd.com/gpu" in message(done)


def test_unknown_key_is_named():
    done = cycle(a_pool(a_node(cards=1)), waits("w", asks(1, unknown=("nvidia.com/gpumem",))))

    assert reasons(done) == {"w": Why.NO_NODE_MATCHES}
    assert "nvidia.com/gpumem" in message(done)


def test_form_that_is_not_served_is_never_admitted():
    done = cycle(a_pool(a_node(cards=1)), waits("w", asks(0, not_served="a sliced card")))

    assert reasons(done) == {"w": Why.NOT_SERVED_YET}


def test_queue_that_does_not_exist_is_named():
    done = cycle(a_pool(a_node(cards=1)), waits("w", asks(1), queue=""))

    assert reasons(done) == {"w": Why.QUEUE_NOT_FOUND}
    assert '"gpustack-fnv64-x"' in message(done)


@pytest.mark.parametrize("state", [TypeState(inactive=True), TypeState(deleting=True)])
def test_type_on_hold_admits_nobody(state):
    done = cycle(a_pool(a_node(cards=1)), waits("w", asks(1)), types={TYPE: state})

    assert reasons(done) == {"w": Why.POOL_INACTIVE}


def test_hold_of_one_type_does_not_hold_its_sibling():
    types = {TYPE: TypeState(inactive=True), "a10g-12c128g": TypeState()}

    done = cycle(a_pool(a_node(cards=1)), waits("w", asks(1)), waits("s", asks(1), queue="a10g-12c128g"), types=types)

    assert list(places(done)) == ["s"]


def test_switched_off_workload_waits():
    assert reasons(cycle(a_pool(a_node(cards=1)), waits("w", asks(1), inactive=True))) == {"w": Why.DEACTIVATED}


def test_who_was_told_already_is_not_told_again():
    told = waits("w", asks(2), reason=Why.NO_CAPACITY, message="waiting for 1 more card: 1 of 1 nodes is full")

    assert cycle(a_pool(a_node(cards=2, free=0)), told).holds == ()


def test_changed_sentence_is_told_after_a_while_and_not_at_once():
    pool = a_pool(a_node(cards=2, free=1))
    told = waits("w", asks(2), reason=Why.NO_CAPACITY, message="waiting for 2 more cards: 1 of 1 nodes is full")
    limits = Limits(patience=0, diagnose=0, refresh=10)
    first = decide_cycle(a_snapshot(pool, a_queue(told)), 100.0, limits)
    assert first.state.holds == ()
    assert first.requeue_after == 10

    later = decide_cycle(a_snapshot(pool, a_queue(told), told=first.state.told), 110.0, limits)

    assert later.state.holds[0].verdict.message.startswith("waiting for 1 more card")


def test_diagnosis_is_used_again_for_a_moment_and_then_made_anew():
    pool = a_pool(a_node(cards=1, free=0))
    first = decide_cycle(a_snapshot(pool, a_queue(waits("w", asks(1)))), 100.0, NO_PATIENCE).state
    told = waits("w", asks(1), reason=Why.NO_CAPACITY, message=first.holds[0].verdict.message)
    pool.put(a_node(cards=1, free=0, confirmed=False))

    soon = decide_cycle(a_snapshot(pool, a_queue(told), told=first.told), 100.4, NO_PATIENCE)
    later = decide_cycle(a_snapshot(pool, a_queue(told), told=soon.state.told), 101.0, NO_PATIENCE)

    assert (soon.state.holds, soon.requeue_after) == ((), pytest.approx(0.6))
    assert reasons(later.state) == {"w": Why.NODES_UNCONFIRMED}


PATIENT = Limits(patience=300)


def test_workload_that_waited_too_long_gets_the_nearest_node_kept():
    pool = a_pool(a_node("a", cards=4, free=1), a_node("b", cards=4, free=3))
    big, small = waits("big", asks(4), at=1), waits("small", asks(1), at=400)

    done = cycle(pool, big, small, waits("two", asks(2), at=401), now=500.0, limits=PATIENT)

    assert places(done) == {"small": ("a", "a-gpu-3")}
    assert reasons(done) == {"big": Why.NO_CAPACITY, "two": Why.BEHIND_HIGHER_PRIORITY}
    assert done.holds[1].verdict.message == "node b is kept for default/big, which waits longer"


def test_before_its_patience_ends_nothing_is_kept_and_the_cycle_comes_back_then():
    pool = a_pool(a_node("b", cards=4, free=3))
    snapshot = a_snapshot(pool, a_queue(waits("big", asks(4), at=1), waits("two", asks(2), at=2)))

    decision = decide_cycle(snapshot, 201.0, PATIENT)

    assert list(places(decision.state)) == ["two"]
    assert decision.requeue_after == 100.0


def test_one_node_of_a_pool_is_kept_at_most():
    pool = a_pool(a_node("a", cards=4, free=3), a_node("b", cards=4, free=3))
    huge, big = waits("huge", asks(4), at=1), waits("big", asks(4, cpu_milli=1), at=2)

    done = cycle(pool, huge, big, waits("two", asks(2), at=401), now=500.0, limits=PATIENT)

    assert list(places(done)) == ["two"]


def test_nothing_is_kept_for_who_can_never_fit():
    pool = a_pool(a_node("a", cards=4, free=3))

    done = cycle(pool, waits("huge", asks(100), at=1), waits("two", asks(2), at=401), now=500.0, limits=PATIENT)

    assert list(places(done)) == ["two"]


def test_older_workload_of_higher_priority_may_use_the_kept_node():
    pool = a_pool(a_node("b", cards=4, free=3))

    done = cycle(
        pool, waits("big", asks(4), at=1), waits("vip", asks(3), at=400, priority=1), now=500.0, limits=PATIENT
    )

    assert list(places(done)) == ["vip"]


SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 8)), max_size=25)
NODES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(1, 16)), min_size=1, max_size=6)


def built(nodes, sizes):
    pool = a_pool(
        *(a_node(f"n{i}", cards=cards, free=min(free, cards), cpu=cpu) for i, (cards, free, cpu) in enumerate(nodes))
    )
    work = [
        waits(f"w{i}", asks(cards, cpu_milli=cpu * 1000), priority=priority, at=i)
        for i, (cards, priority, cpu) in enumerate(sizes)
    ]
    return pool, work


@settings(max_examples=200)
@given(NODES, SIZES)
def test_never_over_capacity_and_no_card_twice(nodes, sizes):
    pool, work = built(nodes, sizes)

    done = cycle(pool, *work)

    given_out = list(itertools.chain.from_iterable(a.assignment.devices for a in done.admissions))
    assert len(given_out) == len(set(given_out))
    for name, node in pool.nodes.items():
        here = [a.assignment for a in done.admissions if a.assignment.node_name == name]
        assert set(itertools.chain.from_iterable(a.devices for a in here)) <= set(node.free_cards(POOL.accelerator))
        assert sum(a.cpu_milli for a in here) <= node.cpu_milli
    for admitted in done.admissions:
        assert len(admitted.assignment.devices) == admitted.waiting.demand.request.cards


@settings(max_examples=200)
@given(NODES, SIZES)
def test_nobody_is_left_out_who_fits_what_remains(nodes, sizes):
    pool, work = built(nodes, sizes)

    done = cycle(pool, *work)

    admitted = {a.waiting.name for a in done.admissions}
    left = {name: [len(n.free_cards(POOL.accelerator)), n.cpu_milli] for name, n in pool.nodes.items()}
    for a in done.admissions:
        left[a.assignment.node_name][0] -= len(a.assignment.devices)
        left[a.assignment.node_name][1] -= a.assignment.cpu_milli
    for waiting in work:
        if waiting.name not in admitted:
            asked = waiting.demand.request
            assert not any(asked.cards <= cards and asked.cpu_milli <= cpu for cards, cpu in left.values())


@given(NODES, SIZES, st.randoms(use_true_random=False))
def test_order_in_which_equal_heads_are_given_does_not_matter(nodes, sizes, random):
    pool, work = built(nodes, sizes)
    first = places(cycle(pool, *work))
    random.shuffle(work)

    assert places(cycle(pool, *work)) == first


@given(NODES, SIZES)
def test_kept_rankings_decide_as_fresh_ones_do(nodes, sizes):
    pool, work = built(nodes, sizes)
    for waiting in work:
        pool.ranking(waiting.demand.request)
    for i, (cards, free, cpu) in enumerate(reversed(nodes)):
        pool.put(a_node(f"n{i}", cards=cards, free=min(free, cards), cpu=cpu))
    fresh = a_pool(*pool.nodes.values())

    assert places(cycle(pool, *work)) == places(cycle(fresh, *work))


def test_one_card_and_one_core_are_no_plural():
    done = cycle(a_pool(a_node(cards=2, free=1)), waits("a", asks(2)))
    admitted = status.admitted(
        {}, queue="q", assignment=Assignment(node_name="n1", pool="p", devices=["x"]), entered=1, now="t"
    )

    assert "waiting for 1 more card:" in message(done)
    assert filters.counted(1, "free card") == "1 free card"
    assert filters.counted(0, "card") == "0 cards"
    assert filters.cores(1000) == "1 core"
    assert filters.cores(2000, "free ") == "2 free cores"
    assert admitted["status"]["conditions"][0]["message"] == "on node n1 with 1 card"
