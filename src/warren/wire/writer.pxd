from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef class Writer:
    cdef uint8_t* data
    cdef size_t size
    cdef size_t capacity

    cdef uint8_t* extend(self, size_t count) except NULL
    cdef int put8(self, uint8_t value) except -1
    cdef int put16(self, uint16_t value) except -1
    cdef int put32(self, uint32_t value) except -1
    cdef int put64(self, uint64_t value) except -1
    cdef int put_raw(self, bytes raw) except -1
    cdef int put_memory(self, const uint8_t* p, size_t count) except -1
    cdef int put_shortstr(self, str text) except -1
    cdef int put_longstr(self, bytes raw) except -1
    cdef size_t open_length(self) except? 0
    cdef int close_length(self, size_t at) except -1
    cdef bytes finish(self)
