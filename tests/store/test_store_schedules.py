"""The whole store on a disk that fails: what was promised comes back, whatever happens when."""

from __future__ import annotations

import pytest
from store_schedules import run

SCHEDULES = 2000
CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_the_store_promised_survives(chunk: int) -> None:
    crashes = sum(run(seed).crashes for seed in range(chunk, SCHEDULES, CHUNKS))
    assert crashes > SCHEDULES / CHUNKS


def test_the_same_seed_is_the_same_schedule() -> None:
    for seed in range(10):
        one, two = run(seed), run(seed)
        files = one.disk.names()
        assert files == two.disk.names()
        assert [one.disk.read(name) for name in files] == [two.disk.read(name) for name in files]
