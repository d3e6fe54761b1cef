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
    BATCH, CONTENT_BYTES, CURSOR, GONE, METADATA, MOVED, PUBLISH, REQUEUE, RING, TARGET_BYTES,
    TARGET_GONE, WATERMARK, Journal, Segment, Target, content_fits,
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
        if record.kind == RING:
            return self.ring(record, p, n)
        if record.kind == CURSOR:
            return self.cursor(record, n)
        if record.kind == BATCH:
            return self.batch(record, p, n)
        if record.kind != GONE and record.kind != WATERMARK and record.kind != REQUEUE:
            return 0
        queue = self.journal.queue_of(record.queue_id)
        if queue is None:
            return 0
        if n < 16 or (n - 8) % (16 if record.kind == GONE else 8):
            raise ValueError("a record about a queue has a wrong length")
        if queue.mirror is not None:
            self.last_seen[queue.queue_id] = record.sequence
            return queue.mirror.replay(record.kind, 0, record.epoch, load64(p), p + 8, n - 8)
        self.follow(queue, load64(p), record.sequence)
        if record.kind == WATERMARK:
            queue.restore_opened(load64(p + 8))
        elif record.kind == REQUEUE:
            queue.restore_returned(load64(p + 8))
        else:
            for at in range(8, n, 16):
                queue.restore_gone(load64(p + <size_t>at), load64(p + <size_t>at + 8))
        return 0

    cdef int cursor(self, Record record, size_t n) except -1:
        cdef QueuePort queue = self.journal.queue_of(record.queue_id)
        if queue is None:
            return 0
        if n < 8:
            raise ValueError("a record about a queue has a wrong length")
        self.follow(queue, load64(<const uint8_t*>PyBytes_AS_STRING(record.payload)),
                    record.sequence)
        return queue.restore_cursor(record.payload[8:])

    cdef int batch(self, Record record, const uint8_t* p, size_t n) except -1:
        """Messages that were placed before, all at once."""
        cdef uint32_t count, targets, body_len
        cdef size_t at = 4
        cdef uint64_t place
        cdef QueuePort queue
        if n < 8:
            raise ValueError("a batch is cut short")
        count = load32(p)
        for _ in range(count):
            if n - at < 16:
                raise ValueError("a batch is cut short")
            place = load64(p + at)
            body_len = load32(p + at + 8)
            targets = load32(p + at + 12)
            at += 16
            if (n - at) // TARGET_BYTES < targets:
                raise ValueError("a batch is cut short")
            for _ in range(targets):
                self.target(record, p + at, place, body_len)
                at += TARGET_BYTES
        if n - at < 4 or (n - at - 4) // 24 < load32(p + at):
            raise ValueError("a batch is cut short")
        count = load32(p + at)
        at += 4
        operation = record.payload[at + <size_t>count * 24:]
        for _ in range(count):
            queue = self.journal.queue_of(<uint32_t>load64(p + at))
            if queue is not None:
                self.follow(queue, load64(p + at + 16), record.sequence)
                queue.restore_cursor(operation)
            at += 24
        return 0

    cdef int ring(self, Record record, const uint8_t* p, size_t n) except -1:
        cdef QueuePort queue = self.journal.queue_of(record.queue_id)
        if queue is None:
            return 0
        if n < 9:
            raise ValueError("a record about a ring has a wrong length")
        if queue.mirror is None:
            self.journal.on_mirrored(queue)
        self.last_seen[queue.queue_id] = record.sequence
        return queue.mirror.replay(RING, p[8], record.epoch, load64(p), p + 9, n - 9)

    cdef int follow(self, QueuePort queue, uint64_t index, uint64_t sequence) except -1:
        if index != queue.operations + 1 and queue not in self.gaps:
            self.gaps[queue] = (queue.operations + 1, index)
        queue.operations = index
        self.last_seen[queue.queue_id] = sequence
        return 0

    cdef int message(self, Record record, const uint8_t* p, size_t n, uint64_t place) except -1:
        cdef uint32_t i
        if not content_fits(p, n):
            raise ValueError("the lengths in a message record do not add up")
        for i in range(load32(p)):
            self.target(record, p + CONTENT_BYTES + <size_t>i * TARGET_BYTES, place,
                        load32(p + 12))
        return 0

    cdef int target(self, Record record, const uint8_t* p, uint64_t place,
                    uint32_t body_len) except -1:
        """One queue that keeps a message."""
        cdef Target target
        cdef QueuePort queue
        cdef uint64_t before
        cdef Segment* segment = self.journal.segment(<uint32_t>(place >> 32))
        if segment is NULL:
            raise ValueError("a message stands in a segment that there never was")
        memcpy(&target, p, TARGET_BYTES)
        queue = self.journal.queue_of(target.queue_id)
        if target.flags & TARGET_GONE:
            if queue is not None and queue.mirror is None:
                self.follow(queue, target.index, record.sequence)
                queue.restore_gone(target.slot, 1)
            return 0
        if queue is None:
            # Damage took the queue. Its messages stay where they are, for whoever can use them.
            self.orphans += 1
            segment.live += 1
            segment.kept += 1
            return 0
        if record.kind == MOVED:
            before = queue.relocate(target.slot, place)
            if before == 0 and queue.mirror is not None:
                before = queue.mirror.relocate(target.slot, place)
            if before == 0:
                return 0
            self.journal.release(before, body_len, True)
        elif queue.mirror is not None:
            self.last_seen[queue.queue_id] = record.sequence
            if not queue.mirror.replay_publish(
                    target.epoch, target.index, target.slot, target.wall_ms, target.flags,
                    target.gateway, target.sequence, place, body_len):
                return 0
        else:
            self.follow(queue, target.index, record.sequence)
            queue.restore(target.slot, place, body_len, self.journal.from_wall(target.wall_ms),
                          target.flags)
        segment.live += 1
        segment.kept += 1
        segment.live_bytes += body_len
        return 0
