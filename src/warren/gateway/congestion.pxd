from libc.stdint cimport int64_t, uint32_t

from warren.model.ports cimport PeerPort, QueuePort


cdef class Congestion:
    cdef dict found                # queues of this turn that were congested, by number
    cdef uint32_t newest           # the one that was found last
    cdef dict told                 # number -> (when the gateway was told, deliveries by then)

    cdef int note(self, uint32_t number, QueuePort queue) except -1
    cdef int tell(self, PeerPort port, int64_t now_ms) except -1
