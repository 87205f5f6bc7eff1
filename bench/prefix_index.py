"""The prefix index: blocks a second in, microseconds for a 128-block prompt. Prints one JSON object.

Reach: insert >= 3 M blocks/s, a 128-block match <= 30 us (15 us warm). Each figure is the best of several rounds:
what the code takes, not what the neighbours on the machine left of it. Run: python -m bench.prefix_index.
Read next: services/kvcache/domain/index.py.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from services.kvcache.domain.index import PrefixIndex
from services.kvcache.domain.keys import chain

SCOPE = ("model", 16)
BLOCKS, CHAIN, REPLICAS = 1_000_000, 128, 16
ROUNDS = 5


def best(work: Callable[[], None], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def filled(chains: Sequence[Sequence[int]], shift: int = 0, index: PrefixIndex | None = None) -> PrefixIndex:
    index = index or PrefixIndex(2 * BLOCKS)
    for number, told in enumerate(chains):
        index.store(f"replica-{(number + shift) % REPLICAS}", SCOPE, told)
    return index


def measure() -> dict[str, float]:
    rng = random.Random(7)
    chains = [[rng.getrandbits(64) for _ in range(CHAIN)] for _ in range(BLOCKS // CHAIN)]
    index = filled(chains)
    hot = chains[:50]
    for replica in range(REPLICAS):
        for told in hot:
            index.store(f"replica-{replica}", SCOPE, told)
    cold = chains[100:3100]
    strangers = [[rng.getrandbits(64) for _ in range(CHAIN)] for _ in range(3000)]
    tokens = [rng.randrange(32_000) for _ in range(CHAIN * 16)]

    def finding(prompts: Sequence[Sequence[int]]) -> float:
        return best(lambda: [index.find(SCOPE, told) for told in prompts] and None) / len(prompts) * 1e6

    inserted = best(lambda: filled(chains) and None, 3)
    again = best(lambda: filled(chains, 1, index) and None, 3)
    figures = {
        "insert_new_blocks_per_s": BLOCKS / inserted,
        "insert_known_blocks_per_s": BLOCKS / again,
        "match_128_warm_16_holders_us": finding(hot),
        "match_128_cold_1_holder_us": finding(cold),
        "miss_us": finding(strangers),
        "hash_2048_tokens_us": best(lambda: chain(tokens, 16) and None, 200) * 1e6,
        "bytes_per_block": bytes_per_block(chains),
    }
    index.drop("replica-0")
    figures["sweep_blocks_per_s"] = BLOCKS / best(lambda: sum(index.swept()) and None, 1)
    return {name: round(value, 2) for name, value in figures.items()}


def bytes_per_block(chains: Sequence[Sequence[int]]) -> float:
    before = resident()
    fresh = [[block + 1 for block in told] for told in chains]
    held = resident() - before
    index = filled(fresh)
    grown = resident() - before
    assert index.blocks
    assert held >= 0
    return grown / BLOCKS


def resident() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    print(json.dumps({"prefix_index": measure()}, indent=1))
