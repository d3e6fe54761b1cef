"""Takes single messages out of a queue, wherever they stand; counts those that survive a restart.
"""

from libc.stdint cimport uint64_t

from warren.queue.backlog cimport Backlog, position_of
from warren.queue.queue cimport Queue
from warren.queue.slots cimport CHUNK_SLOTS, SlotLog
from warren.telemetry.event_buffer cimport EVENT_PURGE


def withdraw(Queue queue not None, uint64_t slot):
    """Take a ready message out for good; False: it is not there any more."""
    if not hold(queue, slot):
        return False
    let_go(queue, slot, True)
    return True


def hold(Queue queue not None, uint64_t slot):
    """Keep a ready message from consumers until `let_go`; False: it is not there any more.

    It counts as one that is out, and nobody has seen it.
    """
    cdef SlotLog log = queue.level(slot)
    cdef uint64_t position = position_of(slot)
    if (queue.entry_at(slot) is NULL
            or not log.chunk_of(position).ready_bits[position % CHUNK_SLOTS >> 6]
            >> (position & 63) & 1):
        return False
    log.take(position)
    queue.ready -= 1
    queue.unacked += 1
    if queue.may_expire:
        queue.arm_head()
    return True


def let_go(Queue queue not None, uint64_t slot, bint gone):
    """What was held is gone for good, or ready again in its old place; then `run` delivers it."""
    cdef SlotLog log = queue.level(slot)
    queue.unacked -= 1
    if gone:
        if queue.events is not None:
            queue.note_event(EVENT_PURGE, 0, slot, 1, 0)
        queue.left(log, slot)
        if queue.congested:
            queue.check_relief()
        return
    log.put_back(position_of(slot))
    queue.ready += 1
    queue.enforce_limits()
    if queue.may_expire:
        queue.arm_head()


def persistent(Backlog queue not None):
    """(messages, bytes) of it that survive a restart."""
    logs = (queue.log,) if queue.levels is None else [x for x in queue.levels if x is not None]
    return (sum((<SlotLog>log).kept for log in logs),
            sum((<SlotLog>log).kept_bytes for log in logs))
