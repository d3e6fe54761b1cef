"""Deadlines: order, cancelling, and that void ones do not pile up."""

from __future__ import annotations

from warren.base.timers import SWEEP_AT, Timers


def test_actions_run_in_order_of_time_then_of_asking() -> None:
    timers, ran = Timers(), []
    for name, at_ms in (("c", 30), ("a", 10), ("b", 10), ("d", 40)):
        timers.at(at_ms, lambda now_ms, name=name: ran.append((name, now_ms)))
    timers.run_due(35)
    assert ran == [("a", 35), ("b", 35), ("c", 35)]
    assert timers.next_ms() == 40


def test_cancelled_timers_do_not_run() -> None:
    timers, ran = Timers(), []
    timer = timers.at(10, ran.append)
    timers.at(20, ran.append)
    timer.cancel()
    timer.cancel()
    assert timers.next_ms() == 20
    timers.run_due(100)
    assert ran == [100]
    assert timers.next_ms() is None


def test_cancelling_after_the_ring_changes_nothing() -> None:
    timers, ran = Timers(), []
    timer = timers.at(10, ran.append)
    timers.run_due(10)
    timer.cancel()
    timers.run_due(20)
    assert ran == [10]


def test_an_action_may_ask_for_more() -> None:
    timers, ran = Timers(), []

    def ring(now_ms: int) -> None:
        ran.append(now_ms)
        if len(ran) < 3:
            timers.at(now_ms, ring)

    timers.at(5, ring)
    timers.run_due(5)
    assert ran == [5, 5, 5]


def test_earlier_deadlines_are_announced() -> None:
    told: list[int] = []
    timers = Timers(told.append)
    for at_ms in (50, 70, 20, 30, 10):
        timers.at(at_ms, lambda _now_ms: None)
    assert told == [50, 20, 10]


def test_void_deadlines_are_swept_out() -> None:
    timers, ran = Timers(), []
    timers.at(10, ran.append)
    for _ in range(100 * SWEEP_AT):
        timers.at(10**12, ran.append).cancel()
    assert len(timers) <= 2 * SWEEP_AT
    timers.run_due(10)
    assert ran == [10]


def test_sweeping_keeps_what_is_not_void() -> None:
    timers, ran = Timers(), []
    kept = [
        timers.at(at_ms, lambda _now_ms, at_ms=at_ms: ran.append(at_ms))
        for at_ms in range(1000, 0, -1)
    ]
    for timer in kept[::2]:
        timer.cancel()
    for _ in range(10 * SWEEP_AT):
        timers.at(5000, ran.append).cancel()
    timers.run_due(1000)
    assert ran == sorted(timer.at_ms for timer in kept[1::2])
