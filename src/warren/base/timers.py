"""Deadlines without a clock: whoever owns the clock asks what is due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timer:
    """One deadline; `cancel` makes it void."""

    __slots__ = ("action", "at_ms")

    def __init__(self, at_ms: int, action: Callable[[int], None] | None) -> None:
        self.at_ms = at_ms
        self.action = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    """A heap of deadlines. `on_earlier` is told when the next deadline has moved forward."""

    def __init__(self, on_earlier: Callable[[int], None] | None = None) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self.on_earlier = on_earlier

    def at(self, at_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` at a time."""
        timer = Timer(at_ms, action)
        earlier = not self._heap or at_ms < self._heap[0][0]
        heapq.heappush(self._heap, (at_ms, next(self._order), timer))
        if earlier and self.on_earlier is not None:
            self.on_earlier(at_ms)
        return timer

    def run_due(self, now_ms: int) -> None:
        """Run all actions whose time has come, in order."""
        while self._heap and self._heap[0][0] <= now_ms:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action(now_ms)

    def next_ms(self) -> int | None:
        """When something is due next; None for never."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
