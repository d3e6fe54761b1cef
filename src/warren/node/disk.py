"""Watches the room left for the data directory and raises the alarm that blocks publishers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from warren.engine.engine import Engine
from warren.telemetry.log import logger

#: No disk is filled faster than this, so a look is due no sooner than it could matter.
FASTEST_BYTES_PER_S = 2_000_000_000
INTERVAL_MIN_S, INTERVAL_MAX_S = 0.1, 10.0
#: While publishers wait, the room that somebody makes is noticed this soon.
INTERVAL_RAISED_S = 0.5
#: The alarm clears above this multiple of the limit, so that it does not flutter.
CLEAR_RATIO = 1.05


def free_bytes(path: Path) -> int:
    """What this file system has left for users; what is kept for root does not count."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


class DiskWatch:
    """Looks the more often the nearer the limit is.

    Between two looks even the fastest disk passes the limit by at most half of the limit, as long
    as that is more than such a disk takes in the shortest interval (200 MB). For lower limits
    whoever writes much tells `note_free_bytes`.
    """

    def __init__(
        self,
        engine: Engine,
        path: Path,
        limit_bytes: int,
        loop: asyncio.AbstractEventLoop,
        measure: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.limit_bytes = limit_bytes
        #: As last measured or told; None before the first time.
        self.free_bytes: int | None = None
        self._engine = engine
        self._path = path
        self._loop = loop
        self._measure = measure
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._cannot_measure = False
        self._log = logger("store")

    def start(self) -> None:
        """Look now, and from now on."""
        self._is_running = True
        self._look()

    def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def note_free_bytes(self, count: int) -> None:
        """Somebody who has just written has measured too. For the loop's thread only."""
        self._judge(count)
        self._schedule()

    def look_now(self) -> None:
        """The limit has changed: judge by it at once."""
        if self._is_running:
            self._look()

    def interval_s(self) -> float:
        """When to look next, going by the last figure."""
        if "disk" in self._engine.alarms:
            return INTERVAL_RAISED_S
        if self.free_bytes is None:
            return INTERVAL_MAX_S
        room = self.free_bytes - self.limit_bytes + self.limit_bytes / 2
        return min(max(room / FASTEST_BYTES_PER_S, INTERVAL_MIN_S), INTERVAL_MAX_S)

    def _look(self) -> None:
        try:
            count = self._measure(self._path)
        except OSError as error:
            if not self._cannot_measure:
                self._log.error(
                    "the free space of %s cannot be measured: %s; alarms stay as they are",
                    self._path,
                    error.strerror or error,
                )
            self._cannot_measure = True
        else:
            if self._cannot_measure:
                self._log.info("the free space of %s can be measured again", self._path)
            self._cannot_measure = False
            self._judge(count)
        self._schedule()

    def _judge(self, count: int) -> None:
        self.free_bytes = count
        if count < self.limit_bytes:
            self._engine.set_alarm("disk", True, self._shown(count))
        elif count > self.limit_bytes * CLEAR_RATIO:
            self._engine.set_alarm("disk", False, self._shown(count))

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_running:
            self._timer = self._loop.call_later(self.interval_s(), self._look)

    def _shown(self, count: int) -> str:
        return f"{count} bytes free in {self._path}, limit {self.limit_bytes}"
