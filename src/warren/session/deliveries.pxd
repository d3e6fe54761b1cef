from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

cdef struct Delivery:
    uint64_t tag
    uint64_t slot
    PyObject* queue       # owned; NULL once settled
    PyObject* consumer    # owned; NULL for basic.get
    int64_t at_ms


cdef class Deliveries:
    cdef Delivery* entries
    cdef size_t capacity   # a power of two
    cdef size_t head
    cdef size_t count      # entries from head, settled ones among them
    cdef readonly size_t live
    cdef readonly uint64_t last_tag

    cdef Delivery* at(self, size_t i) noexcept
    cdef int push(self, uint64_t slot, object queue, object consumer, int64_t at_ms) except -1
    cdef int64_t find(self, uint64_t tag) noexcept
    cdef int settle(self, size_t i) except -1
    cdef int grow(self) except -1
    cdef void compact(self) noexcept
