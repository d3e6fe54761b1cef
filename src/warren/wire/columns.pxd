from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

# Bytes that grow.
cdef struct Buffer:
    uint8_t* data
    size_t length
    size_t room


cdef int grow(Buffer* buffer, size_t more) except -1
cdef int reserve(Buffer* buffer, size_t room) except -1

cdef inline int put(Buffer* buffer, const void* data, size_t n) except -1:
    cdef uint8_t* at
    if buffer.room - buffer.length < n:
        grow(buffer, n)
    at = buffer.data + buffer.length
    buffer.length += n
    copy(at, data, n)
    return 0

cdef extern from "string.h":
    void copy "memcpy"(void*, const void*, size_t) nogil


# One column of a block: fixed values, or offsets and bytes; and which values there are.
cdef class Column:
    cdef readonly str name
    cdef readonly str kind
    cdef int width
    cdef Buffer values
    cdef Buffer offsets
    cdef Buffer valid
    cdef uint64_t rows
    cdef bint has_null
    cdef bint has_value

    cdef int reserve(self, uint64_t rows, size_t size) except -1
    cdef int put_bit(self, bint bit) except -1
    cdef int put_valid(self, bint valid) except -1
    cdef int put_null(self) except -1
    cdef int begin_values(self) except -1
    cdef int put_int(self, int64_t value, bint valid) except -1
    cdef int put_bytes(self, const uint8_t* data, size_t n) except -1
    cdef int put_text(self, const uint8_t* data, size_t n) except -1


# Bytes of a column that is done.
cdef class Span:
    cdef Buffer held           # with what pads them
    cdef readonly size_t length

    cdef int take(self, Buffer* buffer) except -1
    cdef int copy_of(self, bytes data) except -1


cdef class Block:
    cdef list spans
    cdef readonly size_t size
