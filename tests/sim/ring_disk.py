"""A node's write-ahead log for all its queues: synced in groups, and a crash loses the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sim.disk import DiskHealth
from sim.ring_model import Copy, ModelLog, State
from sim.world import World


class Record(NamedTuple):
    """One change of one queue's copy, and what the log was after it."""

    queue: str
    kind: str
    what: tuple[Any, ...]
    generation: int
    last: int
    is_full: bool


class RingDisk:
    """Copies by queue, as of the last sync."""

    def __init__(
        self, world: World, state_class: type[State], log_class: type[ModelLog], keep: int
    ) -> None:
        self.world = world
        self.health_of: Callable[[], DiskHealth] = DiskHealth
        self.state_class = state_class
        self.log_class = log_class
        self.keep = keep
        self.copies: dict[str, Copy] = {}
        self._waiting: list[Record] = []
        self._is_busy = False
        self._life = 0
        self.lost = 0
        #: Set by the node: told of every record that is on the disk, and of an error.
        self.on_synced: Callable[[list[Record]], None] = lambda _: None
        self.on_error: Callable[[], None] = lambda: None
        #: Syncs of these queues take long: (queue) -> microseconds.
        self.slow: dict[str, int] = {}

    def open(self, queue: str) -> ModelLog:
        copy = self.copies.setdefault(queue, Copy(self.state_class)).clone()
        log: ModelLog

        def write(kind: str, what: tuple[Any, ...]) -> None:
            is_full = log.gap[0] >= log.gap[1]
            self._waiting.append(Record(queue, kind, what, log.generation, log.last_index, is_full))
            if not self._is_busy:
                self._sync()

        log = self.log_class(copy, self.keep, write)
        return log

    def adopt(self, log: ModelLog, epoch: int) -> None:
        log._record("adopt", epoch)

    def crash(self) -> None:
        count = self.world.random.randint(-len(self._waiting), len(self._waiting))
        if count > 0:
            self._arrive(self._waiting[:count])
            del self._waiting[:count]
        self.lost += len(self._waiting)
        self._waiting = []
        self._is_busy = False
        self._life += 1

    def _arrive(self, records: list[Record]) -> None:
        for record in records:
            getattr(self.copies[record.queue], record.kind)(*record.what)

    def _sync(self) -> None:
        self._is_busy = True
        dice, health = self.world.random, self.health_of()
        count = len(self._waiting)
        delay = dice.randint(health.sync_min_us, health.sync_max_us)
        if health.stalls and dice.random() < health.stalls:
            delay = dice.randint(delay, health.stall_max_us)
        for queue, slow_us in self.slow.items():
            if any(record.queue == queue for record in self._waiting):
                delay += dice.randint(slow_us // 10, slow_us)
        life = self._life

        def synced() -> None:
            if life != self._life:
                return
            if health.errors and dice.random() < health.errors:
                self.on_error()
                return
            records = self._waiting[:count]
            del self._waiting[:count]
            self._arrive(records)
            self._is_busy = False
            if self._waiting:
                self._sync()
            self.on_synced(records)

        # Not what is written later in this turn: a sync covers what was there when it began.
        self.world.after(delay, synced)
