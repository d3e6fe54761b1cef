"""What can be changed of a node while it runs: where alarms are raised, and what is logged.

The configuration is what counts again after a restart.
"""

from __future__ import annotations

import logging
import logging.handlers
from typing import TYPE_CHECKING

from warren.node.logs import log_file
from warren.node.memory import memory_bytes
from warren.telemetry.log import CATEGORIES, ROOT, logger, set_level

if TYPE_CHECKING:
    from pathlib import Path

    from warren.node.node import Node


class RuntimeSettings:
    """See the module's text; the management API calls it."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def memory_limit_bytes(self) -> int:
        """Where the memory alarm is raised; 0 while nobody watches."""
        return self._node.memory_limit_bytes

    @property
    def disk_limit_bytes(self) -> int:
        """Where the disk alarm is raised."""
        disk = self._node.disk
        return self._node.settings.disk.free_limit_bytes if disk is None else disk.limit_bytes

    def set_memory_limit(self, relative: float | None, absolute: int | None) -> bool:
        """A share of the machine's memory, or bytes; False when nobody watches the memory."""
        watch = self._node.memory_watch
        if watch is None:
            return False
        whole = memory_bytes(self._node.settings.memory)
        watch.limit_bytes = int(whole * relative) if relative is not None else absolute or 0
        if self._node.store is not None:
            ratio = self._node.settings.memory.paging_ratio
            self._node.store.budget_bytes = int(watch.limit_bytes * ratio)
        logger("management").info("the memory mark is %d bytes from now on", watch.limit_bytes)
        return True

    def set_disk_limit(self, relative: float | None, absolute: int | None) -> bool:
        """A share of the machine's memory, as RabbitMQ has it, or bytes; False without a disk."""
        disk = self._node.disk
        if disk is None:
            return False
        whole = memory_bytes(self._node.settings.memory)
        disk.limit_bytes = int(whole * relative) if relative is not None else absolute or 0
        disk.look_now()
        logger("management").info("the disk limit is %d bytes from now on", disk.limit_bytes)
        return True

    def set_log_level(self, level: str, category: str | None) -> None:
        """Of one category, or of all."""
        set_level(level, category)

    def log_levels(self) -> dict[str, str]:
        """The level of each category."""
        return {
            name: logging.getLevelName(logger(name).getEffectiveLevel()).lower()
            for name in CATEGORIES
        }

    def rotate_logs(self) -> int:
        """Turn log files over, or open them anew where somebody else has; how many."""
        rotated = 0
        for handler in logging.getLogger(ROOT).handlers:
            if isinstance(handler, logging.handlers.RotatingFileHandler):
                handler.doRollover()
                rotated += 1
        return rotated

    @property
    def log_path(self) -> Path | None:
        """Where the log is written to; None: to the console only."""
        return log_file(self._node.settings.log)
