"""Whether a queue could still read what it has in the log: asked before anybody wants it.

`stretches` says what is to be read, a little at a time; whoever calls reads it where that holds
nobody up, and `examine` says which messages are not in it. Nothing is lost or paged in here. What
is in memory is not looked at.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from warren.queue.backlog cimport LEVEL_SHIFT, position_of
from warren.queue.paging cimport load_slots
from warren.queue.replica cimport Replicated
from warren.queue.slots cimport CHUNK_SLOTS, Chunk, SlotLog

cdef enum:
    # What is read in one piece, unless one message is longer.
    STRETCH_BYTES_MAX = 262144
    # Messages further apart than this in the log are read by themselves.
    GAP_BYTES_MAX = 16384
    # What a record has beyond its body, mostly.
    RECORD_SLACK_BYTES = 1024
    # So many chunks are gone through at once, however little there is in them.
    CHUNKS_MAX = 64


cdef class Stretch:
    """A piece of the log with messages of a queue in it."""

    def __init__(self, uint64_t place):
        self.place = self.last = place
        self.pairs = bytearray()

    @property
    def size(self):
        """How many bytes are to be read."""
        return self.last - self.place + self.behind

    cdef bint takes(self, uint64_t place) noexcept:
        return (self.last <= place and place >> 32 == self.place >> 32
                and place - self.place <= STRETCH_BYTES_MAX
                and place <= self.last + self.behind + GAP_BYTES_MAX)

    cdef int add(self, uint64_t slot, uint64_t place, uint64_t behind) except -1:
        cdef uint64_t[2] pair
        pair[0], pair[1] = slot, place
        self.last, self.behind = place, behind
        self.pairs += (<char*>pair)[:sizeof(pair)]
        return 0


def stretches(Replicated queue not None, uint64_t slot, uint64_t below, uint64_t bytes_max):
    """(what is to be read from a slot on, the slot to go on from; None: there is nothing more).

    `below`: only what stands before this place in the log.
    """
    cdef list levels = [], found = []
    cdef SlotLog log
    cdef uint64_t level_bits, number, end, size = 0
    cdef int chunks = 0
    queue.all_levels(levels)
    for level, each in levels:
        log = <SlotLog>each
        level_bits = <uint64_t>level << LEVEL_SHIFT
        if level_bits >> LEVEL_SHIFT < slot >> LEVEL_SHIFT:
            continue
        number = log.first_number
        if level_bits >> LEVEL_SHIFT == slot >> LEVEL_SHIFT:
            number = max(number, position_of(slot) // CHUNK_SLOTS)
        end = log.first_number + log.count
        while number < end:
            if size >= bytes_max or chunks == CHUNKS_MAX:
                return found, level_bits | number * CHUNK_SLOTS
            size += gather(queue, log, level_bits | number * CHUNK_SLOTS, below, found)
            chunks += 1
            number += 1
    return found, None


cdef uint64_t gather(Replicated queue, SlotLog log, uint64_t first, uint64_t below,
                     list found) except? 0:
    """Adds what a chunk has in the log; how many bytes that are."""
    cdef uint64_t position = position_of(first), end, place, size = 0
    cdef Chunk* chunk = log.chunk_at(position)
    cdef Stretch stretch = <Stretch>found[len(found) - 1] if found else None
    cdef bint spilled
    cdef int j
    if chunk is NULL or chunk.live == 0:
        return 0
    spilled = chunk.slots is NULL
    if spilled and not load_slots(log, chunk, first):
        if not queue.mirror.has_others():
            # Nobody can be asked: whoever reads it finds out.
            return 0
        queue.lose_chunk(log, first)
        spilled = False
    # What is not committed may be taken back, and something else stand there.
    end = log.committed if queue.mirror.acts else log.next_position
    for j in range(CHUNK_SLOTS):
        if position + <uint64_t>j >= end:
            break
        place = chunk.slots[j].content >> 1
        if not chunk.slots[j].content & 1 or place >= below:
            continue
        if stretch is None or not stretch.takes(place):
            stretch = Stretch(place)
            found.append(stretch)
        stretch.add(first + <uint64_t>j, place, chunk.slots[j].body_len + RECORD_SLACK_BYTES)
        size += chunk.slots[j].body_len + RECORD_SLACK_BYTES
    if spilled:
        free(chunk.slots)
        chunk.slots = NULL
    return size


def examine(Replicated queue not None, Stretch stretch not None, bytes data not None):
    """Slot -> place of the messages of a stretch that cannot be read; `data` is what was read."""
    cdef uint64_t[2] pair
    cdef const char* pairs = <char*>stretch.pairs
    cdef Py_ssize_t at
    cdef dict found = {}
    for at in range(0, len(stretch.pairs), sizeof(pair)):
        memcpy(pair, pairs + at, sizeof(pair))
        if queue.journal.message_in(data, stretch.place, pair[1]) is not None:
            continue
        # It may have left since, or be longer than was thought: this is what its reader would do.
        if queue.missing_at(pair[0]) == pair[1] and queue.journal.fetch(pair[1]) is None:
            found[pair[0]] = pair[1]
    return found
