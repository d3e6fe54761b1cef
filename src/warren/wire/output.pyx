"""The bytes on their way to one peer: a growing buffer that frames are encoded straight into."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from warren.wire.octets cimport store16, store32

cdef enum:
    INITIAL_BYTES = 4096
    # A drained buffer larger than this is given back: one burst must not cost memory for ever.
    KEEP_BYTES = 262144


@cython.final
cdef class Output:
    """`reserve` room, write into it, add to `end`; the link takes from `start`."""

    def __cinit__(self):
        self.capacity = INITIAL_BYTES
        self.buffer = <uint8_t*>malloc(self.capacity)
        if self.buffer is NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.buffer)

    cdef uint8_t* reserve(self, size_t n) except NULL:
        cdef size_t capacity
        cdef uint8_t* grown
        if self.end + n > self.capacity:
            if self.start:
                memmove(self.buffer, self.buffer + self.start, self.end - self.start)
                self.end -= self.start
                self.start = 0
            capacity = self.capacity
            while self.end + n > capacity:
                capacity *= 2
            if capacity != self.capacity:
                grown = <uint8_t*>realloc(self.buffer, capacity)
                if grown is NULL:
                    raise MemoryError()
                self.buffer = grown
                self.capacity = capacity
        return self.buffer + self.end

    cdef void sent(self, size_t n) noexcept:
        cdef uint8_t* smaller
        self.start += n
        if self.start == self.end:
            self.start = self.end = 0
            if self.capacity > KEEP_BYTES:
                smaller = <uint8_t*>realloc(self.buffer, INITIAL_BYTES)
                if smaller is not NULL:
                    self.buffer = smaller
                    self.capacity = INITIAL_BYTES

    cdef int method(self, int channel, bytes payload) except -1:
        cdef Py_ssize_t n = PyBytes_GET_SIZE(payload)
        cdef uint8_t* p = self.reserve(n + 8)
        p[0] = 1
        store16(p + 1, channel)
        store32(p + 3, <uint32_t>n)
        memcpy(p + 7, PyBytes_AS_STRING(payload), n)
        p[7 + n] = 0xCE
        self.end += n + 8
        return 0

    def write(self, bytes data not None):
        """Append bytes as they are."""
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        memcpy(self.reserve(n), PyBytes_AS_STRING(data), n)
        self.end += n

    def take(self):
        """All pending bytes, removed: for links that cannot write from the buffer itself."""
        data = PyBytes_FromStringAndSize(<char*>self.buffer + self.start, self.end - self.start)
        self.sent(self.end - self.start)
        return data

    def __len__(self):
        return self.end - self.start
