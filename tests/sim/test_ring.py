"""Mirrored queues: by dice, and by hand what dice do not look at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sim.ring_bench import Bench
from sim.ring_scenarios import check_equal, check_written, copied, publish
from sim.run_ring import run_ring
from warren.replication import effects
from warren.replication.types import Role

CHUNK = 10


@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_ring(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(10_000, 10_300, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_ring(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[str] = Counter()
    for seed in range(300, 400):
        counts += run_ring(seed).counts
    least = {
        "confirmed": 2000,
        "redelivered": 200,
        "views": 400,
        "expanded": 80,
        "truncated": 10,
        "chunks": 100,
        "inherited": 1,
        "writes lost": 5,
        "aimed expanded": 10,
        "aimed adopted": 10,
        "aimed synced": 2,
        "aimed moved": 5,
        "aimed shrunk": 5,
    }
    for what, at_least in least.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


def test_the_same_seed_is_the_same_schedule_in_every_process() -> None:
    script = "from sim.run_ring import run_ring; print(run_ring(5).fingerprint)"
    prints = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        tests = Path(__file__).parents[1]
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            cwd=tests,
            capture_output=True,
            check=True,
        )
        prints.add(done.stdout)
    assert len(prints) == 1


# -- by hand


def test_commit_goes_alone_after_5_ms() -> None:
    bench = Bench("abc")
    bench.view(1, "abc")
    bench.settle()
    bench["a"].do(publish(1))
    bench.settle()
    assert bench["a"].replica.commit_index == 2
    bench.wait(4)
    bench.settle()
    assert bench["c"].replica.commit_index < 2
    bench.wait(1)
    bench.settle()
    assert bench["b"].log.applied_index == bench["c"].log.applied_index == 2
    assert bench["a"].replica.next_tick_ms > bench.now_ms + 1_000_000, "idle queues cost nothing"


def test_operations_are_forwarded_before_they_are_written() -> None:
    bench = Bench("abc")
    bench.view(1, "abc")
    bench.settle()
    bench["a"].do(publish(1))
    bench.take("a", "b")
    bench.take("b", "c")
    assert bench["c"].log.last_index == 2
    assert bench["b"].disk.last == 1


def test_laggard_is_found_and_put_out() -> None:
    bench = Bench("abc", max_lag_ms=1_000, report_ms=100)
    bench.view(1, "abc")
    bench.settle()
    bench["a"].do(publish(1))
    for _ in range(12):
        bench.wait(100)
        for _ in range(3):
            for source, target in (("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")):
                while bench.wire(source, target):
                    bench.take(source, target)
            bench["a"].sync()
            bench["c"].sync()
    assert {one.node for one in bench["a"].told(effects.ProposeShrink)} == {"b"}
    bench.view(2, "ac")
    bench.settle(without="b")
    assert bench["a"].replica.commit_index == bench["a"].log.last_index


def test_below_the_minimum_nothing_is_committed() -> None:
    bench = Bench("ab", min_in_sync=2)
    bench.view(1, "ab")
    bench.settle()
    bench.view(2, "a")
    bench.settle()
    assert not bench["a"].replica.is_serving
    assert not bench["a"].replica.has_enough
    bench.view(3, "a", "b")
    bench.settle()
    assert bench["a"].told(effects.ProposeExpand)[-1].node == "b"
    bench.view(4, "ab")
    bench.settle()
    assert bench["a"].replica.is_serving


def test_below_the_minimum_a_learner_can_still_be_copied() -> None:
    bench = copied_alone = Bench("al", min_in_sync=2)
    bench.view(1, "al")
    bench.settle()
    bench["a"].do(*(publish(number) for number in range(1, 5)))
    bench.settle()
    bench["a"].log._record("compact", bench["a"].log.applied_index)
    bench["l"].disk = type(bench["l"].disk)(bench.rules.state)
    bench["l"].start()
    bench.view(2, "a", "l")
    bench.settle()
    assert not copied_alone["a"].replica.is_serving
    bench["a"].read_chunk()
    bench.settle()
    assert bench["a"].told(effects.ProposeExpand)


def test_publishers_are_held_back_by_the_window() -> None:
    bench = Bench("ab", window_bytes=60)
    bench.view(1, "ab")
    bench.settle()
    bench["a"].do(*(publish(number) for number in range(1, 9)))
    assert bench["a"].replica.is_congested
    bench.settle()
    assert not bench["a"].replica.is_congested


def test_deliveries_survive_a_handover() -> None:
    bench = Bench("ab")
    bench.view(1, "ab")
    bench.settle()
    bench["a"].do(publish(1), publish(2))
    bench["a"].do(("h", [[2, "consumer", 1]]))
    bench["a"].replica.hand_over("b")
    bench["a"].pump()
    assert not bench["a"].told(effects.ProposeHandover), "not before all is committed"
    bench.settle()
    assert bench["a"].told(effects.ProposeHandover)
    bench.view(2, "ba")
    bench.settle()
    state = bench["b"].log.state
    assert bench["b"].told(effects.BecameMaster)[-1].promoted
    assert state.inherited == {2: ("consumer", 1)}
    assert not any(redelivered for _, _, redelivered in state.messages.values())
    assert bench["a"].told(effects.Deposed)


def test_a_handover_that_is_given_up_does_not_count_later() -> None:
    bench = Bench("ab")
    bench.view(1, "ab")
    bench.settle()
    bench["a"].do(publish(1), publish(2))
    bench["a"].do(("h", []))
    bench["a"].replica.hand_over("b")
    bench["a"].pump()
    bench.settle()
    bench["a"].replica.cancel_hand_over()
    assert not bench["a"].replica.is_serving
    bench["a"].pump()
    bench.settle()
    assert bench["a"].replica.is_serving
    bench.view(2, "b")
    bench.settle()
    assert all(redelivered for _, _, redelivered in bench["b"].log.state.messages.values())


def test_returning_mirror_takes_only_what_it_missed() -> None:
    bench = Bench("ab")
    bench.view(1, "ab")
    bench.settle()
    bench["a"].do(*(publish(number) for number in range(1, 5)))
    bench.settle()
    bench.view(2, "a", to="a")
    bench.settle(without="b")
    bench["a"].do(publish(5))
    bench.settle(without="b")
    bench["b"].start()
    bench.view(3, "a", "b")
    bench.settle()
    assert not bench["a"].told(effects.ReadChunk)
    assert bench["a"].told(effects.ProposeExpand)[-1].node == "b"
    bench.view(4, "ab")
    bench.wait(10)
    bench.settle()
    check_equal(bench, "a", "b")


def test_manual_synchronisation_waits_for_the_word_or_for_the_head_to_go() -> None:
    bench = copied(rules=Bench("a").rules, sync_automatically=False)
    assert bench["l"].replica.role is Role.LEARNER
    assert bench["l"].log.gap == (0, 5)
    assert not bench["a"].told(effects.ReadChunk)
    bench["a"].do(publish(9), *(("a", index) for index in range(2, 6)))
    bench.settle()
    bench.wait(5)
    bench["a"].read_chunk()
    bench.settle()
    assert bench["a"].told(effects.ProposeExpand), "all that it lacked is gone"
    bench.view(3, "abl")
    bench.wait(10)
    bench.settle()
    check_equal(bench, "a", "l")


def test_synchronisation_is_started_cancelled_and_goes_on_where_it_was() -> None:
    bench = copied(rules=Bench("a").rules, sync_automatically=False, chunk_bytes=20)
    bench["a"].replica.start_sync()
    bench["a"].pump()
    bench["a"].read_chunk()
    bench["a"].replica.cancel_sync()
    bench.settle()
    assert bench["l"].log.gap[0] > 0
    asked = len(bench["a"].told(effects.ReadChunk))
    bench["a"].read_chunk()
    bench.settle()
    assert len(bench["a"].told(effects.ReadChunk)) == asked, "cancelled"
    after = bench["l"].log.gap[0]
    bench["l"].start()
    bench.view(3, "ab", "l")
    bench.settle()
    assert bench["l"].log.gap[0] == after, "what has arrived is kept"
    bench["a"].replica.start_sync()
    bench["a"].pump()
    while bench["a"].told(effects.ReadChunk)[-1].session and not bench["a"].told(
        effects.ProposeExpand
    ):
        bench["a"].read_chunk()
        bench.settle()
    bench.view(4, "abl")
    bench.wait(10)
    bench.settle()
    check_equal(bench, "a", "l")
    check_written(bench, "a", "abl")


def test_what_an_unclean_promotion_gave_up_is_put_aside() -> None:
    bench = copied(rules=Bench("a").rules)
    bench["a"].do(publish(8))
    bench.settle()
    assert bench["a"].replica.commit_index == bench["a"].log.last_index
    # a and b are gone for good, it seems; an operator takes the learner, which has little.
    bench["l"].start()
    bench.view(3, "l", unclean=3)
    bench.settle(without="ab")
    assert bench["l"].replica.is_serving
    bench["a"].start()
    bench.view(4, "l", "a", unclean=3)
    bench.settle(without="b")
    bench.wait(100)
    bench.settle(without="b")
    assert bench["a"].told(effects.Salvage)
    assert len(bench["a"].log.salvaged_messages) == 5
    for _ in range(5):
        if bench["l"].told(effects.ReadChunk) and not bench["l"].told(effects.ProposeExpand):
            bench["l"].read_chunk()
            bench.settle(without="b")
    assert bench["l"].told(effects.ProposeExpand)[-1].node == "a"
    bench.view(5, "la", unclean=3)
    bench.wait(10)
    bench.settle(without="b")
    check_equal(bench, "l", "a")
