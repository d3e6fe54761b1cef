"""A block of columns (`columns.pyx`) that a producer sent, as messages to be published.

The columns `exchange`, `routing_key` and `body` must be there; properties and headers may be. The
block comes from outside: no length in it is believed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from warren.model.message cimport Address, Message
from warren.wire.content cimport scan_content
from warren.wire.columns cimport Buffer, put

import json

cdef enum:
    SHORT_MAX = 255
    HEAD_BYTES = 16
    BASIC = 60

cdef dict KINDS = {
    "exchange": "text", "routing_key": "text", "body": "bytes", "message_id": "text",
    "correlation_id": "text", "content_type": "text", "expiration": "text",
    "delivery_mode": "i8", "priority": "i8", "published_at": "i64", "headers": "map",
}


cdef class Given:
    """A column of the block: where its values are, checked against the block's size."""

    cdef str name
    cdef const uint8_t* valid
    cdef const uint8_t* offsets
    cdef const uint8_t* values
    cdef uint64_t values_size
    cdef uint64_t rows

    cdef bint has(self, uint64_t row) noexcept:
        return self.valid is NULL or self.valid[row >> 3] >> (row & 7) & 1

    cdef const uint8_t* at(self, uint64_t row, size_t* size) except NULL:
        cdef int32_t start, end
        memcpy(&start, self.offsets + row * 4, 4)
        memcpy(&end, self.offsets + row * 4 + 4, 4)
        if start < 0 or end < start or <uint64_t>end > self.values_size:
            raise ValueError(f"column '{self.name}' of the block points outside of it")
        size[0] = <size_t>(end - start)
        return self.values + start


cdef const uint8_t* place(bytes block, uint64_t base, spot, uint64_t least,
                          uint64_t* size) except? NULL:
    """A buffer of the block; NULL when there is none."""
    cdef uint64_t at, length
    if spot is None:
        return NULL
    if (not isinstance(spot, list) or len(spot) != 2
            or not all(isinstance(n, int) and 0 <= n < 2**40 for n in spot)):
        raise ValueError("a buffer of the block is not given as a place and a size")
    at, length = spot
    if base + at + length > <uint64_t>PyBytes_GET_SIZE(block) or length < least:
        raise ValueError("a buffer of the block is outside of it, or too short")
    size[0] = length
    return <const uint8_t*>PyBytes_AS_STRING(block) + base + at


cdef Given column_of(bytes block, uint64_t base, uint64_t rows, str name, str kind, list spots):
    """A column by its first three buffers, or those of a map's keys or values."""
    cdef Given given = Given()
    cdef uint64_t size = 0
    given.name = name
    given.rows = rows
    given.valid = place(block, base, spots[0], (rows + 7) // 8, &size)
    if kind in ("text", "bytes", "map"):
        given.offsets = place(block, base, spots[1], (rows + 1) * 4, &size)
        if given.offsets is NULL:
            raise ValueError(f"column '{name}' of the block has no offsets")
    if kind != "map":
        width = {"i64": 8, "i8": 1}.get(kind, 0)
        given.values = place(block, base, spots[2], rows * <uint64_t>width, &given.values_size)
        if given.values is NULL:
            if kind in ("i64", "i8") and rows:
                raise ValueError(f"column '{name}' of the block has no values")
            given.values = <const uint8_t*>PyBytes_AS_STRING(block)
    return given


cdef int put_short(Buffer* out, Given column, uint64_t row) except -1:
    cdef size_t n = 0
    cdef const uint8_t* p = column.at(row, &n)
    cdef uint8_t length
    if n > SHORT_MAX:
        raise ValueError(f"column '{column.name}' has a value of {n} bytes; AMQP allows 255")
    length = <uint8_t>n
    put(out, &length, 1)
    return put(out, p, n)


cdef int put_table(Buffer* out, Given rows, Given keys, Given values, uint64_t row) except -1:
    cdef int32_t start, end, i
    cdef size_t at = out.length, n = 0
    cdef uint8_t big[5]
    cdef const uint8_t* p
    cdef uint32_t length = 0
    memcpy(&start, rows.offsets + row * 4, 4)
    memcpy(&end, rows.offsets + row * 4 + 4, 4)
    if start < 0 or end < start or <uint64_t>end > keys.rows:
        raise ValueError("column 'headers' of the block points outside of it")
    put(out, &length, 4)
    for i in range(start, end):
        put_short(out, keys, <uint64_t>i)
        if not values.has(<uint64_t>i):
            big[0] = b"V"
            put(out, big, 1)
            continue
        p = values.at(<uint64_t>i, &n)
        big[0] = b"S"
        big[1], big[2] = <uint8_t>(n >> 24), <uint8_t>(n >> 16)
        big[3], big[4] = <uint8_t>(n >> 8), <uint8_t>n
        put(out, big, 5)
        put(out, p, n)
    length = <uint32_t>(out.length - at - 4)
    out.data[at] = <uint8_t>(length >> 24)
    out.data[at + 1] = <uint8_t>(length >> 16)
    out.data[at + 2] = <uint8_t>(length >> 8)
    out.data[at + 3] = <uint8_t>length
    return 0


cdef class Staged:
    """The columns of a block, and what of a message is being put together."""

    cdef uint64_t rows
    cdef dict columns
    cdef Given keys
    cdef Given header_values
    cdef Buffer header
    cdef dict addresses

    def __dealloc__(self):
        free(self.header.data)

    cdef int short_property(self, str name, int bit, uint16_t* flags, uint64_t row) except -1:
        cdef Given column = self.columns.get(name)
        if column is not None and column.has(row):
            flags[0] |= <uint16_t>(1 << bit)
            put_short(&self.header, column, row)
        return 0

    cdef int octet_property(self, str name, int bit, uint16_t* flags, uint64_t row,
                            int default) except -1:
        cdef Given column = self.columns.get(name)
        cdef uint8_t value
        if column is not None and column.has(row):
            value = column.values[row]
        elif default >= 0:
            value = <uint8_t>default
        else:
            return 0
        flags[0] |= <uint16_t>(1 << bit)
        return put(&self.header, &value, 1)

    cdef Address address(self, Given exchange, Given key, uint64_t row):
        cdef size_t n = 0, m = 0
        cdef const uint8_t* p = exchange.at(row, &n)
        cdef const uint8_t* k
        if not exchange.has(row) or not key.has(row):
            raise ValueError("columns 'exchange' and 'routing_key' must have a value in every row")
        k = key.at(row, &m)
        if n > SHORT_MAX or m > SHORT_MAX:
            raise ValueError("an exchange or a routing key is longer than AMQP's 255 bytes")
        pair = ((<const char*>p)[:n], (<const char*>k)[:m])
        found = self.addresses.get(pair)
        if found is None:
            found = self.addresses[pair] = Address(*pair)
        return <Address>found

    cdef Message message(self, uint64_t row):
        cdef Given body = self.columns["body"], column
        cdef Message message = Message.__new__(Message)
        cdef uint16_t flags = 0
        cdef uint8_t head[14]
        cdef uint8_t big[8]
        cdef size_t size = 0
        cdef int i
        cdef int64_t seconds
        cdef const uint8_t* p
        self.header.length = 0
        memset(head, 0, 14)
        put(&self.header, head, 14)
        self.short_property("content_type", 15, &flags, row)
        column = self.columns.get("headers")
        if column is not None and column.has(row):
            flags |= 1 << 13
            put_table(&self.header, column, self.keys, self.header_values, row)
        self.octet_property("delivery_mode", 12, &flags, row, 2)
        self.octet_property("priority", 11, &flags, row, -1)
        self.short_property("correlation_id", 10, &flags, row)
        self.short_property("expiration", 8, &flags, row)
        self.short_property("message_id", 7, &flags, row)
        column = self.columns.get("published_at")
        if column is not None and column.has(row):
            memcpy(&seconds, column.values + row * 8, 8)
            seconds = max(seconds, <int64_t>0) // 1000000
            for i in range(8):
                big[i] = <uint8_t>(seconds >> (56 - 8 * i))
            flags |= 1 << 6
            put(&self.header, big, 8)
        p = body.at(row, &size)
        self.header.data[1] = BASIC
        for i in range(8):
            self.header.data[4 + i] = <uint8_t>(<uint64_t>size >> (56 - 8 * i))
        self.header.data[12] = <uint8_t>(flags >> 8)
        self.header.data[13] = <uint8_t>flags
        message.address = self.address(self.columns["exchange"], self.columns["routing_key"], row)
        message.allocate(<uint32_t>self.header.length, <uint32_t>size)
        memcpy(message.data, self.header.data, self.header.length)
        memcpy(message.data + self.header.length, p, size)
        if scan_content(message) != 0:
            raise ValueError(f"row {row} of the block is no message")
        return message


def decode_staged(bytes block not None):
    """The messages of a block. Raises ValueError that says what is wrong with it."""
    cdef Staged staged = Staged()
    cdef uint64_t base, row, entries
    cdef uint32_t length, rows
    if PyBytes_GET_SIZE(block) < HEAD_BYTES or not block.startswith(b"WARRENB1"):
        raise ValueError("this is no block of columns")
    memcpy(&length, PyBytes_AS_STRING(block) + 8, 4)
    memcpy(&rows, PyBytes_AS_STRING(block) + 12, 4)
    base = HEAD_BYTES + <uint64_t>length
    if base > <uint64_t>PyBytes_GET_SIZE(block):
        raise ValueError("the block is cut short")
    try:
        head = json.loads(block[HEAD_BYTES:HEAD_BYTES + length])
        columns = head["columns"]
        entries = int(head.get("entries", 0))
        staged.columns = {}
        for name, kind, spots in columns:
            if KINDS.get(name) != kind:
                raise ValueError(f"column '{name}' of type '{kind}' is not known; there are "
                                 + ", ".join(sorted(KINDS)))
            staged.columns[name] = column_of(block, base, rows, name, kind, spots)
            if kind == "map":
                staged.keys = column_of(block, base, entries, name, "text",
                                        [None, spots[2], spots[3]])
                staged.header_values = column_of(block, base, entries, name, "text", spots[4:7])
    except (TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"the head of the block makes no sense: {error}") from error
    for name in ("exchange", "routing_key", "body"):
        if name not in staged.columns:
            raise ValueError(f"column '{name}' is missing; a message needs it")
    staged.rows = rows
    staged.addresses = {}
    messages = []
    for row in range(rows):
        messages.append(staged.message(row))
    return messages
