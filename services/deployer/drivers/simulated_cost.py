"""The cost model and prefix cache of the simulated engine: how long a prompt takes, and which of its blocks are known.

Pure but for the clock of nobody: durations in, durations out. Read next: simulated_engine.py.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one replica takes. Rates of 0 cost no time."""

    start_seconds: float = 0.0
    prefill_rate: float = 0.0
    """Tokens a second of a prompt that is not cached."""
    decode_rate: float = 0.0
    """Tokens a second of one answer alone on the engine."""
    crowding: float = 0.05
    """How much slower a token gets for each further request that runs."""
    block_size: int = 16
    cache_blocks: int = 4096

    def prefill_seconds(self, tokens: int) -> float:
        """Until the first token of a prompt with so many unknown tokens."""
        return tokens / self.prefill_rate if self.prefill_rate else 0.0

    def token_seconds(self, running: int) -> float:
        """Until the next token while so many requests run."""
        return (1 + self.crowding * max(0, running - 1)) / self.decode_rate if self.decode_rate else 0.0


BlocksChanged = Callable[[list[list[int]], list[int]], None]
"""(stored chains [parent, hash, ...], removed hashes)."""


class PrefixCache:
    """Which blocks of prompts are known, least recently used first."""

    def __init__(self, cost: Cost, changed: BlocksChanged | None = None) -> None:
        self.queries = 0
        self.hits = 0
        self._cost = cost
        self._changed = changed
        self._known: OrderedDict[int, None] = OrderedDict()

    @property
    def usage(self) -> float:
        """Fraction of the cache in use."""
        return len(self._known) / self._cost.cache_blocks if self._cost.cache_blocks else 0.0

    def take(self, tokens: Sequence[int]) -> int:
        """Know a prompt from now on; how many of its tokens were known before."""
        hashes = chain(tokens, self._cost.block_size)
        known = 0
        while known < len(hashes) and hashes[known] in self._known:
            self._known.move_to_end(hashes[known])
            known += 1
        self.queries += len(tokens)
        self.hits += known * self._cost.block_size
        if known < len(hashes):
            self._store(hashes, known)
        return known * self._cost.block_size

    def _store(self, hashes: Sequence[int], known: int) -> None:
        self._known.update(dict.fromkeys(hashes[known:]))
        removed = [self._known.popitem(last=False)[0] for _ in range(len(self._known) - self._cost.cache_blocks)]
        if self._changed is not None:
            self._changed([[hashes[known - 1] if known else 0, *hashes[known:]]], removed)


def tokens_of(text: str) -> list[int]:
    """A made-up tokenizer: a word is a token, its number the CRC of the word."""
    return [zlib.crc32(word) for word in text.encode(errors="surrogatepass").split()]


def chain(tokens: Sequence[int], block_size: int) -> list[int]:
    """Hashes of the full blocks, each seeded with its parent's: xxh3-64 where it is installed, as the index has it."""
    packed = array("I", tokens)
    if sys.byteorder == "big":
        packed.byteswap()
    data, step, parent, hashes = packed.tobytes(), block_size * 4, 0, []
    for start in range(0, len(data) - step + 1, step):
        parent = _hash(data[start : start + step], parent)
        hashes.append(parent)
    return hashes


def _hash(data: bytes, seed: int) -> int:
    if _xxh3 is not None:
        return int(_xxh3(data, seed))
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "little") + data, digest_size=8).digest(), "little")


def _xxhash() -> Callable[[bytes, int], int] | None:
    """Without it the index never matches this engine's blocks, and nothing else changes."""
    try:
        from xxhash import xxh3_64_intdigest
    except ImportError:
        return None
    return xxh3_64_intdigest


_xxh3 = _xxhash()
