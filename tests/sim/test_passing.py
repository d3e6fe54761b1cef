"""Transient queues and clients that acknowledge nothing, by dice, with whole brokers."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import pytest

from sim.run_passing import run_passing
from sim.world import Violation
from warren.engine.mirror import Mirror

CHUNK = 5
_became_master = Mirror._became_master


def test_random_schedules() -> None:
    for seed in range(CHUNK):
        run_passing(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(CHUNK, 30, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_passing(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(30, 50):
        counts += run_passing(seed).counts
    for what, at_least in {"queues gone": 5, "passed": 300, "delivered": 2000}.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


@pytest.mark.parametrize(
    "seed",
    [
        # A node that starts and has to wait for the cluster's word on a transient queue.
        51_000_011,
        51_000_016,
        # What was taken, forgotten with all replicas and sent again is not confirmed then.
        51_000_020,
        # A queue is deleted that this node is about to be the master of, and clients wait for it.
        51_000_059,
        # A gateway sleeps over the end of the only replica, and passes its confirm on afterwards.
        90_000_006,
    ],
)
def test_what_was_found(seed: int) -> None:
    run_passing(seed)


def begins_with_nothing(self: Mirror, effect: Any) -> None:
    """Whoever is promoted takes itself for the first after all were down."""
    self.log.is_cold |= effect.epoch > 1 and not self.log.acts
    _became_master(self, effect)


def test_a_queue_that_goes_too_early_is_missed() -> None:
    with mock.patch.object(Mirror, "_became_master", begins_with_nothing):
        for seed in range(40):
            try:
                run_passing(seed)
            except Violation:
                return
    pytest.fail("nobody misses a queue")
