"""A sink that gives frames to Python, or only counts them: to measure links and to try them out."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from warren.model.ports cimport FrameSink


@cython.final
cdef class PythonSink(FrameSink):
    """`take(kind, payload)` for each frame; without it they are counted and forgotten."""

    cdef readonly uint64_t frames
    cdef readonly uint64_t payload_bytes
    cdef readonly uint64_t turns
    cdef readonly bint is_lost
    cdef object take
    cdef object lost

    def __init__(self, take=None, lost=None):
        self.take = take
        self.lost = lost

    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        self.frames += 1
        self.payload_bytes += n
        if self.take is not None:
            self.take(kind, PyBytes_FromStringAndSize(<char*>payload, n))
        return 0

    cdef int end_turn(self) except -1:
        self.turns += 1
        return 0

    def link_lost(self):
        self.is_lost = True
        if self.lost is not None:
            self.lost()
