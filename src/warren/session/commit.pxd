from libc.stdint cimport int64_t, uint64_t

from warren.model.ports cimport PublisherPort, TurnClock


cdef class Commit(PublisherPort):
    cdef TurnClock turn
    cdef int64_t waiting           # answers that are still to come
    cdef bint ended
    cdef public bint refused       # some queue has refused a message
    cdef public uint64_t mark      # what it wrote to the log of this node ends here
    cdef readonly object errand
