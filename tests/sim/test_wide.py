"""Whole brokers by dice, with limits, lifetimes, losses, damage, and nodes that come and go."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count, islice
from pathlib import Path

import pytest

from sim.run_wide import NAMESPACE, run_wide
from sim.test_aimed import CAUGHT as AIMED
from sim.wide_mutants import MUTANTS, mutant
from sim.wide_plan import make_plan
from sim.world import Violation
from warren.replication.types import ProtocolError

CHUNK = 5

#: Seeds that found a fault of the product, or of the reckoning, once, and which.
FOUND = {
    6: "a copy that had lost messages to a damaged disk told the others that they were gone",
    28: "the same",
    53: "what stood before the point that two logs share was cut off, and not put aside",
    198: "a consumer that waited for an adoption was given messages, and kept them when it left",
    461: "one that joined anew took an earlier life for its own, and asked no more",
    322: "a mirror counted as in sync though its disk had spoiled what a checkpoint covers",
    51_000_228: "the same",
    51_000_378: "the same",
    3_000_072: "the same",
    3_000_347: "a home that was given up went on to send, and ended who listened",
    61_000_021: "who missed an operation sent those behind it as if there had been none",
    61_000_130: "damage was forgotten with the life of a node that found it and could tell nobody",
    65_000_098: "after damage a queue that had expired was back on its node, and got a second view",
    64_010_108: "a new machine joined under a name that was still a voter's: nobody up could know",
    65_000_007: "the same",
    64_000_175: "publishes whose client was gone came late, and what they had dropped was missed",
    11_000_107: "publishes of a client that was gone came to their queue while it was drained",
}
#: Rules that are missed when they are left out, the kind of schedule that misses them, and seeds
#: that did once.
CAUGHT = {
    "DropsWithoutSalvage": ("unclean", (371, 3107)),
    "IgnoresTheFloor": ("floor", (27,)),
    "PutsNothingAside": ("unclean", (3027, 1115, 3307, 6056)),
    "ReadsNothingOver": ("flips", (656, 3383)),
    "TellsNoLoss": ("unclean", (53,)),
}
#: ... and those that tests of their own catch.
SCRUBBED = {"CountsUnread", "ForgetsDamage"}
#: How many schedules of that kind are tried, where those that it was are others by now. One in
#: forty tells `PutsNothingAside`, one in a hundred and fifty `DropsWithoutSalvage`.
TRIES = 160


@pytest.mark.parametrize("first", range(0, 10, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_wide(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(10, 40, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_wide(seed)


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_what_was_found_before(seed: int) -> None:
    run_wide(seed)


def seeds_of(theme: str) -> Iterator[int]:
    """Those of schedules of a kind, or of any."""
    return (
        seed
        for seed in count(20)
        if not theme or make_plan(random.Random(NAMESPACE + seed)).theme == theme
    )


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_mutants_are_caught(name: str) -> None:
    theme, known = CAUGHT[name]
    with mutant(name):
        for seed in chain(known, islice(seeds_of(theme), TRIES)):
            try:
                run_wide(seed)
            except (Violation, ProtocolError, AssertionError, ValueError):
                return
    pytest.fail(f"{name} is not caught by {TRIES} seeds")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for theme, schedules in {"unclean": 10, "flips": 4, "members": 4, "floor": 2}.items():
        for seed in islice(seeds_of(theme), schedules):
            counts += run_wide(seed).counts
    for what in ("unclean", "put aside", "bits", "damaged", "joined", "forgotten"):
        assert counts[what], f"no {what}"
    for what in ("expired", "dropped", "rolled back", "confirmed with a floor"):
        assert counts[what] > 10, f"{what}: {counts[what]} times"


def test_a_seed_is_the_same_everywhere() -> None:
    """In this process and in others that hash texts otherwise, whatever has been collected."""
    prints = {run_wide(seed).fingerprint for seed in (53,)}
    code = "from sim.run_wide import run_wide; print(run_wide(53).fingerprint)"
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


def test_all_mutants_are_known() -> None:
    assert CAUGHT.keys() | AIMED.keys() | SCRUBBED == MUTANTS.keys()
