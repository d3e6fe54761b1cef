from libc.stdint cimport uint64_t

from warren.queue.slots cimport SlotLog

cdef bytes encode_level(SlotLog log, int level, bint clean, uint64_t limit)
cdef size_t decode_level(SlotLog log, bytes data, size_t at) except 0
