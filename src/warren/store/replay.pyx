"""Plays the records of a log back into the queues, at the start.

The records come in order and are sound, but after damage some may be missing. Each queue's records
are numbered, so a gap is seen at the queue that it hit; what a queue cannot follow is noted and
left out, never a reason to stop.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.model.ports cimport QueuePort
from warren.store.journal cimport (
    CONTENT_BYTES, GONE, METADATA, MOVED, PUBLISH, REQUEUE, TARGET_BYTES, TARGET_OPENED, WATERMARK,
    Journal, Segment, Target, content_fits,
)
from warren.store.octets cimport load32, load64
from warren.store.scanner cimport Record


@cython.final
cdef class Replay:
    """See the module's text."""

    cdef Journal journal
    cdef object on_metadata
    cdef readonly dict gaps        # queue -> (first index that is missing, first one after it)
    cdef readonly dict last_seen   # queue id -> number of the newest record about it
    cdef readonly list faults      # (number of the record, what is wrong with it)
    cdef readonly uint64_t orphans   # messages for queues that nobody knows
    cdef readonly uint64_t records

    def __init__(self, Journal journal not None, on_metadata):
        self.journal = journal
        self.on_metadata = on_metadata
        self.gaps = {}
        self.last_seen = {}
        self.faults = []

    def take(self, list records not None, uint32_t segment):
        """Some records of a segment, in order."""
        cdef Record record
        for record in records:
            self.records += 1
            try:
                self.one(record, <uint64_t>segment << 32 | record.offset)
            except ValueError as error:
                self.faults.append((record.sequence, str(error)))

    cdef int one(self, Record record, uint64_t place) except -1:
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(record.payload)
        cdef size_t n = PyBytes_GET_SIZE(record.payload)
        cdef QueuePort queue
        if record.kind == PUBLISH or record.kind == MOVED:
            return self.message(record, p, n, place)
        if record.kind == METADATA:
            self.on_metadata(record.payload)
            return 0
        if record.kind != GONE and record.kind != WATERMARK and record.kind != REQUEUE:
            return 0
        queue = <QueuePort>self.journal.queues.get(record.queue_id)
        if queue is None:
            return 0
        if n < 16 or (n - 8) % (16 if record.kind == GONE else 8):
            raise ValueError("a record about a queue has a wrong length")
        self.follow(queue, load64(p), record.sequence)
        if record.kind == WATERMARK:
            queue.restore_opened(load64(p + 8))
        elif record.kind == REQUEUE:
            queue.restore_returned(load64(p + 8))
        else:
            for at in range(8, n, 16):
                queue.restore_gone(load64(p + <size_t>at), load64(p + <size_t>at + 8))
        return 0

    cdef int follow(self, QueuePort queue, uint64_t index, uint64_t sequence) except -1:
        if index != queue.operations + 1 and queue not in self.gaps:
            self.gaps[queue] = (queue.operations + 1, index)
        queue.operations = index
        self.last_seen[queue.queue_id] = sequence
        return 0

    cdef int message(self, Record record, const uint8_t* p, size_t n, uint64_t place) except -1:
        cdef uint32_t count, body_len, i
        cdef Target target
        cdef QueuePort queue
        cdef uint64_t before
        cdef Segment* segment
        if not content_fits(p, n):
            raise ValueError("the lengths in a message record do not add up")
        segment = self.journal.segment(<uint32_t>(place >> 32))
        count = load32(p)
        body_len = load32(p + 12)
        for i in range(count):
            memcpy(&target, p + CONTENT_BYTES + <size_t>i * TARGET_BYTES, TARGET_BYTES)
            queue = <QueuePort>self.journal.queues.get(target.queue_id)
            if queue is None:
                # Damage took the queue. Its messages stay where they are, for whoever can use them.
                self.orphans += 1
                segment.live += 1
                segment.kept += 1
                continue
            if record.kind == MOVED:
                before = queue.relocate(target.slot, place)
                if before == 0:
                    continue
                self.journal.release(before, body_len, True)
            else:
                self.follow(queue, target.index, record.sequence)
                queue.restore(target.slot, place, body_len,
                              self.journal.from_wall(target.wall_ms),
                              target.flags & TARGET_OPENED)
            segment.live += 1
            segment.kept += 1
            segment.live_bytes += body_len
        return 0
