"""Whole brokers by dice: the product's own engine, queues, store, gateways and placement."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sim.broker_cluster import BrokerCluster
from sim.run import settings_for
from sim.run_broker import run_broker
from warren.store.faulty_disk import Faults

CHUNK = 10

#: Seeds that found a fault of the product once, and which.
FOUND = {
    17: "a get that was sent again on the next link was never out by that one, and so for ever",
    179: "the same",
    1023: "who began to serve in the middle of a handover delivered behind its back",
    1054: "a node that started dropped its copy by an old view, the only one there was",
    1055: "a queue that had moved on was made anew by the restart of its first home",
    1071: "a policy that was changed to automatic filled nobody",
    1090: "who never served took the place of what stood for the queue, with unanswered publishes",
    12_000_584: "a node that had just started was asked for a queue of which it knew no view yet",
    12_000_612: "a node that heard late of moves there and back kept out what it held",
    12_000_355: "what a master took back stayed open, and what came in its place was not flagged",
}


@pytest.mark.parametrize("first", range(0, 40, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_broker(seed)


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_what_was_found_before(seed: int) -> None:
    run_broker(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", [*range(40, 400, CHUNK), *range(1_000, 1_150, CHUNK)])
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_broker(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60, 82):
        counts += run_broker(seed).counts
    least = {
        "confirmed": 2000,
        "delivered": 1000,
        "redelivered": 100,
        "unknown": 20,
        "boots": 100,
        "view planned": 20,
        "propose Expand": 60,
        "propose Handover": 20,
    }
    for what, at_least in least.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


def test_a_node_whose_disk_fails_when_it_starts_is_started_again() -> None:
    cluster = BrokerCluster(7, 3, settings=settings_for(random.Random(7)))
    cluster.start()
    cluster.found()
    node = cluster.nodes["n1"]
    node.stop()
    assert cluster.run_until(lambda: not node.is_up, 20_000)
    node.platter.faults = Faults(sync_error=1.0)
    node.start()
    assert not node.is_up
    assert cluster.run_until(lambda: node.is_ready, 20_000)
    assert "/" in node.engine.vhosts


def test_a_seed_is_the_same_everywhere() -> None:
    """Twice in this process, and in others that hash texts otherwise."""
    seed = 3
    prints = {run_broker(seed).fingerprint, run_broker(seed).fingerprint}
    code = f"from sim.run_broker import run_broker; print(run_broker({seed}).fingerprint)"
    tests = str(Path(__file__).parent.parent)
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": tests},
            capture_output=True,
            text=True,
            check=True,
        )
        prints.add(ran.stdout.strip())
    assert len(prints) == 1
