"""Random schedules, hand-made ones, and that a seed says it all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sim import scenarios
from sim.run import run_seed

TESTS = Path(__file__).parents[1]
CHUNK = 25
#: How often each thing happens in forty schedules, at least.
LEAST = {
    "leaders": 100,
    "answered": 1000,
    "reads": 500,
    "boots": 300,
    "writes lost": 20,
    "truncations": 10,
    "InstallSnapshot": 100,
    "restored": 50,
    "learner": 10,
    "promoted": 10,
    "removed": 10,
    "TimeoutNow": 5,
    "ReadReply": 50,
}


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_600, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


@pytest.mark.parametrize("scenario", scenarios.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_hand_made_schedules(scenario: scenarios.Scenario) -> None:
    for seed in range(3):
        scenario(seed)


@pytest.mark.slow
def test_a_new_leader_is_found_in_time() -> None:
    for seed in range(100):
        scenarios.leader_dies(seed)


def test_schedules_are_not_empty() -> None:
    """What happens in forty of them: everything that a rule is there for, and often."""
    results = [run_seed(seed) for seed in range(300, 340)]
    assert all(result.commits > 5 and result.strikes > 5 for result in results)
    assert len({result.fingerprint for result in results}) == len(results)
    counts: Counter[str] = sum((result.counts for result in results), Counter())
    counts["leaders"] = sum(result.leaders for result in results)
    counts["answered"] = sum(result.answered for result in results)
    counts["reads"] = sum(result.reads for result in results)
    print(counts)
    for what, least in LEAST.items():
        assert counts[what] >= least, f"{what}: {counts[what]} times"


def test_a_seed_says_it_all() -> None:
    """The same seeds leave the same traces in two processes that hash differently."""
    program = (
        "from sim.run import run_seed\nfor seed in range(6): print(run_seed(seed).fingerprint)"
    )
    traces = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=TESTS,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        traces.append(done.stdout.split())
    assert len(traces[0]) == 6
    assert traces[0] == traces[1]
