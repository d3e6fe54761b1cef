"""Compaction: the little that is needed of an old segment is written once more, so that it can go.

Goes through a segment a slice at a time, so that nothing else waits for it: once to weigh what is
needed, since only bodies are counted and a record is more than that, and once more to move it if
that is worth while. What it moves is on the disk twice until the next checkpoint, which no longer
speaks of the old place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from warren.store.records import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Kind
from warren.store.scanner import Record, read_records

if TYPE_CHECKING:
    from warren.store.journal import Journal

#: Read at once, and records looked at a step.
SLICE_BYTES = 1 << 20
STEP_RECORDS = 512
_CONTENT = struct.Struct("<IIII")
_TARGET = struct.Struct("<IIQQQqQQ")
_SLOT = struct.Struct("<Q")


class Compaction:
    """One segment's, which is left alone when `needed_max` bytes of it or more are needed."""

    def __init__(
        self, journal: Journal, number: int, first_sequence: int, size: int, needed_max: float
    ) -> None:
        self.journal = journal
        self.number = number
        self.moved = 0
        #: Why it was given up; empty: it was not.
        self.fault = ""
        #: So many bytes of records are needed, as far as it was weighed.
        self.needed_bytes = 0
        self._needed_max = needed_max
        self._is_weighed = False
        self._first_sequence = self._expected = first_sequence
        self._at = SEGMENT_HEADER_BYTES
        self._size = size

    @property
    def is_worth_while(self) -> bool:
        """Whether little is needed, as far as is known."""
        return self.needed_bytes < self._needed_max

    def step(self) -> bool:
        """Go on a little; False when there is nothing more to do."""
        if self.fault or not self.is_worth_while:
            return False
        if self._at >= self._size:
            if self._is_weighed:
                return False
            self._is_weighed = True
            self._at, self._expected = SEGMENT_HEADER_BYTES, self._first_sequence
        records, used = self._read(SLICE_BYTES)
        if not records:
            return False
        handle = self._look_at if self._is_weighed else self._weigh
        for record in records:
            handle(record, self.number << 32 | self._at + record.offset)
        self._at += used
        return True

    def _read(self, size: int) -> tuple[list[Record], int]:
        assert self.journal.read_at is not None
        try:
            data = self.journal.read_at(self.number, self._at, size)
        except OSError as error:
            self.fault = f"cannot be read: {error.strerror}"
            return [], 0
        records, used = read_records(data, 0, self._expected, STEP_RECORDS, self.journal.salt)
        if not records and len(data) == size:
            # A record longer than the slice: its length stands in its header.
            length = RECORD_HEADER_BYTES + int.from_bytes(data[4:8], "little")
            if size < length <= self._size - self._at:
                return self._read(length)
        if not records:
            self.fault = f"does not check at offset {self._at}"
        self._expected += len(records)
        return records, used

    def _weigh(self, record: Record, place: int) -> None:
        if record.kind in {Kind.PUBLISH, Kind.MOVED}:
            is_needed = bool(self._needed(record.payload, place))
        elif record.kind == Kind.INDEX:
            queue = self.journal.queues.get(record.queue_id)
            slot = _SLOT.unpack_from(record.payload)[0]
            is_needed = queue is not None and queue.needs_index(slot, place)
        else:
            return
        if is_needed:
            self.needed_bytes += RECORD_HEADER_BYTES + len(record.payload)

    def _look_at(self, record: Record, place: int) -> None:
        if record.kind in {Kind.PUBLISH, Kind.MOVED}:
            self._move(record.payload, place)
        elif record.kind == Kind.INDEX:
            queue = self.journal.queues.get(record.queue_id)
            if queue is not None:
                queue.give_up_index(_SLOT.unpack_from(record.payload)[0], place)

    def _needed(self, payload: bytes, place: int) -> list[tuple[Any, int, int, int, int, int]]:
        """For which queues a message is needed there, as `Journal.move_message` takes them."""
        needed = []
        count = _CONTENT.unpack_from(payload)[0]
        for i in range(count):
            queue_id, flags, epoch, index, slot, wall_ms, _, _ = _TARGET.unpack_from(
                payload, _CONTENT.size + i * _TARGET.size
            )
            queue = self.journal.queues.get(queue_id)
            if queue is not None and queue.needs(slot, place):
                needed.append((queue, slot, index, epoch, flags, wall_ms))
        return needed

    def _move(self, payload: bytes, place: int) -> None:
        needed = self._needed(payload, place)
        if needed:
            message = self.journal.read_message(payload)
            if message is not None:
                self.journal.move_message(message, needed, place)
                self.moved += 1
