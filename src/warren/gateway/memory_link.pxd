from libc.stdint cimport int64_t, uint8_t

from warren.model.ports cimport PeerPort


cdef class MemoryPeer(PeerPort):
    cdef object frames         # (when it may arrive, kind, payload), oldest first
    cdef uint8_t* room
    cdef size_t room_len
    cdef int kind
    cdef bint is_open          # between `reserve` and `commit`
    cdef size_t pending_bytes
    cdef MemoryLink link


cdef class MemoryLink:
    cdef readonly MemoryPeer dialled     # the gateway writes into this one
    cdef readonly MemoryPeer accepted    # ... and the home into this one
    cdef public int64_t now_ms
    cdef public int64_t delay_ms
    cdef readonly bint is_cut
