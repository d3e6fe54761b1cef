"""Virtual time, dice and the trace: everything that happens is an event at a time, in one order."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from itertools import count


class Violation(AssertionError):
    """A promise was broken. The message says which one, when and by whom."""


class Dice(random.Random):
    """As the library's, throw by throw; who asks for a number in a range is answered sooner."""

    def randint(self, a: int, b: int) -> int:
        size = b + 1 - a
        if size <= 0:
            raise ValueError(f"nothing is between {a} and {b}")
        bits = size.bit_length()
        thrown = self.getrandbits(bits)
        while thrown >= size:
            thrown = self.getrandbits(bits)
        return a + thrown


class World:
    """An event loop over virtual microseconds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Dice(seed)
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._trace = hashlib.blake2b(digest_size=16)
        #: The last things that happened, for a failure's report.
        self.recent: list[str] = []
        self.verbose = False

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        now_us = self.now_us
        at_us = time_us if time_us > now_us else now_us
        heapq.heappush(self._heap, (at_us, next(self._order), action))

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, action)

    def run_until(self, time_us: int) -> None:
        """Run everything up to a time, and leave the clock there."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= time_us:
            self.now_us, _, action = pop(heap)
            self.events += 1
            action()
        self.now_us = time_us

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def note(self, text: str) -> None:
        """Put something into the trace; the trace's hash is the run's fingerprint."""
        line = f"{self.now_us} {text}"
        self._trace.update(line.encode())
        self.recent.append(line)
        if self.verbose:
            print(line)
        elif len(self.recent) > 400:
            del self.recent[:200]

    def note_bytes(self, data: bytes) -> None:
        self._trace.update(data)

    @property
    def fingerprint(self) -> str:
        return self._trace.hexdigest()
