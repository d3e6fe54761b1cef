"""At least 200,000 mutated inputs: no exception, no hang, no growth, no harm to others.

Set WARREN_FUZZ_SEED for other inputs than the usual, WARREN_FUZZ_INPUTS for more of them.
"""

from __future__ import annotations

import os

import pytest
from fuzzer import Fuzzer

SHARDS = 8
SEED = int(os.environ.get("WARREN_FUZZ_SEED", "20240229"))
INPUTS = int(os.environ.get("WARREN_FUZZ_INPUTS", "208000"))


@pytest.mark.slow
@pytest.mark.timeout(max(300, INPUTS // 100))
@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutated_conversations(shard: int) -> None:
    seed = SEED * 1000 + shard
    print(f"seed {seed}")
    Fuzzer(seed).run(INPUTS // SHARDS)


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, other = Fuzzer(7), Fuzzer(7)
    for _ in range(50):
        one.feed()
        other.feed()
        assert one.input == other.input
