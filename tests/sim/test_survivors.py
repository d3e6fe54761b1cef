"""Most nodes are lost for good, and one goes on by itself: by dice, and with rules left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
import pytest

from sim import run_survivors as survivors
from sim.run_survivors import run_survivors
from sim.world import Violation
from warren.cluster.raft.types import Stored
from warren.cluster.survivors import without

CHUNK = 5


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(0, 10, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_survivors(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(10, 50, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_survivors(seed)


def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(3):
        counts += run_survivors(seed).counts
    assert counts["survived"] == 3
    assert counts["joined"] >= 2
    assert counts["left"] >= 100


# -- rules that are left out


def keeps_the_lost(stored: Stored, _lost: Any) -> Stored:
    """The log stays as it is: the nodes that are lost still vote."""
    return stored


def forgets_the_log(stored: Stored, lost: Any) -> Stored:
    """Of what was agreed on last nothing is kept but who is left."""
    left = without(stored, lost)
    in_snapshot = left.snapshot.index - left.base_index
    return msgspec.structs.replace(left, entries=(*left.entries[:in_snapshot], left.entries[-1]))


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "keeps_the_lost": (survivors, "without", keeps_the_lost),
    "forgets_the_log": (survivors, "without", forgets_the_log),
}
#: How many schedules a mutant has to be caught in.
TRIES = 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_what_is_left_out_is_found(name: str) -> None:
    owner, attribute, instead = MUTANTS[name]
    with mock.patch.object(owner, attribute, instead):
        for seed in range(TRIES):
            try:
                run_survivors(seed)
            except (Violation, AssertionError):
                return
    pytest.fail(f"{name} is not noticed")
