"""A model of what a store must hold: plain lists, and the numbers of the records that say so."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from warren.wire.properties import encode_properties


@dataclass(frozen=True, slots=True)
class Shape:
    """How a queue is declared."""

    name: str
    durable: bool = True
    max_priority: int = -1
    ttl_ms: int = -1
    max_length: int = -1
    delivery_limit: int = -1
    dead_letters: bool = False


#: Where dead letters go.
GRAVES = Shape("graves")


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a queue. Its number says when it was published, and what is in it."""

    number: int
    level: int
    size: int
    logged: bool
    wall_ms: int
    #: When it was published.
    came_ms: int
    #: The record that says it was published; those that say it was put back.
    commit: int = 0
    returns: list[int] = field(default_factory=list)
    returned: int = 0
    ready: bool = True
    #: It was handed out at some time; the next to get it must be told so.
    handed: bool = False
    flagged: bool = False
    #: That it is gone stands in a record after the first and, once known, not after the second.
    gone_after: int | None = None
    gone_by: int | None = None
    #: It was to be published as a dead letter, in this record.
    dies: bool = False
    heir: int = 0


@dataclass(slots=True, eq=False)
class ModelQueue:
    """What a queue must hold."""

    shape: Shape
    queue_id: int
    created: int
    deleted: int | None = None
    entries: dict[int, Entry] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    ready: int = 0

    def put(self, entry: Entry) -> None:
        """It is ready."""
        entry.ready = True
        self.ready += 1
        heapq.heappush(self.waiting, (-entry.level, entry.number))

    def head(self) -> Entry | None:
        """The next to go out."""
        while self.waiting:
            entry = self.entries.get(self.waiting[0][1])
            if entry is not None and entry.ready and entry.gone_after is None:
                return entry
            heapq.heappop(self.waiting)
        return None

    def live(self) -> list[Entry]:
        """All that have not left."""
        return [e for e in self.entries.values() if e.gone_after is None]


def body_of(number: int, size: int) -> bytes:
    """Every message differs from all others."""
    body = b"%d:" % number
    return body + bytes([number % 251]) * max(0, size - len(body))


@lru_cache(1 << 14)
def header_of(persistent: bool, priority: int, size: int) -> bytes:
    properties = {"delivery_mode": 2 if persistent else 1}
    if priority:
        properties["priority"] = priority
    return encode_properties(properties, size)


class Keeper:
    """Keeps the durable queues' declarations, as the engine does for everything."""

    def __init__(self, make: Callable[[Shape, int], None], drop: Callable[[int], None]) -> None:
        self.shapes: dict[int, Shape] = {}
        self.next_id = 1
        self._make = make
        self._drop = drop

    def snapshot(self) -> bytes:
        shapes = [[i, *fields_of(shape)] for i, shape in self.shapes.items()]
        return json.dumps([self.next_id, shapes]).encode()

    def load(self, snapshot: bytes) -> None:
        self.next_id, shapes = json.loads(snapshot)
        for queue_id, *fields in shapes:
            self.add(queue_id, Shape(*fields))

    def add(self, queue_id: int, shape: Shape) -> None:
        self.shapes[queue_id] = shape
        self.next_id = max(self.next_id, queue_id + 1)
        self._make(shape, queue_id)

    def apply(self, payload: bytes) -> None:
        queue_id, *fields = json.loads(payload)
        if fields:
            self.add(queue_id, Shape(*fields))
        elif self.shapes.pop(queue_id, None) is not None:
            self._drop(queue_id)


def fields_of(shape: Shape) -> list[Any]:
    return [getattr(shape, name) for name in Shape.__slots__]
