from libc.stdint cimport uint64_t


cdef class Sequences:
    cdef uint64_t* numbers     # in order
    cdef size_t room
    cdef readonly size_t count

    cdef int add(self, uint64_t number) except -1
    cdef void forget(self, uint64_t upto) noexcept
    cdef size_t above(self, uint64_t number) noexcept
