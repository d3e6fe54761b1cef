"""Deadlines without a clock: whoever owns the clock asks what is due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

#: So many void deadlines are let be; more are swept out once they are the larger part.
SWEEP_AT = 256


class Timer:
    """One deadline; `cancel` makes it void."""

    __slots__ = ("action", "at_ms", "timers")

    def __init__(self, at_ms: int, action: Callable[[int], None] | None, timers: Timers) -> None:
        self.at_ms = at_ms
        self.action = action
        self.timers = timers

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self.timers.note_cancelled()


class Timers:
    """A heap of deadlines. `on_earlier` is told when the next deadline has moved forward."""

    def __init__(self, on_earlier: Callable[[int], None] | None = None) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        self.on_earlier = on_earlier

    def at(self, at_ms: int, action: Callable[[int], None]) -> Timer:
        """Call `action(now_ms)` at a time."""
        timer = Timer(at_ms, action, self)
        earlier = not self._heap or at_ms < self._heap[0][0]
        heapq.heappush(self._heap, (at_ms, next(self._order), timer))
        if earlier and self.on_earlier is not None:
            self.on_earlier(at_ms)
        return timer

    def is_due(self, now_ms: int) -> bool:
        """Whether `run_due` would find anything."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def run_due(self, now_ms: int) -> None:
        """Run all actions whose time has come, in order."""
        while self._heap and self._heap[0][0] <= now_ms:
            timer = heapq.heappop(self._heap)[2]
            action, timer.action = timer.action, None
            if action is None:
                self._cancelled -= 1
            else:
                action(now_ms)

    def next_ms(self) -> int | None:
        """When something is due next; None for never."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def note_cancelled(self) -> None:
        """Void deadlines far ahead are swept out, or a client could fill the memory with them."""
        self._cancelled += 1
        if self._cancelled >= SWEEP_AT and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)
