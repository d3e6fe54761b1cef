from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t get16(const uint8_t* p) noexcept nogil:
    return (<uint16_t>p[0] << 8) | p[1]

cdef inline uint32_t get32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef inline uint64_t get64(const uint8_t* p) noexcept nogil:
    return (<uint64_t>get32(p) << 32) | get32(p + 4)

cdef inline void put16(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>(v >> 8)
    p[1] = <uint8_t>v

cdef inline void put32(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>(v >> 24)
    p[1] = <uint8_t>(v >> 16)
    p[2] = <uint8_t>(v >> 8)
    p[3] = <uint8_t>v

cdef inline void put64(uint8_t* p, uint64_t v) noexcept nogil:
    put32(p, <uint32_t>(v >> 32))
    put32(p + 4, <uint32_t>v)


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
