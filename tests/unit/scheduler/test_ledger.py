"""The ledger: integer, exact inverse, rebuilt from what is held whatever the order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.domain import ledger
from services.scheduler.domain.ledger import Difference, Holding, Used
from shared.resources.device import CREDITS_PER_CARD

CARDS = ("gpu-0", "gpu-1", "gpu-2")
HOLDINGS = st.builds(
    Holding,
    node=st.sampled_from(["a", "b"]),
    cards=st.lists(st.sampled_from(CARDS), unique=True).map(tuple),
    credits=st.integers(1, CREDITS_PER_CARD),
    cpu_milli=st.integers(0, 10**6),
    memory_bytes=st.integers(0, 2**40),
)


def applied(counters, steps):
    """What commit.lua does with counters: all or nothing, within bounds."""
    new = dict(counters)
    for step in steps:
        value = new.get((step.node, step.field), 0) + step.delta
        if value < 0 or (step.ceiling is not None and value > step.ceiling):
            return None
        new[step.node, step.field] = value
    return new


@given(st.lists(HOLDINGS), HOLDINGS)
def test_release_undoes_reserve_exactly(others, holding):
    used = Used()
    for other in others:
        used.add(other)
    before = used.amounts()

    used.add(holding)
    used.remove(holding)

    assert used.amounts() == before


@given(st.lists(HOLDINGS), st.randoms(use_true_random=False))
def test_order_of_holdings_does_not_matter(holdings, random):
    shuffled = list(holdings)
    random.shuffle(shuffled)

    assert ledger.rebuild(holdings) == ledger.rebuild(shuffled)


@given(st.lists(HOLDINGS), st.randoms(use_true_random=False))
def test_counters_stay_within_capacity_and_return_to_zero(holdings, random):
    counters, held = {}, []
    for holding in holdings:
        new = applied(counters, ledger.reserve(holding, cpu_milli=10**6, memory_bytes=2**40))
        if new is not None:
            counters = new
            held.append(holding)
        assert all(value >= 0 for value in counters.values())
        assert all(v <= CREDITS_PER_CARD for (_, f), v in counters.items() if f in CARDS)
        assert counters.get((holding.node, "cpu"), 0) <= 10**6
    random.shuffle(held)
    for holding in held:
        counters = applied(counters, ledger.release(holding))

    assert not any(counters.values())


def test_a_card_is_not_handed_out_twice():
    holding = Holding("a", ("gpu-0",))
    once = applied({}, ledger.reserve(holding, cpu_milli=0, memory_bytes=0))

    assert applied(once, ledger.reserve(holding, cpu_milli=0, memory_bytes=0)) is None


def test_release_of_what_is_not_held_is_refused():
    assert applied({}, ledger.release(Holding("a", ("gpu-0",)))) is None


def test_orphan_is_charged_on_top_of_whoever_holds_its_card():
    full = applied({}, ledger.reserve(Holding("a", ("gpu-0",)), cpu_milli=0, memory_bytes=0))

    both = applied(full, ledger.charge(Holding("a", ("gpu-0",))))

    assert both == {("a", "gpu-0"): 2 * CREDITS_PER_CARD}


def test_equal_ledgers_have_no_difference():
    stored = {"epoch": "e1", "changes": "7", "gpu-0": "1600000", "gpu-1": "0", "cpu": "500", "orphan:u": "{}"}

    assert ledger.compare(stored, {"gpu-0": 1_600_000, "cpu": 500}) == []


@pytest.mark.parametrize(
    ("stored", "held", "difference"),
    [
        ({"gpu-0": "1600000"}, {}, Difference("gpu-0", 1_600_000, 0)),
        ({}, {"gpu-0": 1_600_000}, Difference("gpu-0", 0, 1_600_000)),
        ({"cpu": "5"}, {"cpu": 7}, Difference("cpu", 5, 7)),
        ({"memory": "lots"}, {}, Difference("memory", -1, 0)),
    ],
)
def test_drift_is_found(stored, held, difference):
    assert ledger.compare(stored, held) == [difference]


@pytest.mark.parametrize("name", ["epoch", "cpu", "memory", "changes", "", "orphan:x"])
def test_device_id_that_clashes_with_a_ledger_field_is_no_card(name):
    assert not ledger.is_card(name)
