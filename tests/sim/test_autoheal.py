"""Partitions that heal by merging, by dice; and what is found when a rule of theirs is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from sim.run_autoheal import MemoryForkFiles, run_autoheal
from sim.world import Violation
from warren.engine import fork_merging

CHUNK = 4


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(0, 12, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_autoheal(seed)


def test_a_queue_that_was_without_a_master_can_be_had_again() -> None:
    run_autoheal(11_000_049)


def test_what_waits_for_the_master_here_is_not_given_to_a_gateway_that_leads_nowhere() -> None:
    """Its numbers stayed there for ever, one for each publish that a fork had not answered."""
    run_autoheal(12_000_000)


def test_what_a_client_got_between_a_fork_and_its_merge_is_settled_at_the_master() -> None:
    """Both are the same node, and what that gives out as the master stayed with nobody."""
    run_autoheal(13_000_184)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(12, 64, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_autoheal(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        counts += run_autoheal(seed).counts
    for what, at_least in {
        "queue.fork_opened": 30,
        "queue.fork_merged": 30,
        "brought back": 300,
        "acks applied": 40,
    }.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


# -- rules that are left out


def keeps_no_file(_self: MemoryForkFiles, _note: Any, _rows: bytes) -> None:
    """Clients are told that a fork has it, and a restart knows of no fork."""


def applies_no_acks(*_them: Any) -> int:
    """What clients of a fork have acknowledged stays in the queue."""
    return fork_merging.BUSY - 1


def takes_again(*_them: Any) -> bool:
    """The master takes a message as often as it is told of it."""
    return False


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "keeps_no_file": (MemoryForkFiles, "keep", keeps_no_file),
    "applies_no_acks": (fork_merging, "let_leave", applies_no_acks),
    "takes_again": (fork_merging, "came_before", takes_again),
}
#: Seeds that tell each from the product. Dice fall otherwise with each change of the product, so
#: others are tried after them; one in thirty tells `applies_no_acks`, one in four the other two.
CAUGHT_BY = {"keeps_no_file": (3,), "applies_no_acks": (61, 102, 106, 109), "takes_again": (2,)}
TRIES = 240


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_is_left_out_is_found(mutant: str) -> None:
    owner, method, instead = MUTANTS[mutant]
    with mock.patch.object(owner, method, instead):
        for seed in (*CAUGHT_BY[mutant], *range(TRIES)):
            try:
                run_autoheal(seed)
            except Violation:
                return
    pytest.fail(f"{mutant} is not caught by {TRIES} seeds")
