"""Columns of a block as Arrow lays them out, so that readers take them as they stand.

A block is `WARRENB1` (8), length of its head (4), rows (4), the head, and the columns' buffers,
each at a multiple of eight bytes from the block's start. The head is JSON, padded with spaces:
`columns` lists name, kind and the buffers as pairs of their place behind the head and their size:
which values there are (absent: all), offsets, values; for a map the offsets, then keys' offsets and
bytes, then which values there are, their offsets and bytes. Kinds: i64, i8, bool, text, bytes, map.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import json

cdef bytes MAGIC = b"WARRENB1"

cdef enum:
    OFFSET_MAX = 0x7FFFFFFF
    # Behind the magic: length of the head and number of rows.
    HEAD_BYTES = 16


cdef int grow(Buffer* buffer, size_t more) except -1:
    cdef size_t room = buffer.room * 2 if buffer.room else 1024
    cdef uint8_t* grown
    while room - buffer.length < more:
        room *= 2
    grown = <uint8_t*>realloc(buffer.data, room)
    if grown is NULL:
        raise MemoryError()
    buffer.data = grown
    buffer.room = room
    return 0


cdef class Column:
    """See the module's text. A map's column holds its offsets; keys and values are two more."""

    def __cinit__(self, str name not None, str kind not None):
        cdef int32_t zero = 0
        self.name = name
        self.kind = kind
        self.width = {"i64": 8, "i8": 1}.get(kind, 0)
        if kind in ("text", "bytes", "map"):
            put(&self.offsets, &zero, 4)

    def __dealloc__(self):
        free(self.values.data)
        free(self.offsets.data)
        free(self.valid.data)

    cdef int put_valid(self, bint valid) except -1:
        """The next row's bit; bits come by eights."""
        cdef uint8_t nothing = 0
        if self.rows % 8 == 0:
            put(&self.valid, &nothing, 1)
        if valid:
            self.valid.data[self.rows // 8] |= <uint8_t>(1 << (self.rows % 8))
        else:
            self.has_null = True
        self.rows += 1
        return 0

    cdef int put_int(self, int64_t value, bint valid) except -1:
        cdef int8_t small = <int8_t>value
        if self.width == 8:
            put(&self.values, &value, 8)
        elif self.width == 1:
            put(&self.values, &small, 1)
        else:
            # Of a truth value the bits are the values.
            return self.put_valid(value != 0)
        return self.put_valid(valid)

    cdef int put_bytes(self, const uint8_t* data, size_t n) except -1:
        cdef int32_t end
        if self.values.length + n > OFFSET_MAX:
            raise ValueError("a column of a block holds at most 2 GiB")
        put(&self.values, data, n)
        end = <int32_t>self.values.length
        put(&self.offsets, &end, 4)
        return self.put_valid(True)

    cdef int put_text(self, const uint8_t* data, size_t n) except -1:
        """Bytes that readers take for UTF-8: what is none is replaced."""
        cdef size_t i
        cdef bytes clean
        for i in range(n):
            if data[i] >= 0x80:
                clean = (<const char*>data)[:n].decode("utf-8", "replace").encode()
                return self.put_bytes(<const uint8_t*>PyBytes_AS_STRING(clean),
                                      PyBytes_GET_SIZE(clean))
        return self.put_bytes(data, n)

    cdef int put_null_text(self) except -1:
        cdef int32_t end = <int32_t>self.values.length
        put(&self.offsets, &end, 4)
        return self.put_valid(False)

    def buffers(self):
        """Which values there are, offsets, values; None for what there is no need of."""
        valid = (self.valid.data[:self.valid.length]
                 if self.has_null and self.kind != "bool" else None)
        if self.kind == "bool":
            return [None, None, self.valid.data[:self.valid.length]]
        offsets = self.offsets.data[:self.offsets.length] if self.offsets.length else None
        values = None if self.kind == "map" else self.values.data[:self.values.length]
        return [valid, offsets, values]


def join_block(list columns not None, uint64_t rows, dict facts not None):
    """A block of columns: (name, kind, buffers) each, and what else its head is to say."""
    places = []
    at = 0
    for _, _, buffers in columns:
        spots = []
        for data in buffers:
            if data is None:
                spots.append(None)
            else:
                spots.append([at, len(data)])
                at += (len(data) + 7) // 8 * 8
        places.append(spots)
    # Places count from behind the head, so that its length does not matter to them.
    head = json.dumps({**facts, "columns": [[name, kind, spots] for (name, kind, _), spots
                                            in zip(columns, places)]}).encode()
    head += b" " * (-len(head) % 8)
    size = HEAD_BYTES + len(head) + at
    cdef bytes block = PyBytes_FromStringAndSize(NULL, size)
    cdef char* start = PyBytes_AS_STRING(block)
    cdef size_t end = HEAD_BYTES + <size_t>len(head), length
    cdef uint32_t number
    cdef bytes piece
    memcpy(start, PyBytes_AS_STRING(MAGIC), 8)
    number = <uint32_t>len(head)
    memcpy(start + 8, &number, 4)
    number = <uint32_t>rows
    memcpy(start + 12, &number, 4)
    piece = head
    memcpy(start + HEAD_BYTES, PyBytes_AS_STRING(piece), len(head))
    for _, _, buffers in columns:
        for data in buffers:
            if data is None:
                continue
            piece = data
            length = PyBytes_GET_SIZE(piece)
            memcpy(start + end, PyBytes_AS_STRING(piece), length)
            memset(start + end + length, 0, (8 - length % 8) % 8)
            end += (length + 7) // 8 * 8
    return block
