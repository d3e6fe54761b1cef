"""The slots of forks: a copy of a replica in a queue of its own, and what the master makes of it.

A fork has the messages of the replica that it was opened from at the same slots. So a slot below
the fork's base and a digest of the message name one message on both sides of a partition, and what
stands at the base or behind it was published to the fork.
"""

from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport ACCEPTED
from warren.queue.backlog cimport LEVEL_SHIFT, position_of
from warren.queue.queue cimport Queue
from warren.queue.slots cimport CHUNK_SLOTS, REDELIVERED, Slot, SlotLog
from warren.store.journal cimport Journal, Target

from hashlib import blake2b

# Everything that a fork holds is flagged when it is delivered: the other side has it, or may have
# it. No queue ever has so many messages.
cdef uint64_t ALL_POSITIONS = <uint64_t>1 << 54

#: Octets of what tells a message from others.
DIGEST_BYTES = 16
#: Slots that are lost together when the index of them is.
CHUNK = CHUNK_SLOTS
#: What has become of a message that a fork has let go of.
GONE, BUSY = 0, 1


def digest_of(Message message not None):
    """What tells it from any other that could stand in its slot."""
    whole = blake2b(message.address.wire, digest_size=DIGEST_BYTES)
    whole.update(message.header)
    whole.update(message.body)
    return whole.digest()


def copy_some(Queue source not None, Queue fork not None, Journal journal not None, int level,
              uint64_t position, uint64_t end, int limit, rows not None):
    """Copies up to so many messages of a level into the fork and the log; the next position.

    `rows` gets slot and digest of each. What cannot be read stays where it is.
    """
    cdef Slot* entry
    cdef Message message
    cdef Target target
    cdef uint64_t slot, place
    cdef int64_t expires_ms
    cdef SlotLog log
    while position < end and limit > 0:
        slot = <uint64_t>level << LEVEL_SHIFT | position
        position += 1
        entry = source.entry_at(slot)
        log = source.level(slot)
        if entry is NULL or log.is_retained(position_of(slot)):
            continue
        limit -= 1
        expires_ms = entry.expires_ms
        message = source.look_at(entry)
        if message is None:
            continue
        fork.operations += 1
        target.queue_id = fork.queue_id
        target.flags = 0
        target.epoch = fork.epoch
        target.index = fork.operations
        target.slot = slot
        target.wall_ms = journal.to_wall(expires_ms)
        target.gateway = target.sequence = 0
        place = journal.write_copy(message, &target)
        fork.follow_message(slot, None, place, message.body_len, expires_ms, False, False)
        rows += slot.to_bytes(8, "little") + digest_of(message)
    return position


def level_ends(Queue source not None):
    """(level, first position that may be live, end) of each."""
    return [(level, first, end) for level, end, first, _, _ in source.level_heads()]


def end_levels(Queue fork not None, dict bases not None):
    """All is copied: what is published to the fork stands behind all that its replica ever had.

    Not earlier: a checkpoint in the middle would say that the rest of the copy has been there.
    """
    cdef SlotLog log
    for level, end in bases.items():
        log = fork.restored_level(<uint64_t>level << LEVEL_SHIFT)
        log.next_position = max(log.next_position, <uint64_t>end)


def flag_all(Queue fork not None):
    """Whoever gets something of it is told that it may have come before."""
    cdef SlotLog log
    levels = 1 if fork.levels is None else len(fork.levels)
    for level in range(levels):
        log = fork.restored_level(<uint64_t>level << LEVEL_SHIFT)
        log.flagged_below = ALL_POSITIONS


def mark_far(Queue fork not None):
    """Gateways learn late of what was out of it: settlements that come too late are no fault."""
    fork.far = True


def message_at(Queue queue not None, uint64_t slot):
    """The message of a slot; None: there is none, or it cannot be read."""
    cdef Slot* entry = queue.entry_at(slot)
    return None if entry is NULL else queue.look_at(entry)


def is_there(Queue queue not None, uint64_t slot):
    """Whether the slot has a message, which may not be readable."""
    return queue.entry_at(slot) is not NULL


def left_ms(Queue queue not None, uint64_t slot, int64_t now_ms):
    """How long the message of a slot has still to live; 0: it is over, -1: for ever."""
    cdef Slot* entry = queue.entry_at(slot)
    if entry is NULL or entry.expires_ms == 0:
        return -1
    return max(<int64_t>0, entry.expires_ms - now_ms)


def bring_in(Queue queue not None, Message message not None, int64_t now_ms, uint64_t gateway,
             uint64_t sequence, int64_t left_ms):
    """A message of a fork is published to the master's queue, flagged; whether it took a slot.

    It lives on for what is left of its time. None: the queue refuses it.
    """
    cdef SlotLog log = queue.level_of(message)
    cdef uint64_t position = log.next_position, slot
    cdef bint paused = queue.paused
    cdef Slot* entry
    cdef int outcome
    if left_ms >= 0 and (message.ttl_ms < 0 or left_ms < message.ttl_ms):
        message.ttl_ms = left_ms
    queue.mirror.gateway = gateway
    queue.mirror.sequence = sequence
    # What is over already is not for a consumer that waits, as one without any time would be.
    queue.paused = paused or left_ms == 0
    try:
        outcome = queue.publish(message, now_ms)
    finally:
        queue.paused = paused
    queue.mirror.gateway = queue.mirror.sequence = 0
    if outcome != ACCEPTED:
        return None
    if log.next_position == position:
        return False
    slot = position
    if queue.levels is not None:
        slot |= <uint64_t>min(<int>message.priority, queue.max_priority) << LEVEL_SHIFT
    entry = queue.entry_at(slot)
    if entry is not NULL:
        entry.flags |= REDELIVERED
    return True


def let_leave(Queue queue not None, uint64_t slot, bytes digest not None, withdraw):
    """A fork has let go of a message: it leaves here, too, if it is that one. GONE or BUSY.

    BUSY: it is with a consumer, or the other replicas do not know yet that it has left.
    """
    cdef SlotLog log
    cdef Slot* entry
    cdef uint64_t position = position_of(slot)
    if slot >> LEVEL_SHIFT and (queue.levels is None
                                or slot >> LEVEL_SHIFT > <uint64_t>queue.max_priority):
        return GONE
    log = queue.level(slot)
    entry = queue.entry_at(slot)
    if entry is NULL or log.is_retained(position):
        return GONE
    message = queue.look_at(entry)
    if message is None or digest_of(message) != digest:
        return GONE
    if log.chunk_of(position).ready_bits[position % CHUNK_SLOTS >> 6] >> (position & 63) & 1:
        withdraw(queue, slot)
    return BUSY
