from libc.stdint cimport uint8_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport QueuePort
from warren.queue.slots cimport Chunk, Slot, SlotLog

cdef enum:
    ENTRY_BYTES = 24
    INDEX_BYTES_MAX = 8 + 128 * 24

cdef size_t encode_slots(SlotLog log, Chunk* chunk, const uint64_t* bits, uint8_t* out) except? 0
cdef int decode_slot(SlotLog log, Chunk* chunk, const uint8_t* p) except -1
cdef bint load_slots(SlotLog log, Chunk* chunk, uint64_t slot) except -1
cdef void hold_in_memory(SlotLog log, Slot* slot, Message message) noexcept
cdef bint page_in(SlotLog log, uint64_t position) except -1
cdef int page_out(SlotLog log, QueuePort queue, uint64_t keep) except -1
cdef int write_indexes(SlotLog log, QueuePort queue, uint64_t level_bits, uint64_t first,
                       uint64_t end, int limit) except -1
cdef int spill(SlotLog log, QueuePort queue, uint64_t level_bits) except -1
