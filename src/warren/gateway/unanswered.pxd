from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport PublisherPort

# One message for one or more queues of a home, under one sequence number.
cdef struct Sent:
    PyObject* message      # owned
    PyObject* publisher    # owned; NULL: nobody wants to hear of it
    uint64_t tag
    uint32_t* numbers      # of its queues when there are several, else NULL
    uint32_t number        # of its first queue
    uint32_t count
    bint refused


cdef class Unanswered:
    cdef Sent* entries
    cdef size_t capacity         # a power of two
    cdef size_t head
    cdef readonly size_t count
    cdef readonly uint64_t answered   # the newest sequence number that is answered or given up
    cdef readonly uint64_t size       # bytes of all messages

    cdef Sent* at(self, size_t i) noexcept
    cdef Sent* of(self, uint64_t sequence) noexcept
    cdef int push(self, Message message, uint32_t number, PublisherPort publisher,
                  uint64_t tag) except -1
    cdef int add_number(self, Sent* entry, uint32_t number) except -1
    cdef int answer_next(self, bint accepted, list waiting) except -1
    cdef int grow(self) except -1
