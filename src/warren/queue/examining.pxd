from libc.stdint cimport uint64_t


cdef class Stretch:
    cdef readonly uint64_t place   # where it begins in the log
    cdef uint64_t last             # where its last message stands ...
    cdef uint64_t behind           # ... and how many bytes that has, or more
    cdef bytearray pairs           # of each message: slot, place

    cdef bint takes(self, uint64_t place) noexcept
    cdef int add(self, uint64_t slot, uint64_t place, uint64_t behind) except -1
