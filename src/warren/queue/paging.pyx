"""Moves messages between memory and the log: a backlog is bounded by the disk.

Three things can happen to a chunk of slots that nobody needs soon. Its messages are *paged out*:
each slot keeps the message's place. Its slots are *indexed*: written to the log as one record,
which a checkpoint can point to. And, when both is on the disk, it is *spilled*: only its header
stays, less than a byte a message. Coming back, the slots are loaded when the chunk comes to the
head of the queue, and its messages with one read where they stand together.

A slot in an index record: position in the chunk (1), flags (1), returns (2), body length (4),
place (8), wall-clock time of expiry in ms (8).
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from warren.model.message cimport Message
from warren.model.ports cimport JournalPort, QueuePort
from warren.queue.slots cimport CHUNK_SLOTS, LOGGED, Chunk, Slot, SlotLog, cost_of, message_of

cdef enum:
    # The longest stretch of the log read at once to bring messages back.
    WINDOW_BYTES_MAX = 4194304
    # Messages further apart than this in the log are read one by one.
    GAP_BYTES_MAX = 65536
    # What a record has beyond its body, mostly.
    RECORD_SLACK_BYTES = 1024
    # Messages without a place that are given one at a time.
    ASIDE_MESSAGES = 1024


cdef size_t encode_slots(SlotLog log, Chunk* chunk, const uint64_t* bits, uint8_t* out) except? 0:
    """Writes the entries of a chunk's slots that have a place, or of some; how many bytes."""
    cdef int j
    cdef Slot* slot
    cdef uint64_t place
    cdef int64_t wall_ms
    cdef uint8_t* p = out
    for j in range(CHUNK_SLOTS):
        slot = &chunk.slots[j]
        if slot.content == 0 or (bits is not NULL and not bits[j >> 6] >> (j & 63) & 1):
            continue
        place = slot.content >> 1 if slot.content & 1 else message_of(slot).place
        if place == 0:
            continue
        wall_ms = log.journal.to_wall(slot.expires_ms)
        p[0] = <uint8_t>j
        p[1] = slot.flags
        memcpy(p + 2, &slot.returns, 2)
        memcpy(p + 4, &slot.body_len, 4)
        memcpy(p + 8, &place, 8)
        memcpy(p + 16, &wall_ms, 8)
        p += ENTRY_BYTES
    return p - out


cdef int decode_slot(SlotLog log, Chunk* chunk, const uint8_t* p) except -1:
    """Fills in the slot that an entry describes; the caller counts it."""
    cdef Slot* slot
    cdef uint64_t place
    cdef int64_t wall_ms
    if p[0] >= CHUNK_SLOTS:
        raise ValueError("an index names a slot that no chunk has")
    slot = &chunk.slots[p[0]]
    slot.flags = p[1]
    memcpy(&slot.returns, p + 2, 2)
    memcpy(&slot.body_len, p + 4, 4)
    memcpy(&place, p + 8, 8)
    memcpy(&wall_ms, p + 16, 8)
    slot.content = place << 1 | 1
    slot.expires_ms = log.journal.from_wall(wall_ms)
    return 0


cdef bint load_slots(SlotLog log, Chunk* chunk, uint64_t slot) except -1:
    """Brings the slots of a spilled chunk back; False when they cannot be read.

    `slot` is the number of the chunk's first one. Nothing has changed in the chunk since its index
    was written, except that a checkpoint may have left out what is not logged.
    """
    cdef bytes index
    cdef const uint8_t* p
    cdef uint64_t named
    cdef size_t at
    cdef int j
    cdef uint32_t found = 0
    if chunk.slots is not NULL:
        return True
    index = log.journal.read_index(chunk.index_place)
    if index is None or len(index) < 8 or (len(index) - 8) % ENTRY_BYTES:
        return False
    p = index
    memcpy(&named, p, 8)
    if named != slot:
        return False
    chunk.slots = <Slot*>calloc(CHUNK_SLOTS, sizeof(Slot))
    if chunk.slots is NULL:
        raise MemoryError()
    for at in range(8, len(index), ENTRY_BYTES):
        j = p[at]
        if (j < CHUNK_SLOTS and (chunk.ready_bits[j >> 6] | chunk.retained_bits[j >> 6])
                >> (j & 63) & 1):
            decode_slot(log, chunk, p + at)
            found += 1
    if found != chunk.live:
        free(chunk.slots)
        chunk.slots = NULL
        return False
    return True


cdef void bring_back(SlotLog log, Slot* slot, Message message) noexcept:
    """The message of a paged slot is in memory again."""
    if not slot.flags & LOGGED:
        log.journal.release(slot.content >> 1, slot.body_len, False)
    hold_in_memory(log, slot, message)


cdef void hold_in_memory(SlotLog log, Slot* slot, Message message) noexcept:
    Py_INCREF(message)
    slot.content = <uint64_t><void*>message
    log.journal.resident_bytes += cost_of(message)


cdef bint page_in(SlotLog log, uint64_t position) except -1:
    """Brings back the message at a position and those behind it in its chunk; False: unreadable."""
    cdef Chunk* chunk = log.chunk_of(position)
    cdef int first = position % CHUNK_SLOTS, j, end = first
    cdef uint64_t start = chunk.slots[first].content >> 1, last = start, place
    cdef size_t behind = 0
    cdef bytes window
    cdef Message message
    cdef Slot* slot
    for j in range(first, CHUNK_SLOTS):
        slot = &chunk.slots[j]
        if not slot.content & 1:
            continue
        place = slot.content >> 1
        if (place < last or place >> 32 != start >> 32 or place - start > WINDOW_BYTES_MAX
                or place > last + behind + GAP_BYTES_MAX):
            break
        last = place
        behind = <size_t>slot.body_len + RECORD_SLACK_BYTES
        end = j + 1
    window = log.journal.read_ahead(start, <size_t>(last - start) + behind)
    if window is not None:
        for j in range(first, end):
            slot = &chunk.slots[j]
            if slot.content & 1:
                message = log.journal.message_in(window, start, slot.content >> 1)
                if message is not None:
                    bring_back(log, slot, message)
    slot = &chunk.slots[first]
    if slot.content & 1:
        message = log.journal.fetch(start)
        if message is None:
            return False
        bring_back(log, slot, message)
    return True


cdef int evict(SlotLog log, QueuePort queue, Chunk* chunk, Slot* slot) except -1:
    """Pages one message out; 0 when it is not on the disk yet."""
    cdef Message message = message_of(slot)
    cdef JournalPort journal = log.journal
    cdef uint64_t place = message.place
    if place == 0 or place >= journal.persisted_end:
        return 0
    if not slot.flags & LOGGED:
        if not journal.retain(place, slot.body_len):
            message.place = 0
            return 0
        log.drop_index(chunk)
    journal.resident_bytes -= cost_of(message)
    slot.content = place << 1 | 1
    # This one was the slot's.
    Py_XDECREF(<PyObject*>message)
    return 1


cdef uint64_t evict_range(SlotLog log, QueuePort queue, uint64_t start, uint64_t end) except? 0:
    """Pages messages out, in order; the position it stopped at."""
    cdef uint64_t position = start
    cdef Chunk* chunk
    cdef Slot* slot
    cdef int aside = 0
    while position < end:
        chunk = log.chunk_at(position)
        if chunk is NULL or chunk.slots is NULL:
            position = (position // CHUNK_SLOTS + 1) * CHUNK_SLOTS
            continue
        slot = &chunk.slots[position % CHUNK_SLOTS]
        if slot.content and not slot.content & 1 and not evict(log, queue, chunk, slot):
            break
        position += 1
    start = position
    # Those that follow and have no place yet are given one; the next time they can go.
    while position < end and aside < ASIDE_MESSAGES:
        slot = log.at(position)
        if slot is not NULL and not slot.content & 1 and message_of(slot).place == 0:
            log.journal.place_aside(queue, message_of(slot))
        position += 1
        aside += 1
    return start


cdef int page_out(SlotLog log, QueuePort queue, uint64_t keep) except -1:
    """Memory is short: what is out and all but the first `keep` ready messages are paged out."""
    cdef uint64_t start = log.first_number * CHUNK_SLOTS
    cdef int64_t head = log.first_ready()
    cdef uint64_t end = log.next_position if head < 0 else <uint64_t>head
    if log.out_to > start:
        start = log.out_to
    if start < end:
        log.out_to = evict_range(log, queue, start, end)
    start = end + keep
    if log.paged_to > start:
        start = log.paged_to
    if start < log.next_position:
        log.paged_to = evict_range(log, queue, start, log.next_position)
    return 0


cdef bint is_full(SlotLog log, uint64_t number) noexcept:
    return (number + 1) * CHUNK_SLOTS <= log.next_position


cdef bint any_logged(Chunk* chunk) noexcept:
    cdef int j
    for j in range(CHUNK_SLOTS):
        if chunk.slots[j].content and chunk.slots[j].flags & LOGGED:
            return True
    return False


cdef int write_indexes(SlotLog log, QueuePort queue, uint64_t level_bits, uint64_t first,
                       uint64_t end, int limit) except -1:
    """Writes the indexes that chunks from `first` to before `end` lack, up to a number of them."""
    cdef uint8_t buffer[INDEX_BYTES_MAX]
    cdef uint64_t number = first if first > log.first_number else log.first_number
    cdef uint64_t slot
    cdef Chunk* chunk
    cdef size_t n
    cdef int written = 0
    while number < end and written < limit and is_full(log, number):
        chunk = log.chunk_at(number * CHUNK_SLOTS)
        if (chunk is not NULL and chunk.slots is not NULL and chunk.index_place == 0
                and chunk.live):
            slot = level_bits | number * CHUNK_SLOTS
            memcpy(buffer, &slot, 8)
            n = encode_slots(log, chunk, NULL, buffer + 8)
            if n:
                chunk.index_place = log.journal.write_index(queue, buffer, n + 8)
                chunk.index_kept = log.durable
                if not any_logged(chunk):
                    log.unkeep_index(chunk)
                written += 1
        number += 1
    return written


cdef bint can_spill(Chunk* chunk) noexcept:
    cdef int j
    if (chunk.live == 0 or chunk.ready + chunk.retained != chunk.live
            or chunk.index_place == 0):
        return False
    for j in range(CHUNK_SLOTS):
        if chunk.slots[j].content and not chunk.slots[j].content & 1:
            return False
    return True


cdef int spill(SlotLog log, QueuePort queue, uint64_t level_bits) except -1:
    """Indexes the chunks that are paged out and frees the slots of those whose index is written."""
    cdef int64_t head = log.first_ready()
    cdef uint64_t number, end = log.paged_to // CHUNK_SLOTS
    if log.retained:
        spill_behind(log, queue, level_bits)
    if head < 0:
        return 0
    number = <uint64_t>head // CHUNK_SLOTS + 2
    if log.indexed_to < number:
        log.indexed_to = number
    if log.indexed_to < end:
        write_indexes(log, queue, level_bits, log.indexed_to, end, CHUNK_SLOTS * CHUNK_SLOTS)
        log.indexed_to = end
    if log.spilled_to > number:
        number = log.spilled_to
    log.spilled_to = spill_range(log, number, end)
    return 0


cdef int spill_behind(SlotLog log, QueuePort queue, uint64_t level_bits) except -1:
    """The same for chunks that consumers are through with and cursors are not."""
    cdef uint64_t end = log.out_to // CHUNK_SLOTS
    cdef uint64_t number = max(log.spilled_behind, log.first_number)
    if number < end:
        write_indexes(log, queue, level_bits, number, end, CHUNK_SLOTS * CHUNK_SLOTS)
        log.spilled_behind = spill_range(log, number, end)
    return 0


cdef uint64_t spill_range(SlotLog log, uint64_t number, uint64_t end) except? 0:
    """Frees the slots of chunks whose index is written; the chunk it stopped at."""
    cdef Chunk* chunk
    cdef int j
    while number < end:
        chunk = log.chunk_at(number * CHUNK_SLOTS)
        if chunk is not NULL and chunk.slots is not NULL and can_spill(chunk):
            if chunk.index_place >= log.journal.persisted_end:
                break
            chunk.logged_bits[0] = chunk.logged_bits[1] = chunk.body_bytes = 0
            for j in range(CHUNK_SLOTS):
                if chunk.slots[j].content and chunk.slots[j].flags & LOGGED:
                    chunk.logged_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
                    chunk.body_bytes += chunk.slots[j].body_len
            free(chunk.slots)
            chunk.slots = NULL
        number += 1
    return number
