"""What happened to the broker's entities lately: kept for a while, and told live to who listens."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.engine.engine import Engine

KEPT_MAX = 1000
#: What clients do all the time; it must not push what operators look for out of the log.
_FREQUENT = (
    "connection.",
    "channel.",
    "consumer.",
    "user.authentication.",
    "binding.",
    "exchange.",
    "queue.created",
    "queue.deleted",
)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; numbers grow by one."""

    number: int
    timestamp: int
    name: str
    details: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.number,
            "timestamp": self.timestamp,
            "event": self.name,
            "details": self.details,
        }


class EventLog:
    """Listens to the engine from `start` to `stop`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._frequent: deque[Event] = deque(maxlen=KEPT_MAX)
        self._rare: deque[Event] = deque(maxlen=KEPT_MAX)
        self._count = 0
        #: How many of each name there were since the start.
        self.counts: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._is_open = False

    def start(self) -> None:
        self._is_open = True
        self._engine.listeners.append(self._note)

    def stop(self) -> None:
        """Whoever listens live comes to an end."""
        if self._is_open:
            self._engine.listeners.remove(self._note)
        self._is_open = False
        self._news.set()

    def _note(self, name: str, details: dict[str, Any]) -> None:
        self._count += 1
        self.counts[name] += 1
        kept = self._frequent if name.startswith(_FREQUENT) else self._rare
        kept.append(Event(self._count, int(time.time() * 1000), name, dict(details)))
        self._news.set()

    @property
    def last_number(self) -> int:
        return self._count

    def since(self, number: int, names: tuple[str, ...] = ("",)) -> list[Event]:
        """What is kept of what came after a number, where a name begins with one of `names`."""
        return [
            event
            for event in merge(self._frequent, self._rare, key=lambda event: event.number)
            if event.number > number and event.name.startswith(names)
        ]

    async def follow(
        self, number: int, patience_s: float, names: tuple[str, ...] = ("",)
    ) -> AsyncIterator[list[Event]]:
        """News since a number, as they come; an empty list when none came for a while."""
        while self._is_open:
            news = self.since(number, names)
            number = self._count
            if news:
                yield news
                continue
            # Everyone who waits shares one flag; who comes first takes it down.
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), patience_s)
            except TimeoutError:
                yield []
