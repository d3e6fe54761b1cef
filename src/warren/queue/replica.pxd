from libc.stdint cimport int64_t, uint32_t, uint64_t

from warren.model.message cimport Message
from warren.queue.backlog cimport Backlog
from warren.queue.slots cimport Slot, SlotLog

# What a copy says of a message beyond the message itself.
cdef enum:
    COPIED_REDELIVERED = 1
    COPIED_RETAINED = 2    # it has left the queue and is kept for cursors


cdef class Replicated(Backlog):
    cdef readonly bint retired   # another object is the queue: settlements mean nothing here

    cdef int all_levels(self, list found) except -1
    cdef bint follow_message(self, uint64_t slot, Message message, uint64_t place,
                             uint32_t body_len, int64_t expires_ms, bint opened,
                             bint transient) except -1
    cdef int note_arrival(self, uint64_t slot, uint32_t flags) except -1
    cdef int copy_state(self, uint64_t slot, Slot* entry) except -1
    cdef int mark_copied(self, uint64_t slot, int returns, int state) except -1
    cdef int follow_gone(self, uint64_t first, uint64_t count) except -1
    cdef int forget_transient(self) except -1
    cdef int remove_left(self, uint64_t first, uint64_t count) except -1
    cdef bint find_seen(self, SlotLog log, uint64_t level_bits, list found) except -1
    cdef int commit_all(self) except -1
    cdef int take_back_all(self) except -1
    cdef uint64_t first_live(self, SlotLog log) noexcept
    cdef bytes committed_levels(self)
    cdef Message look_at(self, Slot* entry)
    cdef uint64_t missing_at(self, uint64_t slot) except? 0
    cdef int refit(self, uint64_t slot, uint32_t body_len, int64_t expires_ms, int returns,
                   int state, bint transient) except -1
