"""What happened to the broker's entities lately: kept for a while, and told live to who listens.

With a data directory, what operators look for outlives the node (`event_file.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from heapq import merge
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warren.management.event_file import Event, EventFile
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.engine.engine import Engine

__all__ = ["Event", "EventLog"]

KEPT_MAX = 1000
#: What clients do all the time; it must not push what operators look for out of the log, and is
#: not worth a place on the disk.
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
#: When a node goes or comes, these come for each of a thousand queues.
_OF_QUEUES = ("queue.",)
#: Numbers go on after a restart from the next multiple of this: those that were given to events
#: which nobody kept are not given to others.
RESTART_STEP = 1_000_000
#: Events of so long are written together.
WRITE_EVERY_S = 0.1


class EventLog:
    """Listens to the engine from `start` to `stop`. `folder`: where events are kept."""

    def __init__(self, engine: Engine, folder: Path | None = None) -> None:
        self._engine = engine
        self._frequent: deque[Event] = deque(maxlen=KEPT_MAX)
        self._of_queues: deque[Event] = deque(maxlen=KEPT_MAX)
        self._rare: deque[Event] = deque(maxlen=KEPT_MAX)
        self._files: dict[int, EventFile] = {}
        if folder is not None:
            self._files[id(self._of_queues)] = EventFile(folder, "events-of-queues")
            self._files[id(self._rare)] = EventFile(folder, "events")
        #: What is not on the disk yet.
        self._unwritten: dict[int, list[Event]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0
        #: How many of each name there were since the start.
        self.counts: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._is_open = False

    def start(self) -> None:
        self._is_open = True
        for kept in (self._of_queues, self._rare):
            file = self._files.get(id(kept))
            if file is not None:
                kept.extend(file.read()[-KEPT_MAX:])
        last = max((kept[-1].number for kept in (self._of_queues, self._rare) if kept), default=0)
        if last:
            self._count = (last // RESTART_STEP + 1) * RESTART_STEP
        self._engine.listeners.append(self._note)

    def stop(self) -> None:
        """Whoever listens live comes to an end."""
        if self._is_open:
            self._engine.listeners.remove(self._note)
            self._take_timer()
            self._write(self._take_unwritten())
        self._is_open = False
        self._news.set()

    def _note(self, name: str, details: dict[str, Any]) -> None:
        self._count += 1
        self.counts[name] += 1
        event = Event(self._count, int(time.time() * 1000), name, dict(details))
        if name.startswith(_FREQUENT):
            kept = self._frequent
        else:
            kept = self._of_queues if name.startswith(_OF_QUEUES) else self._rare
            self._write_later(kept, event)
        kept.append(event)
        self._news.set()

    # -- on the disk -------------------------------------------------------------------------------

    def _write_later(self, kept: deque[Event], event: Event) -> None:
        if id(kept) not in self._files:
            return
        self._unwritten.setdefault(id(kept), []).append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_EVERY_S, self._on_timer)

    def _on_timer(self) -> None:
        self._take_timer()
        taken = self._take_unwritten()
        try:
            asyncio.get_running_loop().run_in_executor(None, self._write, taken)
        except RuntimeError:
            # The node is about to end, and nobody works for it any more.
            self._write(taken)

    def _take_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _take_unwritten(self) -> dict[int, list[Event]]:
        taken, self._unwritten = self._unwritten, {}
        return taken

    def _write(self, taken: dict[int, list[Event]]) -> None:
        """A disk that is full or broken has alarms of its own: here it is only told."""
        for key, events in taken.items():
            try:
                self._files[key].append(events)
            except OSError as error:
                logger("management").warning("events are not kept on the disk: %s", error)

    # -- reading -----------------------------------------------------------------------------------

    @property
    def last_number(self) -> int:
        return self._count

    def since(self, number: int, names: tuple[str, ...] = ("",)) -> list[Event]:
        """What is kept of what came after a number, where a name begins with one of `names`."""
        all_kept = (self._frequent, self._of_queues, self._rare)
        return [
            event
            for event in merge(*all_kept, key=lambda event: event.number)
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
