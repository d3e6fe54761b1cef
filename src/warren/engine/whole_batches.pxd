from libc.stdint cimport uint64_t

from warren.engine.restored_log cimport RestoredLog
from warren.engine.ring_operations cimport Operation


cdef class WholeBatches(RestoredLog):
    # (first, last or 0, whether it is whole) of batches with an operation that is not applied
    cdef object batch_spans

    cdef int note_kind(self, uint64_t index, int kind, int how) except -1
    cdef int note_spans(self, bytes data, uint64_t first) except -1
    cdef uint64_t whole_to(self, uint64_t index) except? 0
    cdef int leave_out(self, uint64_t end) except -1
