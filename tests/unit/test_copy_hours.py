"""The clock begins and ends the hours of copies, over midnight too."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from warren.base.timers import Timers
from warren.engine.copy_hours import LOOK_MS, CopyHours
from warren.model.policy import EffectiveArguments

HOURS = EffectiveArguments(ha_mode="all", ha_replication_window="22:00-06:00")


class Clock:
    """A machine's: `at` sets the time of the day, and moves on from there."""

    def __init__(self) -> None:
        self.ms = 0
        self._base_s = 0

    def at(self, hour: int, minute: int) -> None:
        self._base_s = int(time.mktime((2026, 11, 19, hour, minute, 0, 0, 0, -1))) - self.ms // 1000

    def now_ms(self) -> int:
        return self.ms

    def wall_s(self) -> int:
        return self._base_s + self.ms // 1000


class Scene:
    def __init__(self, effective: EffectiveArguments) -> None:
        self.clock, self.timers = Clock(), Timers()
        self.told: list[bool] = []
        engine: Any = SimpleNamespace(clock=self.clock, timers=self.timers)
        self.hours = CopyHours(engine, lambda: [self.mirror])
        settings = SimpleNamespace(feeds_mirrors=True)

        def govern(its: EffectiveArguments) -> None:
            settings.feeds_mirrors = self.hours.are_now(its)
            self.told.append(settings.feeds_mirrors)

        self.mirror: Any = SimpleNamespace(
            queue=SimpleNamespace(effective=effective),
            settings=settings,
            govern=govern,
            carry_out=lambda: None,
        )

    def passes(self, ms: int) -> None:
        self.clock.ms += ms
        self.timers.run_due(self.clock.ms)


def test_they_end_and_begin_by_themselves() -> None:
    scene = Scene(HOURS)
    scene.clock.at(23, 0)
    scene.mirror.govern(HOURS)
    assert scene.told == [True]
    for hour, minute, told in (
        (23, 59, [True]),
        (0, 0, [True]),
        (5, 59, [True]),
        (6, 0, [True, False]),
        (21, 59, [True, False]),
        (22, 0, [True, False, True]),
    ):
        scene.clock.at(hour, minute)
        scene.passes(LOOK_MS)
        assert scene.told == told, (hour, minute)


@pytest.mark.parametrize("minute", [0, 720])
def test_without_hours_nobody_looks_at_the_clock(minute: int) -> None:
    plain = EffectiveArguments(ha_mode="all")
    scene = Scene(plain)
    scene.clock.at(*divmod(minute, 60))
    assert scene.hours.are_now(plain)
    assert scene.timers.next_ms() is None
