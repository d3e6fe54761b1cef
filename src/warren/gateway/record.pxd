from libc.stdint cimport uint32_t, uint64_t

from warren.gateway.sequences cimport Sequences
from warren.model.ports cimport PublisherPort

# Publishes up to a sequence number wait for the log to come so far.
cdef struct Waiting:
    uint64_t last
    uint64_t mark


# A publish to a queue that answers later.
cdef struct Open:
    uint64_t sequence
    uint32_t number      # of the queue
    uint32_t attempt     # 0: the gateway takes it for a plain one
    bint waits           # the answer is still to come


cdef class GatewayRecord(PublisherPort):
    cdef readonly uint64_t last      # the newest sequence number that was taken
    cdef readonly uint64_t done      # everything up to here may be confirmed
    cdef uint64_t logged             # everything up to here is on the disk
    cdef uint64_t session            # the number of the newest link
    cdef object current              # the end of the newest link; the others are not listened to
    cdef Waiting* waiting            # a ring
    cdef size_t capacity
    cdef size_t head
    cdef readonly size_t count
    cdef Open* open                  # a ring
    cdef size_t open_capacity
    cdef size_t open_head
    cdef readonly size_t open_count
    cdef Sequences refused           # kept until the gateway has heard of them
    cdef Sequences elsewhere         # the same: their queue was not, or is no longer, here
    cdef dict turned_away            # queue -> the attempt whose publishes are all elsewhere
    cdef bint due                    # some answer has come and is not told

    cdef Waiting* at(self, size_t i) noexcept
    cdef Open* open_at(self, size_t i) noexcept
    cdef int start(self, object end, uint64_t session, uint64_t base) except -1
    cdef int note(self, uint64_t mark, bint accepted) except -1
    cdef int note_open(self, uint32_t number, uint32_t attempt) except -1
    cdef int note_elsewhere(self, uint32_t number, uint32_t attempt) except -1
    cdef bint is_turned_away(self, uint32_t number, uint32_t attempt) except -1
    cdef int push(self, uint64_t mark) except -1
    cdef int grow_open(self) except -1
    cdef void advance(self, uint64_t persisted) noexcept
    cdef void heard(self, uint64_t upto) noexcept
