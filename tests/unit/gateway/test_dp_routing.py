"""Which model a name means to a key, and which replica answers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.domain.routing import (
    find_model,
    is_ambiguous,
    may_use,
    pick,
    shown_name,
    unknown_model,
    usable_models,
)
from services.gateway.domain.tables import ADMIN, Endpoint, Index, Key, Model, Tables

A, B, C = (Endpoint("127.0.0.1", port, replica=f"r{port}") for port in (1, 2, 3))
SMALL, BIG = Model("team-a", "small"), Model("team-b", "big")
SHARED_A, SHARED_B = Model("team-a", "chat"), Model("team-b", "chat")
INDEX = Index(Tables(models=(SMALL, BIG, SHARED_A, SHARED_B, Model("team-a", "org/name"), Model("team-b", "org/name"))))


def key(namespace="team-a", role="model-user", models=()):
    return Key("h", "u", namespace, role, models)


def test_the_least_busy_endpoint_is_picked():
    assert pick((A, B, C), {A: 3, B: 1, C: 2}, set(), 0) is B


@pytest.mark.parametrize("turn", range(7))
def test_an_idle_endpoint_is_preferred_to_any_busy_one(turn):
    assert pick((A, B, C), {A: 1, C: 9}, set(), turn) is B


def test_equals_take_turns():
    picked = Counter(pick((A, B, C), {}, set(), turn) for turn in range(30))

    assert picked == {A: 10, B: 10, C: 10}


def test_what_failed_is_not_picked_again():
    assert pick((A, B, C), {B: 5, C: 6}, {A}, 0) is B
    assert pick((A, B), {}, {A, B}, 0) is None


@pytest.mark.parametrize("turn", [0, 1, 10**12])
def test_without_endpoints_there_is_nothing_to_pick(turn):
    assert pick((), {}, set(), turn) is None


@given(
    held=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    tried=st.sets(st.integers(0, 7)),
    turn=st.integers(0, 10**9),
)
def test_no_untried_endpoint_is_less_busy_than_the_picked_one(held, tried, turn):
    endpoints = tuple(Endpoint("h", port) for port in range(len(held)))
    busy = {endpoint: count for endpoint, count in zip(endpoints, held, strict=True) if count}
    away = {endpoints[number] for number in tried if number < len(held)}

    picked = pick(endpoints, busy, away, turn)

    left = [endpoint for endpoint in endpoints if endpoint not in away]
    assert (picked is None) == (not left)
    if picked is not None:
        assert picked in left
        assert busy.get(picked, 0) == min(busy.get(endpoint, 0) for endpoint in left)


def test_load_evens_out_over_endpoints():
    busy: Counter[Endpoint] = Counter()
    for turn in range(31):
        picked = pick((A, B, C), busy, set(), turn)
        assert picked is not None
        busy[picked] += 1

    assert max(busy.values()) - min(busy.values()) <= 1


@pytest.mark.parametrize(
    ("who", "model", "may"),
    [
        (ADMIN, BIG, True),
        (key(), SMALL, True),
        (key(), BIG, False),
        (key(models=("small",)), SMALL, True),
        (key(models=("other",)), SMALL, False),
        (key("team-b", models=("small",)), SMALL, False),
        (key(role="viewer"), SMALL, True),
    ],
)
def test_a_key_opens_models_of_its_namespace_or_those_it_lists_there(who, model, may):
    assert may_use(who, model) is may


@pytest.mark.parametrize(
    ("who", "name", "found"),
    [
        (key(), "small", SMALL),
        (key(), "chat", SHARED_A),
        (key("team-b"), "chat", SHARED_B),
        (key(), "team-a/small", SMALL),
        (key(), "team-b/chat", None),
        (key(), "big", None),
        (key(), "nope", None),
        (key(), "/", None),
        (key(), "team-a/", None),
        (key(), "SMALL", None),
        (ADMIN, "small", SMALL),
        (ADMIN, "chat", None),
        (ADMIN, "team-b/chat", SHARED_B),
        (ADMIN, "team-b/org/name", Model("team-b", "org/name")),
        (key("team-b"), "org/name", Model("team-b", "org/name")),
        (key(models=("chat",)), "small", None),
    ],
)
def test_what_a_name_means_depends_on_who_asks(who, name, found):
    assert find_model(INDEX, who, name) == found


def test_only_several_usable_models_are_ambiguous():
    assert is_ambiguous(INDEX, ADMIN, "chat")
    assert not is_ambiguous(INDEX, key(), "chat")
    assert not is_ambiguous(INDEX, ADMIN, "small")


def test_every_listed_model_is_reached_under_its_shown_name():
    for who in (ADMIN, key(), key("team-b"), key(models=("chat",))):
        listed = usable_models(INDEX, who)
        assert listed
        for model in listed:
            assert find_model(INDEX, who, shown_name(INDEX, who, model)) == model


def test_a_very_long_unknown_name_is_cut_in_the_answer():
    assert len(unknown_model("x" * 10_000_000)) < 400
    assert "'tiny'" in unknown_model("tiny")
