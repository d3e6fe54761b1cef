from libc.stdint cimport int64_t, uint64_t

from warren.model.ports cimport QueueEffects
from warren.queue.kept cimport KeptBacklog
from warren.queue.slots cimport SlotLog


cdef class Graves(KeptBacklog):
    cdef QueueEffects effects
    cdef readonly bint dead_letters        # has a dead-letter exchange
    cdef readonly uint64_t dropped
    cdef readonly uint64_t buried          # dead, and not yet safe elsewhere
    cdef uint64_t buried_bytes
    cdef readonly uint64_t burial_term     # grows when all that is buried is taken back
    cdef readonly bint crowded             # more is dead than may be buried at a time
    cdef public bint resting               # nobody is buried: another is to be the master

    cdef bint has_grave(self) noexcept
    cdef int bury(self, SlotLog log, uint64_t slot, int reason) except -1
    cdef int drop_head(self, int reason) except -1
    cdef int discard(self, uint64_t slot, int reason) except -1
    cdef int note_left(self, int reason, uint64_t slot, bint has_letter) except -1
    cdef int forget_buried(self) except -1
