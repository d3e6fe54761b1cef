"""Queues that confirm early, by dice; and what is found when a rule of theirs is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from sim.ring_bench import Bench
from sim.ring_scenarios import publish
from sim.run_async import run_async
from sim.world import Violation
from warren.engine.mirror import Mirror
from warren.replication import effects
from warren.replication.replica import Replica

CHUNK = 5


@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_async(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(20, 80, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_async(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(60):
        counts += run_async(seed).counts
    for what, at_least in {"promised": 10_000, "put aside": 100, "taken back": 10}.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


def forgets_the_bound(self: Replica) -> None:
    """All that is on the master's disk is confirmed, however far the others are behind."""
    index = self.persisted_index
    if self.settings.confirms_early and self.is_serving and index > self._promised_index:
        self._promised_index = index
        self._effects.append(effects.Promise(index))


def puts_nothing_aside(self: Mirror, after_index: int, rows: Any) -> None:
    """What was confirmed and is cut off is gone."""


MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "forgets_the_bound": (Replica, "_promise", forgets_the_bound),
    "puts_nothing_aside": (Mirror, "salvage_promised", puts_nothing_aside),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_is_left_out_is_found(mutant: str) -> None:
    owner, method, instead = MUTANTS[mutant]
    with mock.patch.object(owner, method, instead):
        for seed in range(60):
            try:
                run_async(seed)
            except Violation:
                return
    pytest.fail(f"{mutant} was not noticed")


# -- by hand


def _alone(**settings: Any) -> Bench:
    """A master whose mirrors do not hear it any more."""
    bench = Bench("abc", confirms_early=True, **settings)
    bench.view(1, "abc")
    bench.settle()
    bench.held = {("a", "b"), ("a", "c"), ("b", "a"), ("c", "a"), ("b", "c"), ("c", "b")}
    return bench


def _promised(bench: Bench) -> int:
    return max((it.index for it in bench["a"].told(effects.Promise)), default=0)


def test_the_disk_of_the_master_is_enough() -> None:
    bench = _alone()
    bench["a"].do(publish(1), publish(2))
    assert _promised(bench) == 0
    bench["a"].sync()
    assert _promised(bench) == 3
    assert bench["a"].replica.commit_index == 1
    assert bench["a"].replica.promised == 2
    assert bench["a"].log.applied_index == 1, "nothing is delivered that may be taken back"


def test_not_more_than_may_be_lost() -> None:
    bench = _alone(lag_operations_max=4)
    bench["a"].do(*map(publish, range(10)))
    bench["a"].sync()
    assert bench["a"].replica.promised == 4
    bench.held = set()
    bench.settle()
    assert bench["a"].replica.commit_index == 11
    assert bench["a"].replica.promised == 0


def test_not_while_something_has_waited_for_too_long() -> None:
    bench = _alone(lag_ms_max=100, max_lag_ms=60_000)
    bench["a"].do(publish(1))
    bench["a"].sync()
    assert _promised(bench) == 2
    bench.wait(101)
    bench["a"].do(publish(2))
    bench["a"].sync()
    assert _promised(bench) == 2


def test_a_policy_counts_for_what_comes_after_it() -> None:
    """What was published before is not marked in the log: nobody would bring it back."""
    bench = _alone()
    for node in bench.nodes.values():
        node.replica.settings.confirms_early = False
        node.replica.settings_changed(syncs_again=False)
    bench["a"].do(publish(1))
    bench["a"].replica.settings.confirms_early = True
    bench["a"].replica.settings_changed(syncs_again=False)
    bench["a"].do(publish(2))
    bench["a"].sync()
    assert _promised(bench) == 0
    bench.held = set()
    bench.settle()
    bench.held = {("a", "b")}
    bench["a"].do(publish(3))
    bench["a"].sync()
    assert _promised(bench) == 4


def test_without_as_many_as_there_must_be_nothing_is_confirmed() -> None:
    bench = _alone(min_in_sync=4)
    bench["a"].do(publish(1))
    bench["a"].sync()
    assert _promised(bench) == 0


def test_outside_of_its_hours_a_master_is_alone() -> None:
    bench = Bench("abc", feeds_mirrors=False)
    bench.view(1, "abc")
    bench.settle()
    assert [it.node for it in bench["a"].told(effects.ProposeShrink)] == ["c"]
    bench.view(2, "a", "bc")
    bench.settle()
    bench["a"].do(publish(1), publish(2))
    bench.settle()
    assert bench["a"].replica.commit_index == bench["a"].replica.last_index
    assert bench["b"].log.last_index == 1
    assert bench["a"].replica.positions()["b"] == 1, "how far it was is known"
    bench.settings.feeds_mirrors = True
    for node in bench.nodes.values():
        node.replica.settings_changed(syncs_again=False)
        node.pump()
    bench.settle()
    assert bench["b"].log.last_index == bench["a"].log.last_index
    assert bench["a"].told(effects.ProposeExpand)
