"""Readers by position and producers of batches, by dice, with whole brokers."""

from __future__ import annotations

from collections import Counter

import pytest

from sim.cursor_mutants import MUTANTS
from sim.run_cursors import run_cursors
from sim.world import Violation

CHUNK = 10


def test_random_schedules() -> None:
    for seed in range(CHUNK):
        run_cursors(seed)


def test_a_cursor_that_its_reader_was_never_told_of() -> None:
    run_cursors(11_000_021)


def test_a_reader_that_comes_to_a_master_that_was_replaced_and_does_not_know_it() -> None:
    run_cursors(12_000_137)


def test_a_batch_of_which_consumers_had_taken_a_part_before_there_was_the_cursor() -> None:
    run_cursors(13_000_235)


def test_a_node_that_was_stopped_and_whose_disk_would_fail_at_its_next_start() -> None:
    run_cursors(91_010_005)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(CHUNK, 70, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_cursors(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(70, 90):
        counts += run_cursors(seed).counts
    least = {"opened": 200, "trimmed": 400, "read": 50_000, "batches": 200, "rivals": 400,
             "read at a mirror": 300}  # fmt: skip
    for what, at_least in least.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutants_are_caught(name: str) -> None:
    with MUTANTS[name]():
        for seed in range(120):
            try:
                run_cursors(seed)
            except (Violation, AssertionError, KeyError, ValueError):
                return
    pytest.fail(f"{name} is not caught by 120 seeds")
