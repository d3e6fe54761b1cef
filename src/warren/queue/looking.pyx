"""Looks into a queue and leaves it as it was: nothing goes out, is marked, or is kept in memory.

Messages are seen in the order in which they would go out: by priority, then by position. What is
paged out is read from the log and not brought back; what cannot be read is passed over, and not
taken out either: that is for who needs it.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from warren.model.message cimport Message
from warren.queue.backlog cimport LEVEL_SHIFT, Backlog
from warren.queue.paging cimport load_slots
from warren.queue.slots cimport CHUNK_SLOTS, REDELIVERED, Chunk, Slot, SlotLog, message_of
from warren.telemetry.event_buffer cimport EVENT_ADOPT, EVENT_HELD, EVENT_SNAPSHOT

# What is looked at.
cdef enum:
    READY = 1
    OUT = 2
    # It has left the queue, and is there for cursors only.
    KEPT = 4


cdef list levels_of(Backlog queue):
    """(level number, its log), the highest first; those that were never used are left out."""
    if queue.levels is None:
        return [(0, queue.log)]
    return [(number, queue.levels[number]) for number in range(queue.max_priority, -1, -1)
            if queue.levels[number] is not None]


cdef Message message_at(SlotLog log, Slot* entry):
    """The message of a slot, wherever it is; None when it cannot be read."""
    if entry.content & 1:
        return log.journal.fetch(entry.content >> 1)
    return message_of(entry)


cdef class Look:
    """One look into a queue: gathers rows until it has as many as are wanted."""

    cdef readonly list rows
    cdef int wanted          # rows
    cdef uint64_t skip       # messages to be passed over first
    cdef int states

    def __init__(self, int wanted, uint64_t skip, int states):
        self.rows = []
        self.wanted = wanted
        self.skip = skip
        self.states = states

    cdef bint over(self) noexcept:
        return len(self.rows) >= self.wanted

    cdef int walk(self, SlotLog log, int level, uint64_t start) except -1:
        """The messages of a level from a position on."""
        cdef uint64_t number = start // CHUNK_SLOTS, end = log.first_number + log.count
        cdef uint64_t passed
        cdef Chunk* chunk
        cdef bint spilled
        if number < log.first_number:
            number = log.first_number
            start = 0
        while number < end and not self.over():
            chunk = log.chunk_at(number * CHUNK_SLOTS)
            if chunk is not NULL and chunk.live:
                passed = 0
                if start <= number * CHUNK_SLOTS:
                    passed = (chunk.ready if self.states & READY else 0) + (
                        chunk.live - chunk.ready - chunk.retained if self.states & OUT else 0)
                if passed and passed <= self.skip:
                    # The whole chunk is before what is wanted: its slots need not be there.
                    self.skip -= passed
                else:
                    spilled = chunk.slots is NULL
                    if not spilled or load_slots(
                            log, chunk, <uint64_t>level << LEVEL_SHIFT | number * CHUNK_SLOTS):
                        try:
                            self.walk_chunk(log, level, chunk, number, start)
                        finally:
                            if spilled:
                                free(chunk.slots)
                                chunk.slots = NULL
            number += 1
            start = 0
        return 0

    cdef int walk_chunk(self, SlotLog log, int level, Chunk* chunk, uint64_t number,
                        uint64_t start) except -1:
        cdef uint64_t position, first = number * CHUNK_SLOTS
        cdef int j
        cdef bint ready
        cdef Slot* entry
        cdef Message message
        for j in range(CHUNK_SLOTS):
            entry = &chunk.slots[j]
            position = first + j
            if entry.content == 0 or position < start:
                continue
            if chunk.retained_bits[j >> 6] >> (j & 63) & 1 and not self.states & KEPT:
                continue
            ready = chunk.ready_bits[j >> 6] >> (j & 63) & 1
            if not self.states & (READY if ready else OUT):
                continue
            if self.skip:
                self.skip -= 1
                continue
            message = message_at(log, entry)
            if message is None:
                continue
            self.rows.append((
                <uint64_t>level << LEVEL_SHIFT | position, bool(ready),
                bool(entry.flags & REDELIVERED or position < log.flagged_below),
                entry.returns, entry.expires_ms, message))
            if self.over():
                return 0
        return 0


def peek(Backlog queue not None, int count, uint64_t skip=0, after=None, bint unacked=False):
    """Up to `count` ready messages, or those that are out: as they would go out, or have gone.

    (slot, whether it is ready, whether it would come as redelivered, how often it came back, when
    it expires, message). `skip` are passed over first; `after` is the slot of the last row of an
    earlier look.
    """
    cdef Look look = Look(count, skip, OUT if unacked else READY)
    cdef int number
    cdef uint64_t last = 0 if after is None else <uint64_t>after
    for number, log in levels_of(queue):
        if look.over():
            break
        if after is None or number < <int>(last >> LEVEL_SHIFT):
            look.walk(<SlotLog>log, number, 0)
        elif number == <int>(last >> LEVEL_SHIFT):
            look.walk(<SlotLog>log, number, (last & ((<uint64_t>1 << LEVEL_SHIFT) - 1)) + 1)
    return look.rows


def arrivals(Backlog queue not None, dict positions not None, int count):
    """What has come since a position of each level, ready or out; the newest `count` of a level.

    Levels that are not named count from their beginning. Rows as `peek` has them.
    """
    cdef Look look
    cdef int number
    cdef SlotLog log
    cdef uint64_t start
    found = []
    for number, level in levels_of(queue):
        log = <SlotLog>level
        start = positions.get(number, 0)
        if log.next_position > <uint64_t>count:
            start = max(start, log.next_position - <uint64_t>count)
        look = Look(count, 0, READY | OUT)
        look.walk(log, number, start)
        found += look.rows
    return found


def kept(Backlog queue not None, uint64_t first, int count):
    """Messages from a position on, with those that have left and are kept for cursors.

    Rows as `peek` has them. For queues without priorities, whose positions are in order.
    """
    cdef Look look = Look(count, 0, READY | OUT | KEPT)
    look.walk(queue.log, 0, first)
    return look.rows


def ends(Backlog queue not None):
    """Of each level that was ever used, the position that the next message will get."""
    return {number: (<SlotLog>log).next_position for number, log in levels_of(queue)}


def journal_held(Backlog queue not None, bint adopted=False):
    """Tells the event journal of all that is in a queue: a row for each run of positions.

    Before that, for each level, which position the next message will get: what was confirmed at a
    lower one is here or has left. `adopted`: a new master tells what it has found, and vouches for.
    """
    cdef SlotLog log
    cdef Chunk* chunk
    cdef uint64_t bits, first, run = 0, count
    cdef size_t i
    cdef int j, word, event = EVENT_ADOPT if adopted else EVENT_HELD
    if queue.events is None:
        return
    for number, level in levels_of(queue):
        log = <SlotLog>level
        bits = <uint64_t>number << LEVEL_SHIFT
        if not adopted:
            queue.note_event(EVENT_SNAPSHOT, 0, bits | log.next_position, 1, 0)
        count = 0
        for i in range(log.count):
            chunk = log.chunks[log.first + i]
            first = (log.first_number + i) * CHUNK_SLOTS
            if chunk is NULL or chunk.live == chunk.retained:
                continue
            for j in range(CHUNK_SLOTS):
                word = j >> 6
                if chunk.retained_bits[word] >> (j & 63) & 1:
                    continue
                # What is not in memory is ready, all of it.
                if not (chunk.ready_bits[word] >> (j & 63) & 1
                        or (chunk.slots is not NULL and chunk.slots[j].content)):
                    continue
                if count and run + count == first + j:
                    count += 1
                    continue
                if count:
                    queue.note_event(event, 0, bits | run, count, 0)
                run, count = first + j, 1
        if count:
            queue.note_event(event, 0, bits | run, count, 0)
