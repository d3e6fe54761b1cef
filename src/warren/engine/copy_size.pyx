"""How many messages a copy has yet to bring, for those who watch it."""

from libc.stdint cimport uint64_t

from warren.engine.replica_log cimport ReplicaLog
from warren.queue.slots cimport CHUNK_SLOTS, Chunk, SlotLog


cdef uint64_t count_held(SlotLog log, uint64_t first, uint64_t end) noexcept:
    """Messages at positions from `first` to before `end`, those that cursors retain included.

    Nothing is read for it: at the ends, where the slots are not in memory, it is at most so many.
    """
    cdef uint64_t count = 0, position, number, start, upto, j, held
    cdef Chunk* chunk
    position = max(first, log.first_number * CHUNK_SLOTS)
    end = min(end, (log.first_number + log.count) * CHUNK_SLOTS)
    while position < end:
        number = position // CHUNK_SLOTS
        start, upto = position % CHUNK_SLOTS, min(<uint64_t>CHUNK_SLOTS, end - number * CHUNK_SLOTS)
        chunk = log.chunk_of(position)
        position = (number + 1) * CHUNK_SLOTS
        if chunk is NULL:
            continue
        held = <uint64_t>chunk.live + chunk.retained
        if upto - start == CHUNK_SLOTS or chunk.slots is NULL:
            count += min(held, upto - start)
            continue
        for j in range(start, upto):
            count += chunk.slots[j].content != 0
    return count


def place_of(ReplicaLog log not None, session, uint64_t after):
    """(level, position) of the first message that `read_chunk` looks at, asked the same."""
    return (0, after) if log.queue.levels is None else log.scans.get(session, (0, 0))


def count_copied(ReplicaLog log not None, tuple start not None, session, uint64_t upto):
    """How many messages are from a place to where the copy of a session has come; None: all."""
    cdef uint64_t first, end, count = 0
    cdef int begin = start[0], level = -1
    cdef list levels = []
    stop = None if session is None else log.scans.get(session)
    if stop is not None:
        level = stop[0]
    log.queue.all_levels(levels)
    ends = log.image_positions.get(upto, {})
    for i, slots in levels:
        if i < begin or level >= 0 and i > level:
            continue
        first = start[1] if i == begin else 0
        end = (<SlotLog>slots).committed if log.acts else (<SlotLog>slots).next_position
        end = min(end, <uint64_t>ends.get(i, upto))
        if i == level:
            end = min(end, <uint64_t>stop[1])
        count += count_held(<SlotLog>slots, first, end)
    return count
