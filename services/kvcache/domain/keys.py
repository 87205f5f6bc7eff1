"""Tokens to block hashes: each block's hash is seeded with its parent's, so it names the whole prefix.

Pure. Two chains that end in the same tokens after different prefixes share no hash. Only full blocks have one.
Engines and this index must compute the same: xxh3_64 over little-endian uint32 tokens, seeded with the parent's hash,
0 for the first block. Read next: index.py.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

ROOT = 0
"""Parent of the first block."""
_TOKEN_BYTES = 4


def token_bytes(tokens: Sequence[int]) -> bytes:
    """Tokens as little-endian uint32.

    Raises:
        ValueError: a token is negative or over 32 bits.
    """
    try:
        packed = array("I", tokens)
    except OverflowError as error:
        raise ValueError("a token is a number from 0 to 4294967295") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def chain(tokens: Sequence[int], block_size: int, parent: int = ROOT) -> list[int]:
    """The hash of every full block, in order; tokens after the last full block have none.

    Raises:
        ValueError: a token is out of range.
    """
    from xxhash import xxh3_64_intdigest

    data = token_bytes(tokens)
    step = block_size * _TOKEN_BYTES
    hashes = []
    for start in range(0, len(data) - step + 1, step):
        parent = xxh3_64_intdigest(data[start : start + step], parent)
        hashes.append(parent)
    return hashes
