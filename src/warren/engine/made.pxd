from libc.stdint cimport uint64_t

from warren.model.ports cimport TurnClock
from warren.queue.marks cimport Marks


cdef class Made:
    cdef Marks marks
    cdef uint64_t size     # bytes of all operations so far

    cdef int note(self, uint64_t first, uint64_t size, TurnClock turn) except -1
    cdef int cut(self, uint64_t after, uint64_t last) except -1
    cdef int clear(self) except -1
    cdef bint is_full(self) noexcept
    cdef int all_have(self, uint64_t position) except -1
