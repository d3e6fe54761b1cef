"""Whole brokers by dice, and trouble that is aimed at one rule; who leaves that out is found."""

from __future__ import annotations

from collections import Counter

import pytest

from sim.run_aimed import AIMS, run_aimed
from sim.wide_mutants import mutant
from sim.world import Violation
from warren.replication.types import ProtocolError

CHUNK = 4
#: Rules that are missed when they are left out, what schedules are aimed at that miss them, and a
#: seed that did once.
CAUGHT = {
    "StaysAbsent": ("alone", 0),
    "DeletesAsAnybody": ("expiry", 29),
    "GovernsLate": ("held", 10),
    "DeclaresNoDamage": ("dark", 15),
}
#: How many schedules of that kind are tried, where the one that it was is another by now.
TRIES = 80


def test_random_schedules() -> None:
    for seed in range(CHUNK):
        run_aimed(seed)


def test_a_message_that_the_master_cannot_read() -> None:
    """The others had it, and threw it away with the master."""
    run_aimed(51000071)


def test_a_handover_that_a_master_who_was_cut_off_could_tell_nobody_of() -> None:
    """It believed afterwards to know what the new master had to flag, and did not flag it."""
    run_aimed(11000141)


def test_a_queue_whose_master_went_away_and_came_back_before_it_looked_again_who_uses_it() -> None:
    """What stood for it before looked, saw nobody, and had the queue removed that was used."""
    run_aimed(11000069)


def test_a_spoiled_end_of_the_log_looks_like_an_append_that_was_not_finished() -> None:
    """It was confirmed; who had it was down, and who had cut it off served alone."""
    run_aimed(11000127)


def test_a_master_that_was_replaced_answers_a_get_and_nobody_else_can_know() -> None:
    """It had been cut off, and did not know it yet when the others had not seen it for long."""
    run_aimed(13000293)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(CHUNK, 20, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_aimed(seed)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_mutants_are_caught(name: str) -> None:
    aim, once = CAUGHT[name]
    others = range(AIMS.index(aim), TRIES * len(AIMS), len(AIMS))
    with mutant(name):
        for seed in (once, *others):
            try:
                run_aimed(seed)
            except (Violation, ProtocolError):
                return
    pytest.fail(f"{name} is not caught by {TRIES} seeds")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40, 64):
        counts += run_aimed(seed).counts
    for what, at_least in {"bits": 6, "damaged": 1, "queues expired": 5, "expired": 300}.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"
