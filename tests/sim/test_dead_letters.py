"""Dead letters by dice, with whole brokers; and what is found when a rule of theirs is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any
from unittest import mock

import pytest

from sim.run_dead_letters import run_dead_letters
from sim.world import Violation
from warren.engine.burials import Burials, Graveyard

CHUNK = 5

#: Seeds that found a fault of the product once, and which.
FOUND = {
    18: "a queue whose copy was dropped was served from an old view, as one without mirrors",
    12: "a node that had just started knew no way for letters yet, and dropped them",
    506: "a log that came back had forgotten epochs of what it had not applied, and matched none",
    176: "none of the product's: one that stopped when all was peaceful was not started again",
    11_000_294: "a node that heard late of moves there and back kept out what it held",
}


@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_dead_letters(seed)


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_what_was_found_before(seed: int) -> None:
    run_dead_letters(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(20, 120, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_dead_letters(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(20, 40):
        counts += run_dead_letters(seed).counts
    for what, at_least in {"letters": 3000, "letters that came twice": 10, "boots": 60}.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


def leaves_when_refused(self: Burials, yard: Graveyard, burial: Any) -> None:
    """A message leaves when its letter is answered, whatever the answer is."""
    burial.refused = False
    self._end(yard, burial)


def never_held(_self: Burials) -> None:
    """A node that starts sends letters at once."""


MUTANTS: list[tuple[str, Callable[..., None]]] = [
    ("_answered", leaves_when_refused),
    ("hold", never_held),
]


#: Few schedules miss some of them; these did once, and are tried first.
MISSED = {"hold": (82, 180, 202, 248)}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "broken"), MUTANTS)
def test_a_rule_that_is_left_out_is_missed(name: str, broken: Callable[..., None]) -> None:
    with mock.patch.object(Burials, name, broken):
        for seed in chain(MISSED.get(name, ()), range(20, 420)):
            try:
                run_dead_letters(seed)
            except Violation:
                return
    pytest.fail(f"nobody misses {name}")
