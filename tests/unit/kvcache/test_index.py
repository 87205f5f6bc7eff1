import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kvcache.domain.index import Holder, PrefixIndex
from services.kvcache.domain.keys import chain

M = ("m", 16)


@pytest.fixture
def index():
    return PrefixIndex(1000)


def sweep(index):
    return sum(index.swept())


def test_the_longest_start_of_a_prompt_wins(index):
    index.store("a", M, [1, 2, 3])
    index.store("b", M, [1, 2, 3, 4])
    index.store("c", M, [2, 3, 4])

    assert index.find(M, [1, 2, 3, 4, 5]) == [Holder("b", 4), Holder("a", 3)]


def test_a_prefix_that_nobody_starts_has_no_holder(index):
    index.store("a", M, [1, 2, 3])

    assert index.find(M, [9, 2, 3]) == []
    assert index.find(M, []) == []
    assert index.find(("other", 16), [1]) == []
    assert index.find(("m", 32), [1]) == []


def test_equal_last_blocks_after_other_prefixes_share_nothing():
    one, two, same = chain([1] * 32 + [9] * 16, 16), chain([2] * 32 + [9] * 16, 16), chain([1] * 32 + [9] * 16, 16)

    assert one == same
    assert not set(one) & set(two)


def test_a_removed_block_ends_the_prefix_there(index):
    index.store("a", M, [1, 2, 3])
    index.remove("a", M, [2, 77])

    assert index.find(M, [1, 2, 3]) == [Holder("a", 1)]


def test_removing_is_only_for_who_held_it(index):
    index.store("a", M, [1])
    index.store("b", M, [1])
    index.remove("b", M, [1])
    index.remove("stranger", M, [1])

    assert index.find(M, [1]) == [Holder("a", 1)]


def test_a_dropped_replica_holds_nothing_at_once(index):
    index.store("a", M, [1, 2])
    index.store("b", M, [1, 2])

    assert index.drop("a")
    assert not index.drop("a")

    assert index.find(M, [1, 2]) == [Holder("b", 2)]


def test_a_new_replica_never_inherits_what_a_gone_one_held(index):
    for number in range(200):
        index.store(f"r{number}", M, [number, number + 1])
        index.drop(f"r{number - 1}")
        if number % 7 == 0:
            sweep(index)
        index.store("x", M, [])
        index.drop("x")

    index.store("new", M, [5000])

    assert [h.replica for n in range(200) for h in index.find(M, [n])] == ["r199"]
    assert index.find(M, [5000]) == [Holder("new", 1)]


def test_sweeping_frees_blocks_and_places(index):
    index.store("keep", M, [1])
    for number in range(100):
        index.store(f"r{number}", M, [1, 2, 3 + number])
        index.drop(f"r{number}")
    assert index.blocks == 102

    sweep(index)

    assert index.blocks == 1
    table = index._tables[M]
    assert table.dead == 0
    assert table.place("next") == 2


def test_what_is_stored_between_steps_of_a_sweep_stays(index, monkeypatch):
    monkeypatch.setattr("services.kvcache.domain.index.SLICE", 10)
    index.store("gone", M, list(range(50)))
    index.store("keep", M, [0])
    index.drop("gone")
    steps = index.swept()

    next(steps)
    index.store("new", M, list(range(50)))
    list(steps)

    assert index.find(M, list(range(50))) == [Holder("new", 50), Holder("keep", 1)]


def test_a_gap_in_the_sequence_forgets_the_replica(index):
    assert index.follow("a", 7)
    index.store("a", M, [1, 2])
    assert index.follow("a", 8)
    index.store("b", M, [1])

    assert not index.follow("a", 10)

    assert index.find(M, [1, 2]) == [Holder("b", 1)]
    index.store("a", M, [1])
    assert index.follow("a", 11)
    assert index.find(M, [1]) == [Holder("b", 1), Holder("a", 1)] or index.find(M, [1])[0].blocks == 1


@pytest.mark.parametrize("number", [8, 5, 0])
def test_a_replica_that_counts_anew_has_begun_anew(index, number):
    for sequence in (7, 8):
        index.follow("a", sequence)
    index.store("a", M, [1])

    assert not index.follow("a", number)
    assert index.find(M, [1]) == []


def test_the_table_that_was_longest_without_news_goes_first():
    index = PrefixIndex(30)
    index.store("a", ("old", 16), list(range(20)))
    index.store("a", ("new", 16), list(range(10)))
    index.store("a", ("old", 16), [1])

    index.store("a", ("third", 16), list(range(5)))

    assert index.find(("new", 16), [0]) == []
    assert index.find(("old", 16), [0]) == [Holder("a", 1)]
    assert index.blocks <= 30


def test_one_table_alone_sheds_its_oldest_blocks():
    index = PrefixIndex(100)
    for number in range(50):
        index.store("a", M, [number * 10 + n for n in range(10)])

    assert index.blocks <= 100
    assert index.find(M, [499]) == [Holder("a", 1)]
    assert index.find(M, [0]) == []


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["store", "remove", "drop", "sweep"]),
        st.sampled_from("abc"),
        st.lists(st.integers(1, 8), max_size=5),
    ),
    max_size=40,
)


@given(OPERATIONS, st.lists(st.integers(1, 8), max_size=6, unique=True))
def test_the_index_agrees_with_plain_sets(operations, prompt):
    index, plain = PrefixIndex(1000), {replica: set() for replica in "abc"}
    for what, replica, hashes in operations:
        if what == "store":
            index.store(replica, M, hashes)
            plain[replica] |= set(hashes)
        elif what == "remove":
            index.remove(replica, M, hashes)
            plain[replica] -= set(hashes)
        elif what == "drop":
            index.drop(replica)
            plain[replica].clear()
        else:
            sweep(index)

    expected = {}
    for replica, held in plain.items():
        depth = next((n for n, block in enumerate(prompt) if block not in held), len(prompt))
        if depth:
            expected[replica] = depth

    found = index.find(M, prompt)
    assert {holder.replica: holder.blocks for holder in found} == expected
    assert [holder.blocks for holder in found] == sorted(expected.values(), reverse=True)
