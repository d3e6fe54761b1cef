"""A replica's log in which a batch of a producer is whole, or is not there.

The messages of a batch are operations like others, between one that begins it (`OP_BATCH` 0) and
one that ends it (`OP_BATCH` 1); the master makes all of them in one turn. A failover may cut a
batch in the middle. So none of its operations is applied before its end is committed, on the master
as on mirrors: until then the log counts as applied up to where the batch begins. A master's `view`
operation, which is the first of its epoch, ends what stands open before it: that batch is left out,
by all replicas alike, and its producer sends it again.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.engine.restored_log cimport RestoredLog
from warren.engine.ring_operations cimport OP_BATCH, OP_HEAD_BYTES, OP_PUBLISH, OP_VIEW, Operation

from collections import deque

#: What the two operations say.
BATCH_BEGINS, BATCH_ENDS = b"\x00", b"\x01"


cdef class WholeBatches(RestoredLog):
    """See the module's text."""

    def __cinit__(self, *args, **kwargs):
        self.batch_spans = deque()

    # -- where batches begin and end ---------------------------------------------------------------

    cdef int note_kind(self, uint64_t index, int kind, int how) except -1:
        if kind == OP_BATCH and how == 0:
            self.batch_spans.append((index, 0, False))
        elif self.batch_spans:
            first, last, is_whole = self.batch_spans.pop()
            if last == 0:
                last, is_whole = index, kind == OP_BATCH
            self.batch_spans.append((first, last, is_whole))
        return 0

    cdef int note_spans(self, bytes data, uint64_t first) except -1:
        """Of operations that have been added to the log."""
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef size_t at = 0, n = <size_t>PyBytes_GET_SIZE(data)
        cdef uint32_t length
        cdef uint64_t index = first
        while at < n:
            memcpy(&length, p + at + 1, 4)
            if p[at] == OP_BATCH or p[at] == OP_VIEW:
                self.note_kind(index, p[at], p[at + OP_HEAD_BYTES] if length else 0)
            at += OP_HEAD_BYTES + length
            index += 1
        return 0

    def append(self, batch not None):
        RestoredLog.append(self, batch)
        self.note_spans(batch.data, batch.first)

    cdef int note_replayed(self, Operation operation) except -1:
        RestoredLog.note_replayed(self, operation)
        if operation.kind == OP_BATCH or operation.kind == OP_VIEW:
            self.note_kind(operation.index, operation.kind,
                           operation.data[0] if operation.data else 0)
        return 0

    def load_snapshot(self, bytes snapshot not None):
        cdef Operation operation
        RestoredLog.load_snapshot(self, snapshot)
        for operation in self.tail:
            if operation.kind == OP_BATCH or operation.kind == OP_VIEW:
                self.note_kind(operation.index, operation.kind,
                               operation.data[0] if operation.data else 0)

    cdef int drop_tail(self, uint64_t after) except -1:
        RestoredLog.drop_tail(self, after)
        while self.batch_spans:
            first, last, is_whole = self.batch_spans.pop()
            if first <= after:
                self.batch_spans.append((first, 0, False) if last > after
                                        else (first, last, is_whole))
                break
        return 0

    # -- applying ----------------------------------------------------------------------------------

    cdef uint64_t whole_to(self, uint64_t index) except? 0:
        """How far the log may count as applied; batches that are whole by then are forgotten."""
        while self.batch_spans and self.batch_spans[0][0] <= index:
            first, last, is_whole = self.batch_spans[0]
            if last == 0 or last > index:
                return first - 1
            self.batch_spans.popleft()
            if not is_whole:
                # What came before it, and then not this one.
                RestoredLog.apply_to(self, first - 1)
                self.leave_out(last)
        return index

    cdef int leave_out(self, uint64_t end) except -1:
        """The operations before this one, which ends a batch that never came whole, do nothing."""
        cdef Operation operation
        while self.tail:
            operation = <Operation>self.tail[0]
            if operation.index >= end:
                break
            self.tail.popleft()
            if operation.kind == OP_PUBLISH:
                self.journal.release(operation.place, operation.body_len, True)
        return 0

    def apply_to(self, uint64_t index):
        """All replicas in sync have the operations up to here."""
        RestoredLog.apply_to(self, self.whole_to(index))
