"""Watches this process's memory and raises the alarm that blocks publishers."""

from __future__ import annotations

import asyncio

from warren.base.system import release_memory, total_memory_bytes, used_memory_bytes
from warren.config.settings import MemorySettings
from warren.engine.engine import Engine

#: Far from the mark, and while the alarm stands, a look this often is enough.
INTERVAL_S = 0.25
#: Near it the next look comes sooner: before publishers at full speed can have filled what is left.
SHORTEST_INTERVAL_S = 0.01
FILLING_BYTES_PER_S = 1 << 30
#: The alarm clears below this part of the watermark, so that it does not flutter.
CLEAR_RATIO = 0.97


def memory_bytes(settings: MemorySettings) -> int:
    """What the marks are shares of: what was configured, else what the machine has."""
    return settings.total_override_bytes or total_memory_bytes()


def limit_bytes(settings: MemorySettings) -> int:
    """How much memory the process may take before publishers are stopped."""
    return settings.high_watermark_bytes or int(
        memory_bytes(settings) * settings.high_watermark_ratio
    )


def message_budget(settings: MemorySettings) -> int:
    """How much of it messages may take before they are paged out."""
    return int(limit_bytes(settings) * settings.paging_ratio)


def next_look_s(used: int, limit: int) -> float:
    """How long the process may go unwatched with so much memory taken."""
    if used > limit:
        return INTERVAL_S
    left_s = (limit - used) / FILLING_BYTES_PER_S
    return min(max(left_s, SHORTEST_INTERVAL_S), INTERVAL_S)


class MemoryWatch:
    """Looks every quarter of a second, and more often the nearer the mark is."""

    def __init__(
        self, engine: Engine, settings: MemorySettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.limit_bytes = limit_bytes(settings)

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        used = used_memory_bytes()
        if "memory" in self._engine.alarms:
            release_memory()
            used = used_memory_bytes()
        if used > self.limit_bytes:
            self._engine.set_alarm("memory", True)
        elif used < self.limit_bytes * CLEAR_RATIO:
            self._engine.set_alarm("memory", False)
        self._timer = self._loop.call_later(next_look_s(used, self.limit_bytes), self._look)
