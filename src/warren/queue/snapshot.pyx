"""One level of a queue as a checkpoint holds it: its logged messages, by chunk.

Level: number (1), next position (8), opened (8), flagged below (8), chunks (4), then each chunk.
Chunk: number (8), place of its index or 0 (8), bits of the logged messages (16), their body bytes
(8), length of what follows (4), and without an index its entries as in an index record.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from warren.queue.paging cimport ENTRY_BYTES, INDEX_BYTES_MAX, decode_slot, encode_slots
from warren.queue.slots cimport CHUNK_SLOTS, LOGGED, Chunk, SlotLog

cdef extern from *:
    int popcount64 "__builtin_popcountll"(unsigned long long) nogil

cdef enum:
    LEVEL_BYTES = 29
    CHUNK_BYTES = 44


cdef void look_up(Chunk* chunk, uint64_t* bits, uint64_t* body_bytes) noexcept:
    """The logged messages of a chunk, wherever its slots are."""
    cdef int j
    bits[0] = chunk.logged_bits[0]
    bits[1] = chunk.logged_bits[1]
    body_bytes[0] = chunk.body_bytes
    if chunk.slots is NULL:
        return
    bits[0] = bits[1] = body_bytes[0] = 0
    for j in range(CHUNK_SLOTS):
        if chunk.slots[j].content and chunk.slots[j].flags & LOGGED:
            bits[j >> 6] |= (<uint64_t>1) << (j & 63)
            body_bytes[0] += chunk.slots[j].body_len


cdef void cut_off(Chunk* chunk, uint64_t first, uint64_t limit, uint64_t* bits,
                  uint64_t* body_bytes) noexcept:
    """Leaves out what stands at or behind a position."""
    cdef int j
    for j in range(CHUNK_SLOTS):
        if first + <uint64_t>j >= limit and bits[j >> 6] >> (j & 63) & 1:
            bits[j >> 6] &= ~((<uint64_t>1) << (j & 63))
            body_bytes[0] -= chunk.slots[j].body_len


cdef size_t room_for(SlotLog log) noexcept:
    cdef size_t room = LEVEL_BYTES, i
    cdef Chunk* chunk
    for i in range(log.count):
        chunk = log.chunks[log.first + i]
        if chunk is not NULL and chunk.live:
            room += CHUNK_BYTES
            if chunk.index_place == 0:
                room += <size_t>chunk.live * ENTRY_BYTES
            elif chunk.slots is not NULL:
                room += CHUNK_SLOTS * ENTRY_BYTES
    return room


cdef bytes encode_level(SlotLog log, int level, bint clean, uint64_t limit):
    """All that stands before position `limit`."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>room_for(log))
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(out)
    cdef uint8_t* p = start + LEVEL_BYTES
    cdef uint64_t opened = log.flagged_below if clean else log.opened
    cdef uint64_t bits[2]
    cdef uint64_t body_bytes = 0, number, index_place, next_position = min(log.next_position, limit)
    cdef uint32_t count = 0, length
    cdef size_t i
    cdef Chunk* chunk
    if not clean and log.opening > opened:
        # Asked for, so perhaps on the disk before this checkpoint is.
        opened = log.opening
    for i in range(log.count):
        chunk = log.chunks[log.first + i]
        if chunk is NULL or chunk.live == 0:
            continue
        number = log.first_number + i
        if number * CHUNK_SLOTS >= limit:
            continue
        look_up(chunk, bits, &body_bytes)
        index_place = chunk.index_place
        if (number + 1) * CHUNK_SLOTS > limit and chunk.slots is not NULL:
            cut_off(chunk, number * CHUNK_SLOTS, limit, bits, &body_bytes)
            index_place = 0
        if bits[0] == 0 and bits[1] == 0:
            log.unkeep_index(chunk)
            continue
        length = 0
        if index_place == 0:
            length = <uint32_t>encode_slots(log, chunk, bits, p + CHUNK_BYTES)
        memcpy(p, &number, 8)
        memcpy(p + 8, &index_place, 8)
        memcpy(p + 16, bits, 16)
        memcpy(p + 32, &body_bytes, 8)
        memcpy(p + 40, &length, 4)
        p += CHUNK_BYTES + length
        count += 1
    start[0] = <uint8_t>level
    memcpy(start + 1, &next_position, 8)
    memcpy(start + 9, &opened, 8)
    memcpy(start + 17, &log.flagged_below, 8)
    memcpy(start + 25, &count, 4)
    return out[:p - start]


cdef size_t decode_level(SlotLog log, bytes data, size_t at) except 0:
    """Fills an empty level; where its bytes end."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t size = len(data), end
    cdef uint64_t next_position, number, body_bytes, above = 0
    cdef uint32_t count, length, i, at_entry
    cdef Chunk* chunk
    if size - at < LEVEL_BYTES:
        raise ValueError("a level of a queue in the checkpoint is cut short")
    memcpy(&next_position, p + at + 1, 8)
    memcpy(&log.opened, p + at + 9, 8)
    memcpy(&log.flagged_below, p + at + 17, 8)
    memcpy(&count, p + at + 25, 4)
    at += LEVEL_BYTES
    for i in range(count):
        if size - at < CHUNK_BYTES:
            raise ValueError("a chunk in the checkpoint is cut short")
        memcpy(&number, p + at, 8)
        memcpy(&length, p + at + 40, 4)
        end = at + CHUNK_BYTES + length
        if end > size or length > INDEX_BYTES_MAX or length % ENTRY_BYTES or (i and number < above):
            raise ValueError("a chunk in the checkpoint is out of place")
        above = number + 1
        chunk = log.chunk_for(number)
        memcpy(&chunk.index_place, p + at + 8, 8)
        memcpy(chunk.logged_bits, p + at + 16, 16)
        memcpy(&body_bytes, p + at + 32, 8)
        chunk.ready_bits[0] = chunk.logged_bits[0]
        chunk.ready_bits[1] = chunk.logged_bits[1]
        chunk.body_bytes = body_bytes
        chunk.live = chunk.ready = (popcount64(chunk.ready_bits[0])
                                    + popcount64(chunk.ready_bits[1]))
        if chunk.index_place:
            chunk.index_kept = True
            free(chunk.slots)
            chunk.slots = NULL
        else:
            if length != chunk.live * ENTRY_BYTES:
                raise ValueError("a chunk in the checkpoint has another number of messages")
            for at_entry in range(0, length, ENTRY_BYTES):
                decode_slot(log, chunk, p + at + CHUNK_BYTES + at_entry)
        log.live += chunk.live
        log.ready += chunk.live
        log.kept += chunk.live
        log.kept_bytes += body_bytes
        log.live_bytes += body_bytes
        log.ready_bytes += body_bytes
        at = end
    log.next_position = next_position
    log.hint = log.first_number * CHUNK_SLOTS
    return at
