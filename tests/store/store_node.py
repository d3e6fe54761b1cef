"""A node reduced to its store: journal, log, upkeep and queues on a disk in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from store_model import Keeper, Shape

from warren.engine.effects import Effects
from warren.queue.queue import Queue
from warren.store.faulty_disk import FaultyDisk
from warren.store.journal import Journal
from warren.store.recovery import Recovery
from warren.store.stepped_log import SteppedLog
from warren.store.upkeep import Upkeep, UpkeepSettings


@dataclass
class Plan:
    """What stays the same through all lives of a store."""

    segment_bytes: int = 8192
    salt: int = 0
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    make_upkeep: Callable[..., Upkeep] = Upkeep
    #: Mutants: a fault that the bench must find.
    gone_before_dead_letters: bool = False
    #: That a message has left, and its letter, are two records.
    dead_letters_apart: bool = False
    watermark_not_awaited: bool = False


class Node:
    """One life of a process: it begins with a recovery and ends with a crash or a stop."""

    def __init__(self, disk: FaultyDisk, plan: Plan, now_ms: int, wall_ms: int) -> None:
        self.disk = disk
        self.plan = plan
        self.now_ms = now_ms
        self.wall_offset_ms = wall_ms - now_ms
        self.effects = Effects()
        #: By queue id, also those that are deleted: clients may still hold messages of theirs.
        self.queues: dict[int, Queue] = {}
        self.unreadable: list[tuple[str, int, int]] = []
        self.recovery = Recovery(disk, self.wall_offset_ms, plan.salt)
        self.journal: Journal = self.recovery.journal
        self.keeper = Keeper(self.make, self.drop)
        self.recovery.run(self.keeper.load, self.keeper.apply)
        self.journal.on_unreadable = self.note_unreadable
        self.log = SteppedLog(
            disk,
            self.recovery.next_sequence,
            plan.segment_bytes,
            self.recovery.last_segment,
            self.journal.salt,
        )
        self.journal.start(self.log)
        self.upkeep = plan.make_upkeep(self.journal, disk, self.keeper.snapshot, plan.upkeep)

    def make(self, shape: Shape, queue_id: int) -> None:
        queue = Queue(shape.name, self.effects, shape.max_priority)
        queue.durable = shape.durable
        if shape.durable:
            queue.queue_id = queue_id
            self.journal.queues[queue_id] = queue
        queue.attach(self.journal)
        self.configure(queue, shape)
        self.queues[queue_id] = queue

    def configure(self, queue: Queue, shape: Shape) -> None:
        queue.configure(
            ttl_ms=shape.ttl_ms,
            max_length=shape.max_length,
            delivery_limit=shape.delivery_limit,
            dead_letters=shape.dead_letters,
            now_ms=self.now_ms,
        )

    def drop(self, queue_id: int) -> None:
        self.journal.queues.pop(queue_id, None)
        queue = self.queues[queue_id]
        queue.detach()
        if self.journal.replaying:
            del self.queues[queue_id]

    def note_unreadable(self, queue: Queue, slot: int, _place: int, count: int) -> None:
        self.unreadable.append((queue.name, slot, count))
