"""Cursors through crashes, checkpoints, paging and compaction: `cursor_schedules.py` by seeds."""

from __future__ import annotations

import pytest
from cursor_schedules import run_seed


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_what_was_shown_is_shown_again(first: int) -> None:
    reads = crashes = 0
    for seed in range(first, first + 10):
        schedule = run_seed(seed)
        reads += schedule.reads
        crashes += schedule.crashes
    assert reads > 100
    assert crashes > 20
