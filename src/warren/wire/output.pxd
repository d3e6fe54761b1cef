from libc.stdint cimport uint8_t


cdef class Output:
    cdef uint8_t* buffer
    cdef size_t capacity
    cdef size_t start    # first byte not yet written to the peer
    cdef size_t end      # where the next byte goes

    cdef uint8_t* reserve(self, size_t n) except NULL
    cdef void sent(self, size_t n) noexcept
    cdef int method(self, int channel, bytes payload) except -1
    cdef inline size_t pending(self) noexcept:
        return self.end - self.start
