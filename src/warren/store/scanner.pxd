from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef class Record:
    cdef readonly bytes payload
    cdef readonly uint64_t sequence
    cdef readonly uint64_t epoch
    cdef readonly size_t offset    # of the record in its segment; 0 when it came from no segment
    cdef readonly uint32_t queue_id
    cdef readonly uint16_t place   # how many records before it were not yet synced
    cdef readonly uint8_t kind
    cdef readonly uint8_t flags


cdef size_t whole(const uint8_t* data, size_t size, size_t at, uint32_t salt) noexcept nogil
