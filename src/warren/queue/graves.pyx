"""The part of a queue that knows its dead: messages that leave without having been consumed.

Where there is no dead-letter exchange they leave at once. Otherwise a dead message is *buried*: it
keeps its slot, is not ready and goes to nobody, until whoever was told of it (`QueueEffects`) says
that it is safe elsewhere (`end_burial`). A crash, or another master, finds it in the queue again.

So many are buried at a time and no more: what is dead beyond that stays where it is (`crowded`),
and whoever ends burials has the queue go on. What consumers reject is always taken.
"""

from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport DEAD_EXPIRED, DEAD_MAXLEN, DEAD_REJECTED, STAGE_GONE
from warren.queue.backlog cimport position_of
from warren.queue.kept cimport KeptBacklog
from warren.queue.paging cimport page_in
from warren.queue.slots cimport LOGGED, REDELIVERED, Slot, SlotLog, message_of
from warren.telemetry.event_buffer cimport (
    EVENT_DEAD_LETTER, EVENT_DROP, EVENT_EXPIRE, EVENT_LIMIT, EVENT_REJECT, FLAG_DEAD_LETTER,
)

cdef enum:
    # As many as are on their way at a time, and as many bytes of them.
    BURIED_MAX = 4096
    BURIED_BYTES_MAX = 16777216


cdef class Graves(KeptBacklog):
    """See the module's text."""

    cdef bint has_grave(self) noexcept:
        """Whether one more may go; else it is noted that one could not."""
        if not self.dead_letters or (self.buried < BURIED_MAX and not self.resting
                                     and self.buried_bytes < BURIED_BYTES_MAX
                                     and not self.mending):
            return True
        self.crowded = True
        return False

    cdef int bury(self, SlotLog log, uint64_t slot, int reason) except -1:
        """A message that is out, and dead; in memory, or another replica is asked for it."""
        cdef Slot* entry = log.at(position_of(slot))
        cdef Message message = None if entry.content & 1 else message_of(entry)
        self.buried += 1
        self.buried_bytes += entry.body_len
        return self.effects.dead_letter(self, message, reason, <int64_t>slot)

    cdef int drop_head(self, int reason) except -1:
        cdef uint64_t slot = 0
        cdef Slot* entry = self.front(&slot)
        cdef SlotLog log
        if entry is NULL or (self.dead_letters and not self.bring_in(slot, entry)):
            return 0
        log = self.level(slot)
        log.take(position_of(slot))
        self.ready -= 1
        self.dropped += 1
        if self.dead_letters:
            return self.bury(log, slot, reason)
        if self.events is not None:
            self.note_left(reason, slot, False)
        return self.left(log, slot)

    cdef int discard(self, uint64_t slot, int reason) except -1:
        """A message that is out leaves without having been consumed."""
        cdef SlotLog log = self.level(slot)
        cdef Slot* entry = log.at(position_of(slot))
        self.dropped += 1
        if self.dead_letters:
            # If it comes back, it comes to somebody for the second time.
            entry.flags |= REDELIVERED
            log.drop_index(log.chunk_of(position_of(slot)))
            if not entry.content & 1 or page_in(log, position_of(slot)) or (
                    self.mirror is not None and self.mirror.asks_for(slot)):
                return self.bury(log, slot, reason)
            self.unreadable += 1
            self.journal.unreadable(self, slot, entry.content >> 1, 1)
        if self.events is not None:
            self.note_left(reason, slot, False)
        return self.left(log, slot)

    cdef int note_left(self, int reason, uint64_t slot, bint has_letter) except -1:
        """Tells the event journal of a message that leaves without having been consumed."""
        cdef int event = EVENT_LIMIT
        if reason == DEAD_REJECTED:
            event = EVENT_REJECT
        elif reason == DEAD_EXPIRED:
            event = EVENT_EXPIRE
        elif reason == DEAD_MAXLEN:
            event = EVENT_DROP
        if has_letter:
            self.note_event(EVENT_DEAD_LETTER, 0, slot, 1, 0)
        return self.note_event(event, FLAG_DEAD_LETTER if has_letter else 0, slot, 1, 0)

    def dead_message(self, uint64_t slot):
        """What is buried there; None when it cannot be read, and has been said to be lost.

        False: another replica is asked for it.
        """
        cdef SlotLog log = self.level(slot)
        cdef Slot* entry = log.at(position_of(slot))
        if not entry.content & 1 or page_in(log, position_of(slot)):
            return message_of(entry)
        if self.mirror is not None and self.mirror.asks_for(slot):
            return False
        self.unreadable += 1
        self.journal.unreadable(self, slot, entry.content >> 1, 1)
        return None

    def end_burial(self, uint64_t slot, int reason, uint64_t term, bint with_letter=False,
                   bint has_letter=True):
        """What was buried in a term is safe elsewhere, or nobody wants it: it leaves for good.

        `with_letter`: its letter is staged, and one record is to say both. `has_letter`: some queue
        has taken one.
        """
        cdef SlotLog log
        cdef uint64_t position = position_of(slot)
        if self.retired or term != self.burial_term:
            return
        log = self.level(slot)
        self.buried -= 1
        self.buried_bytes -= min(self.buried_bytes, <uint64_t>log.at(position).body_len)
        if self.events is not None:
            self.note_left(reason, slot, has_letter)
        if (not with_letter or self.mirror is not None or self.queue_id == 0
                or not self.journal.staged or not log.at(position).flags & LOGGED):
            self.left(log, slot)
            return
        self.leave(log, position)
        self.journal.stage(self, slot, 0, STAGE_GONE)

    cdef int forget_buried(self) except -1:
        """Whatever was buried waits in its place again, or is somebody else's."""
        self.buried = self.buried_bytes = 0
        self.burial_term += 1
        self.crowded = self.resting = False
        return 0
