"""How long messages have been in their queue, whatever their publishers say."""

from libc.stdint cimport int64_t, uint64_t

from warren.queue.backlog cimport Backlog, position_of
from warren.queue.marks cimport unknown_ms
from warren.queue.slots cimport SlotLog


def oldest_arrival_ms(Backlog queue not None):
    """When the oldest message of a queue came, by the clock that queues use.

    It may be ready or with a consumer. None: there is none, or it is not known of one that may be
    the oldest.
    """
    cdef SlotLog log
    cdef int64_t position, at_ms, oldest_ms = unknown_ms()
    for level in (queue.log,) if queue.levels is None else queue.levels:
        log = <SlotLog>level
        if log is None or log.live == 0:
            continue
        position = log.first_live()
        if position < 0:
            continue
        at_ms = log.arrivals.at(<uint64_t>position)
        if at_ms == unknown_ms():
            return None
        if oldest_ms == unknown_ms() or at_ms < oldest_ms:
            oldest_ms = at_ms
    return None if oldest_ms == unknown_ms() else oldest_ms


def arrival_ms(Backlog queue not None, uint64_t slot):
    """When the message of a slot came, by the same clock; None where that is not known."""
    cdef SlotLog log = queue.level(slot)
    cdef int64_t at_ms = unknown_ms() if log is None else log.arrivals.at(position_of(slot))
    return None if at_ms == unknown_ms() else at_ms
