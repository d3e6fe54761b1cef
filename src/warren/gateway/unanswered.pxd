from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport PublisherPort, QueuePort

# One message for one or more queues of a home, under one sequence number.
cdef struct Sent:
    PyObject* message      # owned; NULL: it has moved, and only its number is left
    PyObject* publisher    # owned; NULL: nobody wants to hear of it
    PyObject* queue        # owned; the Following queue that it is for, alone; NULL: plain ones
    uint64_t order         # its number among all publishes to that queue
    uint64_t tag
    uint32_t* numbers      # of its queues when there are several, else NULL
    uint32_t number        # of its first queue
    uint32_t count
    bint refused
    bint elsewhere         # the home is not its queue's any more: it waits for the one that is


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
    cdef int follow(self, Following queue, uint64_t order) except -1
    cdef int append(self, Sent* entry) except -1
    cdef int strip(self, size_t i, Sent* entry) except -1
    cdef int refuse_plain(self, set numbers, list waiting) except -1
    cdef int hold_following(self, list waiting) except -1
    cdef int take_first(self, Sent* entry) except -1
    cdef int add_number(self, Sent* entry, uint32_t number) except -1
    cdef int answer_next(self, bint accepted, list waiting) except -1
    cdef int lose_next(self, list waiting) except -1
    cdef int grow(self) except -1


cdef class Following(QueuePort):
    cdef Unanswered held         # publishes that wait for a home, in order
    cdef readonly uint64_t sent  # publishes in the stream to its home; all are behind the held
    cdef readonly uint32_t attempt   # how often its publishes were sent from the first one on
    cdef bint over               # it is deleted: nothing is kept for it
    cdef int hold(self, Sent* entry, list waiting) except -1
    cdef int refill(self) except -1


cdef int answer(Sent* entry, bint accepted, list waiting) except -1
cdef int forget(Sent* entry) except -1
