from libc.stdint cimport uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport LinkPort, TurnClock
from warren.wire.output cimport Output

cdef enum:
    # Deliveries are written as soon as this much has gathered, while it is still in the cache.
    FLUSH_BYTES = 65536
    # A peer that leaves this much unread gets no more deliveries ...
    STALL_BYTES = 262144
    # ... until it has read down to this.
    RESUME_BYTES = 65536
    # A client that leaves this much of our answers unread gets no more of them.
    UNREAD_BYTES_MAX = 1048576


cdef class Outlet:
    cdef readonly Output output
    cdef public LinkPort link
    cdef public bint writable       # the peer keeps up with what it is sent
    cdef public bint flush_wanted
    cdef public uint32_t frame_max
    cdef readonly TurnClock turn
    cdef readonly uint64_t frames_out
    cdef list confirming            # channels with confirms to tell at the end of the turn

    cdef int wrote(self) except -1
    cdef size_t content_size(self, Message message) noexcept
    cdef int write_content(self, int channel, Message message) except -1
