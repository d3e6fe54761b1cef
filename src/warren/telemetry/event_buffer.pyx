"""The event journal's buffer: what happens to messages, as columns in memory that outlive a crash.

The memory is that of a file, so what was noted is there when the process is killed. Events of one
kind in the same turn at neighbouring positions of a queue are one row: a busy queue takes a few
bytes a message. No row goes beyond a block of 65,536 positions, which is what the
audit adds up. Bytes: docs/internals/journal.md.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from warren.model.ports cimport JournalPort, TurnClock

EVENTS = (
    "", "publish", "confirm", "refuse", "deliver", "take-back", "ack", "reject", "requeue",
    "expire", "drop", "limit", "purge", "drain", "promote", "depose", "snapshot", "held",
    "return", "sync", "delete", "adopt", "dead-letter", "position", "copy",
)
NUMBERS = {name: number for number, name in enumerate(EVENTS) if name}
MAGIC = b"WARRENJ1"

cdef enum:
    HEAD_BYTES = 64
    ROW_BYTES = 38
    LENGTH_AT = 12
    BLOCK_POSITIONS = 65536
    AWAITED_MIN = 256

HEAD_SIZE = HEAD_BYTES
ROW_SIZE = ROW_BYTES


def bytes_for(uint32_t capacity):
    """How large a buffer for so many rows is."""
    return HEAD_BYTES + <uint64_t>capacity * ROW_BYTES


@cython.final
cdef class EventBuffer:
    """See the module's text. `on_full` must give it other memory by `use`."""

    def __init__(self, TurnClock turn not None, JournalPort journal, on_full not None,
                 name_queue not None):
        self.turn = turn
        self.journal = journal
        self.on_full = on_full
        self.name_queue = name_queue

    def __dealloc__(self):
        free(self.awaited)

    def use(self, memory not None, uint32_t capacity, int64_t wall_offset_us):
        """Note events in this memory from now on; what was used before is the caller's again."""
        cdef Py_buffer view
        cdef size_t rows = (capacity // 8) * 8
        PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if <uint64_t>view.len < HEAD_BYTES + <uint64_t>rows * ROW_BYTES:
            PyBuffer_Release(&view)
            raise ValueError("the memory is too small for so many events")
        self.head = <uint8_t*>view.buf
        PyBuffer_Release(&view)  # `memory` is held, and is not moved while it is open
        self.memory = memory
        self.capacity = <uint32_t>rows
        self.at_us = <int64_t*>(self.head + HEAD_BYTES)
        self.first = <uint64_t*>(self.at_us + rows)
        self.bytes_ = self.first + rows
        self.count = <uint32_t*>(self.bytes_ + rows)
        self.queue = self.count + rows
        self.epoch = self.queue + rows
        self.event = <uint8_t*>(self.epoch + rows)
        self.flags = self.event + rows
        self.length = 0
        memset(self.newest, 0, sizeof(self.newest))
        memset(self.head, 0, HEAD_BYTES)
        memcpy(self.head, <char*>MAGIC, 8)
        (<uint32_t*>(self.head + 8))[0] = self.capacity
        (<int64_t*>(self.head + 16))[0] = wall_offset_us

    cdef uint32_t number_of(self, object queue) except 0:
        """A queue's number in this journal, given at its first event."""
        return <uint32_t>self.name_queue(queue)

    cdef int note(self, uint32_t queue, uint64_t epoch, int event, int flags, uint64_t slot,
                  uint64_t count, uint64_t size) except -1:
        """Messages at following positions; `size` is what their bodies have together."""
        cdef uint64_t room
        self.noted += count
        while count:
            room = BLOCK_POSITIONS - slot % BLOCK_POSITIONS
            if count <= room:
                return self.add(queue, epoch, event, flags, slot, <uint32_t>count, size)
            self.add(queue, epoch, event, flags, slot, <uint32_t>room, 0)
            slot += room
            count -= room
        return 0

    cdef int add(self, uint32_t queue, uint64_t epoch, int event, int flags, uint64_t slot,
                 uint32_t count, uint64_t size) except -1:
        cdef uint32_t* newest = &self.newest[event][queue % NEWEST_QUEUES]
        cdef uint32_t i = newest[0]
        if i:
            i -= 1
            if (self.queue[i] == queue and self.first[i] + self.count[i] == slot
                    and self.at_us[i] == self.turn.now_us and self.flags[i] == flags
                    and self.epoch[i] == <uint32_t>epoch and slot % BLOCK_POSITIONS):
                self.count[i] += count
                self.bytes_[i] += size
                return 0
        if self.length == self.capacity:
            self.on_full()
        i = self.length
        self.at_us[i] = self.turn.now_us
        self.first[i] = slot
        self.bytes_[i] = size
        self.count[i] = count
        self.queue[i] = queue
        self.epoch[i] = <uint32_t>epoch
        self.event[i] = <uint8_t>event
        self.flags[i] = <uint8_t>flags
        newest[0] = i + 1
        self.length = i + 1
        # Last: whoever reads the file after a crash sees whole rows only.
        (<uint32_t*>(self.head + LENGTH_AT))[0] = i + 1
        return 0

    # -- what is safe when the log has it ----------------------------------------------------------

    cdef int await_log(self, uint32_t queue, uint64_t epoch, uint64_t slot) except -1:
        """A message was given to the log; `logged` tells when it is there."""
        cdef Awaited* newest
        cdef Awaited* grown
        cdef size_t room
        cdef uint64_t run = self.waiting[queue % NEWEST_QUEUES]
        if self.awaited_count:
            newest = &self.awaited[self.awaited_from + self.awaited_count - 1]
            if newest.mark == 0 and newest.at_us != self.turn.now_us:
                self.close_turn()
            if run > self.awaited_over:
                newest = &self.awaited[self.awaited_from + <size_t>(run - 1 - self.awaited_over)]
                # Without a mark it is one of this turn.
                if (newest.mark == 0 and newest.queue == queue and newest.epoch == <uint32_t>epoch
                        and newest.first + newest.count == slot):
                    newest.count += 1
                    return 0
        if self.awaited_from + self.awaited_count == self.awaited_room:
            if self.awaited_from >= self.awaited_room // 2 and self.awaited_from:
                memmove(self.awaited, self.awaited + self.awaited_from,
                        self.awaited_count * sizeof(Awaited))
            else:
                room = self.awaited_room * 2 if self.awaited_room else AWAITED_MIN
                grown = <Awaited*>realloc(self.awaited, room * sizeof(Awaited))
                if grown is NULL:
                    raise MemoryError()
                self.awaited = grown
                self.awaited_room = room
                if self.awaited_from:
                    memmove(grown, grown + self.awaited_from,
                            self.awaited_count * sizeof(Awaited))
            self.awaited_from = 0
        newest = &self.awaited[self.awaited_from + self.awaited_count]
        newest.first = slot
        newest.count = 1
        newest.queue = queue
        newest.epoch = <uint32_t>epoch
        newest.at_us = self.turn.now_us
        newest.mark = 0
        self.awaited_count += 1
        self.waiting[queue % NEWEST_QUEUES] = self.awaited_over + self.awaited_count
        return 0

    def close_turn(self):
        """What was awaited in turns that are over stands in the log up to its newest record."""
        cdef size_t i = self.awaited_count
        while i:
            i -= 1
            if self.awaited[self.awaited_from + i].mark:
                return
            self.awaited[self.awaited_from + i].mark = self.journal.commit_mark

    def logged(self):
        """The log has come further: what it has is confirmed."""
        cdef Awaited* oldest
        if self.journal is None:
            return
        while self.awaited_count:
            oldest = &self.awaited[self.awaited_from]
            if oldest.mark == 0:
                if oldest.at_us == self.turn.now_us:
                    return
                self.close_turn()
            if oldest.mark > self.journal.persisted:
                return
            self.awaited_from += 1
            self.awaited_count -= 1
            self.awaited_over += 1
            self.note(oldest.queue, oldest.epoch, EVENT_CONFIRM, 0, oldest.first, oldest.count, 0)

    def record(self, uint32_t queue, uint64_t epoch, int event, uint64_t slot=0, uint64_t count=1,
               uint64_t size=0, bint in_sync=False):
        """Note an event from Python: what does not happen often."""
        self.note(queue, epoch, event, FLAG_IN_SYNC if in_sync else 0, slot, count, size)

    def returned(self, uint32_t number, uint64_t size):
        """A message went back to its publisher; `number` is its virtual host's.

        They are counted through, so that those of a turn are one row.
        """
        self.note(number, 0, EVENT_RETURN, 0, self.returns, 1, size)
        self.returns += 1
