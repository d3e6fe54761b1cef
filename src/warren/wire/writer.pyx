"""A growing piece of memory into which the codec writes payloads.

Its numbers are written in network byte order. What does not fit the wire's length fields raises
`WireSyntaxError`: nothing is ever cut silently.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.string cimport memcpy

from warren.model.errors import WireSyntaxError
from warren.wire.octets cimport store16, store32, store64

cdef enum:
    FIRST_CAPACITY_BYTES = 128
    SHORTSTR_BYTES_MAX = 255

cdef uint64_t LONGSTR_BYTES_MAX = 0xFFFFFFFF


@cython.final
@cython.no_gc
cdef class Writer:
    """Collects a payload; `finish` hands it out."""

    def __cinit__(self):
        self.data = NULL
        self.size = 0
        self.capacity = 0

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef uint8_t* extend(self, size_t count) except NULL:
        """Add `count` bytes, to be filled in by the caller, and return where they start."""
        cdef size_t needed = self.size + count
        cdef size_t capacity
        cdef uint8_t* data
        if needed > self.capacity or self.data is NULL:
            capacity = max(<size_t>FIRST_CAPACITY_BYTES, self.capacity * 2, needed)
            data = <uint8_t*>PyMem_Realloc(self.data, capacity)
            if data is NULL:
                raise MemoryError()
            self.data = data
            self.capacity = capacity
        data = self.data + self.size
        self.size = needed
        return data

    cdef int put8(self, uint8_t value) except -1:
        self.extend(1)[0] = value
        return 0

    cdef int put16(self, uint16_t value) except -1:
        store16(self.extend(2), value)
        return 0

    cdef int put32(self, uint32_t value) except -1:
        store32(self.extend(4), value)
        return 0

    cdef int put64(self, uint64_t value) except -1:
        store64(self.extend(8), value)
        return 0

    cdef int put_memory(self, const uint8_t* p, size_t count) except -1:
        memcpy(self.extend(count), p, count)
        return 0

    cdef int put_raw(self, bytes raw) except -1:
        return self.put_memory(<const uint8_t*>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))

    cdef int put_shortstr(self, str text) except -1:
        cdef bytes raw
        try:
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise WireSyntaxError("a short string holds a lone surrogate") from None
        if PyBytes_GET_SIZE(raw) > SHORTSTR_BYTES_MAX:
            raise WireSyntaxError(f"a short string has {len(raw)} bytes, more than 255")
        self.put8(<uint8_t>PyBytes_GET_SIZE(raw))
        return self.put_raw(raw)

    cdef int put_longstr(self, bytes raw) except -1:
        if <uint64_t>PyBytes_GET_SIZE(raw) > LONGSTR_BYTES_MAX:
            raise WireSyntaxError("a long string is longer than 4 GiB")
        self.put32(<uint32_t>PyBytes_GET_SIZE(raw))
        return self.put_raw(raw)

    cdef size_t open_length(self) except? 0:
        """Leave room for a length that is known later; give the result to `close_length`."""
        cdef size_t at = self.size
        self.extend(4)
        return at

    cdef int close_length(self, size_t at) except -1:
        """Fill in the length at `at`: all that was written since."""
        cdef size_t length = self.size - at - 4
        if length > LONGSTR_BYTES_MAX:
            raise WireSyntaxError("a table or array is longer than 4 GiB")
        store32(self.data + at, <uint32_t>length)
        return 0

    cdef bytes finish(self):
        """All that was written."""
        return PyBytes_FromStringAndSize(<char*>self.data, self.size)
