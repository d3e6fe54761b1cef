"""Cursors through crashes, checkpoints, paging and compaction: `cursor_schedules.py` by seeds."""

from __future__ import annotations

import pytest
from cursor_schedules import run_seed
from store_model import Shape
from test_store_findings import bench_with, page_out, write


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_what_was_shown_is_shown_again(first: int) -> None:
    reads = crashes = 0
    for seed in range(first, first + 10):
        schedule = run_seed(seed)
        reads += schedule.reads
        crashes += schedule.crashes
    assert reads > 100
    assert crashes > 20


def test_a_batch_goes_as_far_when_its_messages_are_in_the_log_only() -> None:
    """Its end is found in what is in memory of them, but for the last messages."""
    bench = bench_with(Shape("q"))
    for n in range(700):
        bench.publish([1], True, 1 + n % 90)
        if n % 50 == 0:
            write(bench)
    write(bench)
    for _ in range(30):
        while not bench.get(1, True):
            write(bench)
    write(bench)
    queue = bench.node.queues[1]
    limits = [(rows, 2**62) for rows in (1, 97, 98, 99, 226, 500, 1_000)]
    limits += [(2**62, size) for size in (0, 1, 4_000, 4_001, 20_000, 2**62)]
    limits += [(300, 4_000), (300, 40_000)]

    def admitted() -> list[tuple[int, int, int]]:
        return [
            queue.admit(first, end, *limit)
            for first in (0, 30, 128, 200)
            for end in (256, 300, 700)
            for limit in limits
        ]

    expected = admitted()
    page_out(bench, 1)
    assert sum(spilled for _, _, spilled, _ in queue.index_places()) > 2
    assert admitted() == expected
