"""A range of a queue's positions as a block of columns, without taking anything out.

The columns are those of Arrow (`wire/columns.pyx`), so a reader takes them as they stand. A long
range is built in slices, so that nobody's message waits for it. What a block says depends on the
messages and the cursor alone, never on who else has had them meanwhile.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free

from warren.model.message cimport Message
from warren.queue.kept cimport KeptBacklog
from warren.queue.paging cimport load_slots
from warren.queue.slots cimport CHUNK_SLOTS, Chunk, Slot, SlotLog, message_of
from warren.wire.columns cimport Column, put

import json
from bisect import bisect_right

from warren.wire.columns import join_block
from warren.wire.tables import decode_table

cdef enum:
    # How much of the log is read at once.
    WINDOW_BYTES = 262144
    # What a block may have beyond the bytes that were asked for: its last message, mostly.
    ROOM_BYTES = 65536
    # What stands in a content header before its properties: class, weight, body size, flags.
    PROPERTIES_AT = 14


cdef inline uint32_t big32(const uint8_t* p) noexcept:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline uint64_t big64(const uint8_t* p) noexcept:
    return <uint64_t>big32(p) << 32 | big32(p + 4)


@cython.final
cdef class BlockBuilder:
    """See the module's text. `fill` until `next` is the end wanted, then `finish`."""

    def __init__(self, uint64_t first, cursor, list times not None, bint with_body=True,
                 bint with_headers=True, bint mends=True):
        """`cursor` None: of a queue that is only looked at.

        `mends`: another replica is asked for what cannot be read here.
        """
        self.first = self.next = first
        self.complete_from = ~<uint64_t>0 if cursor is None else cursor.complete_from
        self.opened_before = 0 if cursor is None else cursor.opened_before
        self.times = times
        self.time_at = bisect_right(times, first, key=lambda mark: mark[1])
        self.with_body = with_body
        self.with_headers = with_headers
        self.mends = mends
        self.window = b""
        self.seq = Column("seq", "i64")
        self.enqueued_at = Column("enqueued_at", "i64")
        self.published_at = Column("published_at", "i64")
        self.exchange = Column("exchange", "text")
        self.routing_key = Column("routing_key", "text")
        self.message_id = Column("message_id", "text")
        self.correlation_id = Column("correlation_id", "text")
        self.content_type = Column("content_type", "text")
        self.expiration = Column("expiration", "text")
        self.delivery_mode = Column("delivery_mode", "i8")
        self.priority = Column("priority", "i8")
        self.redelivered = Column("redelivered_hint", "bool")
        self.body = Column("body", "bytes")
        self.headers = Column("headers", "map")
        self.header_keys = Column("keys", "text")
        self.header_values = Column("values", "text")

    def expect(self, KeptBacklog queue not None, uint64_t rows, uint64_t size):
        """So many rows are wanted, or so many bytes: room for them, so that no slice takes longer
        because there is none."""
        cdef SlotLog log = queue.log
        cdef uint64_t there = log.live + log.retained
        cdef uint64_t mean = (log.live_bytes + log.retained_bytes) // max(there, <uint64_t>1)
        rows = min(rows, there)
        self.seq.reserve(rows, 0)
        self.enqueued_at.reserve(rows, 0)
        if self.with_body:
            self.body.reserve(rows, min(size, rows * mean * 5 // 4) + ROOM_BYTES)

    def fill(self, KeptBacklog queue not None, uint64_t end, uint64_t rows, uint64_t size):
        """Go on, up to a position, or until so many more rows or so many bytes in all are there.

        It does not go beyond what the queue has on the disk, nor, while another replica is asked
        for a message that cannot be read, beyond that.
        """
        cdef SlotLog log = queue.log
        cdef uint64_t number, rows_end = self.rows + rows
        cdef Chunk* chunk
        cdef Slot* entry
        cdef bint spilled
        cdef Message message
        end = min(end, queue.find_end())
        while self.next < end and self.rows < rows_end and (self.size < size or not self.rows):
            number = self.next // CHUNK_SLOTS
            chunk = log.chunk_at(self.next)
            spilled = chunk is not NULL and chunk.live and chunk.slots is NULL
            if chunk is NULL or chunk.live == 0 or (
                    spilled and not load_slots(log, chunk, number * CHUNK_SLOTS)):
                if (spilled and self.mends and queue.mirror is not None
                        and queue.mirror.has_others()):
                    queue.lose_chunk(log, self.next)
                    continue
                number = min((number + 1) * CHUNK_SLOTS, end)
                if number > self.complete_from:
                    self.missing += number - max(self.next, self.complete_from)
                self.next = number
                continue
            try:
                while (self.next < end and self.next // CHUNK_SLOTS == number
                       and self.rows < rows_end and (self.size < size or not self.rows)):
                    entry = &chunk.slots[self.next % CHUNK_SLOTS]
                    if entry.content == 0:
                        self.missing += self.next >= self.complete_from
                    else:
                        message = (self.message_at(log, entry.content >> 1)
                                   if entry.content & 1 else message_of(entry))
                        if message is None:
                            if (self.mends and queue.mirror is not None
                                    and queue.mirror.asks_for(self.next)):
                                # Another replica is asked for it: who reads comes again.
                                end = self.next
                                break
                            self.missing += 1
                        else:
                            self.add(self.next, message)
                    self.next += 1
            finally:
                if spilled:
                    free(chunk.slots)
                    chunk.slots = NULL

    cdef Message message_at(self, SlotLog log, uint64_t place):
        """A message that is in the log only; it stays there."""
        cdef Message message = None
        if self.window_start <= place < self.window_start + <uint64_t>PyBytes_GET_SIZE(self.window):
            message = log.journal.message_in(self.window, self.window_start, place)
        if message is None:
            window = log.journal.read_ahead(place, WINDOW_BYTES)
            if window is not None:
                self.window = window
                self.window_start = place
                message = log.journal.message_in(self.window, place, place)
            if message is None:
                message = log.journal.fetch(place)
        return message

    cdef int add(self, uint64_t position, Message message) except -1:
        cdef bytes exchange = message.address.exchange, key = message.address.routing_key
        while (self.time_at < <size_t>len(self.times)
               and <uint64_t>self.times[self.time_at][1] <= position):
            self.time_at += 1
        self.seq.put_int(<int64_t>position, True)
        if self.time_at:
            self.enqueued_at.put_int(<int64_t>self.times[self.time_at - 1][0] * 1000, True)
        else:
            self.enqueued_at.put_int(0, False)
        self.exchange.put_text(<const uint8_t*><const char*>exchange, PyBytes_GET_SIZE(exchange))
        self.routing_key.put_text(<const uint8_t*><const char*>key, PyBytes_GET_SIZE(key))
        self.redelivered.put_int(position < self.opened_before, True)
        self.add_properties(message)
        if self.with_body:
            self.body.put_bytes(message.data + message.header_len, message.body_len)
            self.size += message.body_len
        self.size += message.header_len
        self.rows += 1
        return 0

    cdef const uint8_t* add_optional(self, Column column, bint is_there,
                                     const uint8_t* p) except NULL:
        """A short text that may be there; where the next property stands."""
        if not is_there:
            column.put_null()
            return p
        column.put_text(p + 1, p[0])
        return p + 1 + p[0]

    cdef int add_properties(self, Message message) except -1:
        """The properties of a content header that was checked when it was published."""
        cdef const uint8_t* p = message.data + PROPERTIES_AT
        cdef uint32_t flags = <uint32_t>message.data[12] << 8 | message.data[13]
        cdef uint32_t table = 0
        p = self.add_optional(self.content_type, flags & 1 << 15, p)
        if flags & 1 << 14:
            p += 1 + p[0]
        if flags & 1 << 13:
            table = big32(p)
            self.add_headers(p + 4, table)
            p += 4 + table
        else:
            self.close_map()
        self.delivery_mode.put_int(p[0] if flags & 1 << 12 else 0, flags & 1 << 12)
        p += flags >> 12 & 1
        self.priority.put_int(p[0] if flags & 1 << 11 else 0, flags & 1 << 11)
        p += flags >> 11 & 1
        p = self.add_optional(self.correlation_id, flags & 1 << 10, p)
        if flags & 1 << 9:
            p += 1 + p[0]
        p = self.add_optional(self.expiration, flags & 1 << 8, p)
        p = self.add_optional(self.message_id, flags & 1 << 7, p)
        # Seconds; no time that a table can hold is later than this.
        if flags & 1 << 6 and big64(p) < 9223372036854:
            self.published_at.put_int(<int64_t>big64(p) * 1000000, True)
        else:
            self.published_at.put_int(0, False)
        return 0

    # -- headers -----------------------------------------------------------------------------------

    cdef int close_map(self) except -1:
        cdef int32_t end = <int32_t>self.header_keys.rows
        put(&self.headers.offsets, &end, 4)
        return self.headers.put_valid(True)

    cdef int add_headers(self, const uint8_t* p, size_t n) except -1:
        cdef bytes encoded
        if self.with_headers and n and not self.add_plain_headers(p, n):
            for name, value in decode_table((<const char*>p)[:n]).items():
                encoded = name.encode("utf-8", "replace")
                self.header_keys.put_text(<const uint8_t*><const char*>encoded,
                                          PyBytes_GET_SIZE(encoded))
                if value is None:
                    self.header_values.put_null()
                    continue
                encoded = shown(value).encode("utf-8", "replace")
                self.header_values.put_text(<const uint8_t*><const char*>encoded,
                                            PyBytes_GET_SIZE(encoded))
        return self.close_map()

    cdef bint add_plain_headers(self, const uint8_t* p, size_t n) except -1:
        """Headers of the usual types; False, and nothing added, when there are others."""
        cdef const uint8_t* end = p + n
        cdef const uint8_t* at = p
        cdef char number[32]
        cdef uint32_t length
        cdef int64_t value
        while at < end:
            at += 1 + at[0]
            if at[0] == b"S":
                at += 5 + big32(at + 1)
            elif at[0] == b"t" or at[0] == b"b":
                at += 2
            elif at[0] == b"I":
                at += 5
            elif at[0] == b"l":
                at += 9
            else:
                return False
        if at != end:
            return False
        at = p
        while at < end:
            self.header_keys.put_text(at + 1, at[0])
            at += 1 + at[0]
            if at[0] == b"S":
                length = big32(at + 1)
                self.header_values.put_text(at + 5, length)
                at += 5 + length
                continue
            if at[0] == b"t":
                if at[1]:
                    self.header_values.put_text(<const uint8_t*>b"true", 4)
                else:
                    self.header_values.put_text(<const uint8_t*>b"false", 5)
                at += 2
                continue
            if at[0] == b"b":
                value = <int8_t>at[1]
                at += 2
            elif at[0] == b"I":
                value = <int32_t>big32(at + 1)
                at += 5
            else:
                value = <int64_t>big64(at + 1)
                at += 9
            length = <uint32_t>snprintf(number, 32, "%lld", <long long>value)
            self.header_values.put_text(<const uint8_t*>number, length)
        return True

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, **facts):
        """The block; nothing is left here. Columns without a value are left out."""
        columns = [(c.name, c.kind, c.buffers()) for c in (
            self.seq, self.enqueued_at, self.published_at, self.exchange, self.routing_key,
            self.message_id, self.correlation_id, self.content_type, self.expiration,
            self.delivery_mode, self.priority, self.redelivered) if not c.is_empty]
        if self.with_body:
            columns.append(("body", "bytes", self.body.buffers()))
        if self.with_headers:
            keys, values = self.header_keys.buffers(), self.header_values.buffers()
            columns.append(("headers", "map",
                            [None, self.headers.buffers()[1], *keys[1:], *values]))
        return join_block(columns, self.rows, {
            "from": self.first, "to": self.next, "missing": self.missing,
            "entries": self.header_keys.rows, **facts})


def shown(value):
    """A header of an unusual type as text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)
