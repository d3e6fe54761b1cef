"""Whole brokers by dice, whose operators drain, revive, rebalance, transfer and name mirrors."""

from __future__ import annotations

from collections import Counter

import pytest

from sim.operator_mutants import MUTANTS, mutant
from sim.run_operators import run_operators
from sim.world import Violation
from warren.replication.types import ProtocolError

CHUNK = 5
#: How many schedules a mutant has to be caught in.
TRIES = 40

#: Seeds that found a fault of the product, or of the reckoning, once, and which.
FOUND = {
    11: "a copy of a queue with priorities began where one of an earlier life had ended",
    61_000_034: "what a home gave to a get of a client that was gone was not waited for",
}


@pytest.mark.parametrize("first", range(0, 10, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_operators(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(10, 60, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_operators(seed)


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_what_was_found_before(seed: int) -> None:
    run_operators(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutants_are_caught(name: str) -> None:
    with mutant(name):
        for seed in range(100, 100 + TRIES):
            try:
                run_operators(seed)
            except (Violation, ProtocolError):
                return
    pytest.fail(f"{name} is not caught by {TRIES} seeds")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(10):
        counts += run_operators(seed).counts
    for what in ("drained", "revived", "links", "rebalancings", "transfers", "handovers"):
        assert counts[what] > 10, f"{what}: {counts[what]} times"
    assert counts["links in the end"]
    assert counts["drained in the end"]


def test_a_seed_is_the_same_again() -> None:
    assert run_operators(3).fingerprint == run_operators(3).fingerprint
