from libc.stdint cimport int64_t, uint8_t

from warren.model.ports cimport JournalPort, QueueEffects, TurnClock


cdef class Hub:
    cdef readonly object loop
    cdef readonly object engine
    cdef uint8_t* buffer       # what one read goes into; shared, since reads never overlap
    cdef size_t capacity
    cdef list dirty            # links with something to write
    cdef bint flush_scheduled
    cdef readonly int depth    # inside how many turns we are
    cdef readonly dict links   # all open links, oldest first
    cdef TurnClock turn
    cdef QueueEffects effects
    cdef JournalPort journal   # None: nothing is written to disk
    cdef list resuming         # the engine's: whoever goes on when the turn is over
    cdef readonly dict held    # queue -> links that wait for it to be relieved
    cdef uint8_t* room(self, size_t n) except NULL
    cdef int64_t now_ms(self) noexcept
    cdef int note_dirty(self, object link) except -1
    cdef int flush_all(self) except -1
    cdef int resume_all(self) except -1
