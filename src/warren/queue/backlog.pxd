from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport JournalPort, QueuePort, Run
from warren.queue.slots cimport Chunk, Slot, SlotLog
from warren.telemetry.event_buffer cimport EventBuffer

cdef enum:
    # Room for 255 levels above it in a number that keeps its sign: -1 says "none".
    LEVEL_SHIFT = 55

cdef inline uint64_t position_of(uint64_t slot) noexcept:
    return slot & (((<uint64_t>1) << LEVEL_SHIFT) - 1)


cdef class Backlog(QueuePort):
    cdef readonly str name
    cdef SlotLog log           # the only level of a queue without priorities, else the highest used
    cdef list levels           # one SlotLog per priority, made when first used; None without
    cdef int max_priority      # -1: no priority queue
    cdef bint may_expire       # some message has had an expiry time
    cdef JournalPort journal   # None: everything in memory
    cdef Run* runs             # of slots that have left since the journal was told
    cdef size_t run_count
    cdef size_t run_room
    cdef readonly uint64_t ready
    cdef readonly uint64_t leaving     # of a mirrored queue: gone, but not yet on all replicas
    cdef readonly uint64_t unreadable  # messages the log could not give back
    cdef readonly bint mending         # the next cannot be read: another replica is asked for it
    cdef public str damage             # what is known to be lost, in words; empty: nothing

    cdef public EventBuffer events     # the event journal; None: nobody wants to know
    cdef uint32_t event_number         # what the journal calls the queue; 0: nothing so far

    cdef inline int note_event(self, int event, int flags, uint64_t slot, uint64_t count,
                               uint64_t size) except -1:
        """To be called while `events` is there."""
        if self.event_number == 0:
            self.event_number = self.events.number_of(self)
        return self.events.note(self.event_number, self.epoch, event, flags, slot, count, size)

    cdef SlotLog level_of(self, Message message)
    cdef SlotLog level(self, uint64_t slot)
    cdef SlotLog restored_level(self, uint64_t slot)
    cdef int64_t head(self) noexcept
    cdef Slot* entry_at(self, uint64_t slot) except? NULL
    cdef Slot* front(self, uint64_t* slot) except? NULL
    cdef bint bring_in(self, uint64_t slot, Slot* entry) except -1
    cdef int lose(self, uint64_t slot) except -1
    cdef int lose_chunk(self, SlotLog log, uint64_t slot) except -1
    cdef int left(self, SlotLog log, uint64_t slot) except -1
    cdef int note_gone(self, uint64_t slot) except -1
    cdef bint may_deliver(self, SlotLog log, uint64_t slot, Slot* entry) except -1
    cdef int open_more(self, SlotLog log, uint64_t slot) except -1
    cdef bint watermark_moved(self) except -1
    cdef uint64_t reached(self) noexcept
    cdef int flag_opened(self) except -1
    cdef int restore_message(self, uint64_t slot, Message message, int64_t expires_ms,
                             bint opened) except -1
    cdef int settle_in(self, SlotLog log, Slot* entry, uint64_t slot, Message message,
                       int64_t expires_ms, bint opened) except -1
    cdef uint64_t sum_bytes(self, bint ready_only) noexcept
    cdef int load_levels(self, bytes snapshot, size_t at) except -1
