from libc.stdint cimport uint64_t

# Publishes up to a sequence number wait for the log to come so far.
cdef struct Waiting:
    uint64_t last
    uint64_t mark


cdef class GatewayRecord:
    cdef readonly uint64_t last      # the newest sequence number that was taken
    cdef readonly uint64_t done      # everything up to here may be confirmed
    cdef uint64_t session            # the number of the newest link
    cdef object current              # the end of the newest link; the others are not listened to
    cdef Waiting* waiting            # a ring
    cdef size_t capacity
    cdef size_t head
    cdef readonly size_t count
    cdef uint64_t* refused           # in order; kept until the gateway has heard of them
    cdef size_t refused_room
    cdef readonly size_t refused_count

    cdef Waiting* at(self, size_t i) noexcept
    cdef int start(self, object end, uint64_t session, uint64_t base) except -1
    cdef int note(self, uint64_t mark, bint accepted) except -1
    cdef int note_refused(self) except -1
    cdef int push(self, uint64_t mark) except -1
    cdef void advance(self, uint64_t persisted) noexcept
    cdef void heard(self, uint64_t upto) noexcept
