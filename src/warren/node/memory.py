"""Watches this process's memory and raises the alarm that blocks publishers."""

from __future__ import annotations

import asyncio

from warren.base.system import release_memory, total_memory_bytes, used_memory_bytes
from warren.config.settings import MemorySettings
from warren.engine.engine import Engine

#: A publisher at full speed adds some 200 MB in this time: well below what the watermark leaves.
INTERVAL_S = 0.25
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


class MemoryWatch:
    """Looks every quarter of a second."""

    def __init__(
        self, engine: Engine, settings: MemorySettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.limit_bytes = limit_bytes(settings)

    def start(self) -> None:
        self._timer = self._loop.call_later(INTERVAL_S, self._look)

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
        self.start()
