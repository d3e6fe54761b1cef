"""The disk alarm: when it is raised and cleared, how often is looked, what is logged."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from warren.config import load_settings
from warren.node.disk import DiskWatch, free_bytes
from warren.node.node import Node

PATH = Path("/data")
LIMIT = 1_000_000_000


class FakeLoop:
    """A clock that is moved by hand, and what is due on it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[FakeTimer] = []

    def call_later(self, delay_s: float, action: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self, self.now_s + delay_s, action)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.timers and min(t.at_s for t in self.timers) <= until_s:
            timer = min(self.timers, key=lambda t: t.at_s)
            self.timers.remove(timer)
            self.now_s = timer.at_s
            timer.action()
        self.now_s = until_s


class FakeTimer:
    def __init__(self, loop: FakeLoop, at_s: float, action: Callable[[], None]) -> None:
        self.loop, self.at_s, self.action = loop, at_s, action

    def cancel(self) -> None:
        if self in self.loop.timers:
            self.loop.timers.remove(self)


class Disk:
    """A disk with as much room as the test says, watched by a node's engine."""

    def __init__(self, free: int, limit: int = LIMIT) -> None:
        self.free: int | OSError = free
        self.looks: list[float] = []
        self.loop = FakeLoop()
        self.log = logging.getLogger("test.disk")
        self.engine = Node(load_settings(None, {}), log=self.log, watch_memory=False).engine
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.watch = DiskWatch(self.engine, PATH, limit, loop, self.measure)

    def measure(self, path: Path) -> int:
        assert path == PATH
        self.looks.append(self.loop.now_s)
        if isinstance(self.free, OSError):
            raise self.free
        return self.free

    @property
    def alarm(self) -> bool:
        return "disk" in self.engine.alarms


def test_raised_below_the_limit_and_cleared_well_above() -> None:
    disk = Disk(free=LIMIT)
    disk.watch.start()
    assert not disk.alarm
    disk.free = LIMIT - 1
    disk.loop.advance(1)
    assert disk.alarm
    disk.free = int(LIMIT * 1.05)
    disk.loop.advance(5)
    assert disk.alarm
    disk.free = int(LIMIT * 1.05) + 1
    disk.loop.advance(0.5)
    assert not disk.alarm
    disk.free = LIMIT
    disk.loop.advance(5)
    assert not disk.alarm


def test_an_alarm_from_the_start() -> None:
    disk = Disk(free=0)
    disk.watch.start()
    assert disk.alarm


def test_looked_at_more_often_near_the_limit() -> None:
    disk = Disk(free=200 * LIMIT)
    disk.watch.start()
    assert disk.watch.interval_s() == 10.0
    for free, interval_s in [(11 * LIMIT, 5.25), (2 * LIMIT, 0.75), (LIMIT, 0.25)]:
        disk.watch.note_free_bytes(free)
        assert disk.watch.interval_s() == interval_s
    disk.watch.note_free_bytes(LIMIT - 1)
    assert disk.watch.interval_s() == 0.5
    low = Disk(free=60, limit=50)
    low.watch.start()
    assert low.watch.interval_s() == 0.1


@pytest.mark.parametrize("start", [LIMIT + 1, 2 * LIMIT, 5 * LIMIT, 30 * LIMIT])
def test_the_fastest_writer_takes_no_more_than_half_the_limit(start: int) -> None:
    disk = Disk(free=start)
    disk.watch.start()
    step_s = 0.001
    while not disk.alarm:
        disk.free = cast(int, disk.free) - int(2_000_000_000 * step_s)
        disk.loop.advance(step_s)
    assert cast(int, disk.free) >= LIMIT / 2 - 2_000_000_000 * step_s


def test_a_figure_from_the_writer_counts_at_once() -> None:
    disk = Disk(free=200 * LIMIT)
    disk.watch.start()
    disk.watch.note_free_bytes(LIMIT - 1)
    assert disk.alarm
    assert len(disk.loop.timers) == 1
    # The next look is soon, not in the ten seconds that were planned.
    disk.loop.advance(0.5)
    assert not disk.alarm
    assert disk.looks == [0.0, 0.5]


def test_logged_once_a_change_with_numbers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "test.disk")
    disk = Disk(free=LIMIT - 7)
    disk.watch.start()
    disk.loop.advance(5)
    disk.free = 2 * LIMIT
    disk.loop.advance(5)
    assert [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "test.disk"] == [
        (
            "WARNING",
            "disk alarm (999999993 bytes free in /data, limit 1000000000): "
            "publishers are blocked until it clears",
        ),
        ("INFO", "disk alarm cleared (2000000000 bytes free in /data, limit 1000000000)"),
    ]


@pytest.mark.parametrize("free", [LIMIT - 1, 2 * LIMIT])
def test_a_disk_that_cannot_be_measured(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(free=free)
    told: list[str] = []
    log: Any = disk.watch._log
    for level in ("error", "info"):
        monkeypatch.setattr(log, level, lambda text, *rest: told.append(text % rest))
    disk.watch.start()
    was = disk.alarm
    disk.free = OSError(errno.EIO, os.strerror(errno.EIO))
    disk.loop.advance(30)
    assert disk.alarm == was
    assert told == [
        "the free space of /data cannot be measured: Input/output error; alarms stay as they are"
    ]
    disk.free = 2 * LIMIT
    disk.loop.advance(10)
    assert told[1:] == ["the free space of /data can be measured again"]
    assert not disk.alarm


def test_stopped() -> None:
    disk = Disk(free=2 * LIMIT)
    disk.watch.start()
    disk.watch.stop()
    disk.watch.note_free_bytes(3 * LIMIT)
    disk.loop.advance(100)
    assert disk.looks == [0.0]


def test_no_limit() -> None:
    disk = Disk(free=0, limit=0)
    disk.watch.start()
    assert not disk.alarm


def test_the_real_figure(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "missing")


def test_the_limit_of_the_configuration() -> None:
    def limit(**keys: object) -> int:
        names = {f"disk_free_limit.{name}": value for name, value in keys.items()}
        settings = load_settings(None, {}, names)
        assert settings.without_effect == ()
        return settings.disk.limit_bytes(memory_bytes=10_000)

    assert limit() == 50_000_000
    assert limit(absolute="2GB") == 2_000_000_000
    assert limit(relative="1.5") == 15_000
