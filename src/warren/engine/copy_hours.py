"""The hours in which mirrors are given something (`ha-replication-window`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from warren.model.day_window import DayWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warren.engine.engine import Engine
    from warren.engine.mirror import Mirror
    from warren.model.policy import EffectiveArguments

#: How often the clock is looked at while some queue has such hours.
LOOK_MS = 5_000


def minute_of(wall_s: int) -> int:
    """The minute of the day, by this machine's own time."""
    now = time.localtime(wall_s)
    return now.tm_hour * 60 + now.tm_min


class CopyHours:
    """Looks at the clock, and tells the replicas whose hours begin or end."""

    def __init__(self, engine: Engine, mirrors: Callable[[], Iterable[Mirror]]) -> None:
        self._engine = engine
        self._mirrors = mirrors
        self._is_armed = False

    def are_now(self, effective: EffectiveArguments) -> bool:
        """Whether mirrors of such a queue are given something at present."""
        hours = effective.ha_replication_window
        if hours is None:
            return True
        self._arm()
        return DayWindow.parse(hours).has(minute_of(self._engine.clock.wall_s()))

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._engine.timers.at(self._engine.clock.now_ms() + LOOK_MS, self._look)

    def _look(self, _now_ms: int) -> None:
        self._is_armed = False
        for mirror in list(self._mirrors()):
            effective = mirror.queue.effective
            if effective.ha_replication_window is not None:
                self._arm()
                if self.are_now(effective) is not mirror.settings.feeds_mirrors:
                    mirror.govern(effective)
                    mirror.carry_out()
