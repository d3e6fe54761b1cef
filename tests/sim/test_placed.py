"""Placement in the simulator: policies flip, nodes come and go, and the last policy wins."""

from __future__ import annotations

from collections import Counter

import pytest

from sim.run_placed import run_placed
from warren.cluster.member_effects import Change, Why

CHUNK = 10


@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_placed(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(10_000, 10_100, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_placed(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[object] = Counter()
    for seed in range(300, 315):
        result = run_placed(seed)
        counts += result.counts
        counts["queues"] += result.queues
    least = {
        "queues": 150,
        "views": 2_000,
        Change.DOWN: 50,
        Change.REGISTERED: 200,
        Change.RESTORED: 50,
        Why.CONFLICT: 50,
    }
    for what, at_least in least.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"
