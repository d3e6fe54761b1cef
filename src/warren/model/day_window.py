"""Some hours of every day, as `22:00-06:00`."""

from __future__ import annotations

import re
from dataclasses import dataclass

DAY_MINUTES = 24 * 60
_TIMES = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DayWindow:
    """From a minute of the day up to another one, which may be on the next day."""

    first: int
    end: int

    @classmethod
    def parse(cls, text: str) -> DayWindow:
        """Raises ValueError, also for one that would last no time or all of it."""
        found = _TIMES.fullmatch(text)
        if found is None:
            raise ValueError(f"not two times of the day: {text!r}")
        hours, minutes, end_hours, end_minutes = map(int, found.groups())
        window = cls(hours * 60 + minutes, end_hours * 60 + end_minutes)
        if window.first == window.end:
            raise ValueError(f"a window without hours: {text!r}")
        return window

    def has(self, minute: int) -> bool:
        """Whether a minute of the day is in it."""
        if self.first < self.end:
            return self.first <= minute < self.end
        return minute >= self.first or minute < self.end
