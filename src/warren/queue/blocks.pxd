from libc.stdint cimport int64_t, uint8_t, uint64_t

from warren.model.message cimport Message
from warren.queue.kept cimport KeptBacklog
from warren.queue.slots cimport SlotLog
from warren.wire.columns cimport Column


cdef class BlockBuilder:
    cdef readonly uint64_t first       # of the range
    cdef readonly uint64_t next        # how far it has come
    cdef readonly uint64_t rows
    cdef readonly uint64_t size        # of bodies and headers so far
    cdef readonly uint64_t missing     # messages that should be there and are not
    cdef uint64_t complete_from
    cdef uint64_t opened_before
    cdef list times                    # (wall ms, position)
    cdef size_t time_at
    cdef bytes window                  # of the log, read ahead
    cdef uint64_t window_start
    cdef bint with_body
    cdef bint with_headers
    cdef bint mends                    # another replica is asked for what cannot be read
    cdef Column seq, enqueued_at, published_at, exchange, routing_key, message_id, correlation_id
    cdef Column content_type, expiration, delivery_mode, priority, redelivered, body
    cdef Column headers, header_keys, header_values

    cdef Message message_at(self, SlotLog log, uint64_t place)
    cdef int add(self, uint64_t position, Message message) except -1
    cdef int add_properties(self, Message message) except -1
    cdef int add_headers(self, const uint8_t* p, size_t n) except -1
    cdef bint add_plain_headers(self, const uint8_t* p, size_t n) except -1
    cdef int close_map(self) except -1
    cdef const uint8_t* add_optional(self, Column column, bint is_there,
                                     const uint8_t* p) except NULL
