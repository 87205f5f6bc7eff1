import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from services.kvcache.domain.keys import chain


def test_only_full_blocks_have_a_hash():
    assert len(chain(list(range(47)), 16)) == 2
    assert chain(list(range(15)), 16) == []
    assert chain([], 16) == []


def test_a_hash_is_the_seeded_hash_of_little_endian_tokens():
    first = xxhash.xxh3_64_intdigest(b"\x01\0\0\0\x02\0\0\0", 0)
    second = xxhash.xxh3_64_intdigest(b"\x03\0\0\0\xff\xff\xff\xff", first)

    assert chain([1, 2, 3, 0xFFFFFFFF], 2) == [first, second]


def test_a_chain_goes_on_from_its_parent():
    tokens = list(range(64))

    assert chain(tokens[32:], 16, parent=chain(tokens[:32], 16)[-1]) == chain(tokens, 16)[2:]


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_a_token_out_of_range_is_refused(token):
    with pytest.raises(ValueError, match="4294967295"):
        chain([token], 1)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=64), st.lists(st.integers(0, 2**32 - 1), max_size=64))
def test_chains_agree_exactly_as_far_as_prompts_do(one, two):
    same = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    agree = sum(a == b for a, b in zip(chain(one, 4), chain(two, 4), strict=False))

    assert agree == same // 4
