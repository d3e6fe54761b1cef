"""Takes single messages out of a queue, wherever they stand; counts those that survive a restart.
"""

from libc.stdint cimport uint64_t

from warren.queue.backlog cimport Backlog, position_of
from warren.queue.slots cimport CHUNK_SLOTS, SlotLog


def withdraw(Backlog queue not None, uint64_t slot):
    """Take a ready message out for good; False: it is not there any more."""
    cdef SlotLog log = queue.level(slot)
    cdef uint64_t position = position_of(slot)
    if (queue.entry_at(slot) is NULL
            or not log.chunk_of(position).ready_bits[position % CHUNK_SLOTS >> 6]
            >> (position & 63) & 1):
        return False
    log.take(position)
    queue.ready -= 1
    queue.left(log, slot)
    if queue.congested:
        queue.check_relief()
    return True


def persistent(Backlog queue not None):
    """(messages, bytes) of it that survive a restart."""
    logs = (queue.log,) if queue.levels is None else [x for x in queue.levels if x is not None]
    return (sum((<SlotLog>log).kept for log in logs),
            sum((<SlotLog>log).kept_bytes for log in logs))
