"""Columns of a block as Arrow lays them out, so that readers take them as they stand.

A block is `WARRENB1` (8), length of its head (4), rows (4), the head, and the columns' buffers,
each at a multiple of eight bytes from the block's start. The head is JSON, padded with spaces:
`columns` lists name, kind and the buffers as pairs of their place behind the head and their size:
which values there are (absent: all), offsets, values; for a map the offsets, then keys' offsets and
bytes, then which values there are, their offsets and bytes. Kinds: i64, i8, bool, text, bytes, map.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

import json
import struct

cdef bytes MAGIC = b"WARRENB1"

cdef enum:
    OFFSET_MAX = 0x7FFFFFFF
    # Buffers that are kept for the next block, and how long they may be: to give some megabytes
    # back to the system, and to have them again, takes as long as a publish.
    SPARES = 4
    SPARE_BYTES_MIN = 1048576
    SPARE_BYTES_MAX = 8388608

cdef Buffer[SPARES] spares
cdef int spare_count = 0


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


cdef int reserve(Buffer* buffer, size_t room) except -1:
    """Room from the beginning: a buffer that grows is copied again and again."""
    global spare_count
    if buffer.data is not NULL:
        return 0
    if room >= SPARE_BYTES_MIN and spare_count and spares[spare_count - 1].room >= room:
        spare_count -= 1
        buffer[0] = spares[spare_count]
        buffer.length = 0
        return 0
    buffer.data = <uint8_t*>malloc(room)
    if buffer.data is NULL:
        raise MemoryError()
    buffer.room = room
    return 0


cdef void give_back(Buffer* buffer) noexcept:
    global spare_count
    if SPARE_BYTES_MIN <= buffer.room <= SPARE_BYTES_MAX and spare_count < SPARES:
        spares[spare_count] = buffer[0]
        spare_count += 1
    else:
        free(buffer.data)


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
        give_back(&self.values)
        free(self.offsets.data)
        free(self.valid.data)

    cdef int reserve(self, uint64_t rows, size_t size) except -1:
        """So many rows will come, of so many bytes in all where they have no width of their own."""
        if self.width:
            return reserve(&self.values, rows * self.width)
        grow(&self.offsets, rows * 4)
        return reserve(&self.values, size)

    cdef int put_bit(self, bint bit) except -1:
        """The next row's bit of `valid`; bits come by eights."""
        cdef uint8_t nothing = 0
        if self.rows % 8 == 0:
            put(&self.valid, &nothing, 1)
        if bit:
            self.valid.data[self.rows // 8] |= <uint8_t>(1 << (self.rows % 8))
        self.rows += 1
        return 0

    cdef int put_valid(self, bint valid) except -1:
        """Most columns have a value in all rows, and no bits then."""
        cdef uint64_t _row, rows = self.rows
        if valid and not self.has_null:
            self.rows += 1
            return 0
        if not self.has_null:
            self.has_null = True
            self.rows = 0
            for _row in range(rows):
                self.put_bit(True)
        return self.put_bit(valid)

    cdef int put_null(self) except -1:
        """A row without a value; so long as there is none at all, rows are only counted."""
        cdef int32_t end
        cdef uint64_t nothing = 0
        if not self.has_value:
            self.rows += 1
            return 0
        if self.width:
            put(&self.values, &nothing, self.width)
        else:
            end = <int32_t>self.values.length
            put(&self.offsets, &end, 4)
        return self.put_valid(False)

    cdef int begin_values(self) except -1:
        """The first value of the column: the rows before have none."""
        cdef uint64_t _row, rows = self.rows
        self.has_value = True
        self.rows = 0
        for _row in range(rows):
            self.put_null()
        return 0

    cdef int put_int(self, int64_t value, bint valid) except -1:
        cdef int8_t small = <int8_t>value
        if not valid:
            return self.put_null()
        if not self.has_value:
            self.begin_values()
        if self.width == 8:
            put(&self.values, &value, 8)
        elif self.width == 1:
            put(&self.values, &small, 1)
        else:
            # Of a truth value the bits are the values.
            return self.put_bit(value != 0)
        return self.put_valid(True)

    cdef int put_bytes(self, const uint8_t* data, size_t n) except -1:
        cdef int32_t end
        if not self.has_value:
            self.begin_values()
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

    @property
    def is_empty(self):
        """No row has a value: readers need not be told more of the column."""
        return not self.has_value

    def buffers(self):
        """Which values there are, offsets, values; None for what there is no need of.

        The column is empty afterwards: nothing is copied.
        """
        if not self.has_value and self.kind != "map":
            self.begin_values()
        valid, offsets, values = Span(), Span(), Span()
        (<Span>valid).take(&self.valid)
        (<Span>offsets).take(&self.offsets)
        (<Span>values).take(&self.values)
        if self.kind == "bool":
            return [None, None, valid]
        return [valid if self.has_null else None, offsets if len(offsets) else None,
                None if self.kind == "map" else values]


@cython.final
cdef class Span:
    """A column's bytes, padded to where the next ones begin."""

    def __dealloc__(self):
        give_back(&self.held)

    def __len__(self):
        return self.length

    cdef int take(self, Buffer* buffer) except -1:
        cdef uint64_t nothing = 0
        self.length = buffer.length
        put(buffer, &nothing, (8 - buffer.length % 8) % 8)
        self.held = buffer[0]
        buffer.data = NULL
        buffer.length = buffer.room = 0
        return 0

    cdef int copy_of(self, bytes data) except -1:
        cdef Buffer buffer = Buffer(NULL, 0, 0)
        put(&buffer, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return self.take(&buffer)


@cython.final
cdef class Block:
    """A block that is done: given away in pieces, so that a long one is never in one go."""

    def __init__(self, list spans not None):
        self.spans = spans
        for span in spans:
            self.size += (<Span>span).held.length

    def __len__(self):
        return self.size

    def __bytes__(self):
        return b"".join(self.pieces(self.size))

    def pieces(self, size_t most):
        """Its bytes in order; each piece but the last has so many."""
        cdef size_t left = self.size, at = 0, number = 0, filled, n
        cdef bytes piece
        cdef Span span
        while left:
            piece = PyBytes_FromStringAndSize(NULL, min(most, left))
            filled = 0
            while filled < <size_t>PyBytes_GET_SIZE(piece):
                span = self.spans[number]
                n = min(span.held.length - at, PyBytes_GET_SIZE(piece) - filled)
                memcpy(PyBytes_AS_STRING(piece) + filled, span.held.data + at, n)
                filled += n
                at += n
                if at == span.held.length:
                    number += 1
                    at = 0
            left -= filled
            yield piece


def join_block(list columns not None, uint64_t rows, dict facts not None):
    """A block of columns: (name, kind, spans) each, and what else its head is to say."""
    cdef list spans = []
    cdef size_t at = 0
    cdef Span span
    places = []
    for _, _, buffers in columns:
        spots = []
        for span in buffers:
            if span is None:
                spots.append(None)
            else:
                spots.append([at, span.length])
                at += span.held.length
                spans.append(span)
        places.append(spots)
    # Places count from behind the head, so that its length does not matter to them.
    head = json.dumps({**facts, "columns": [[name, kind, spots] for (name, kind, _), spots
                                            in zip(columns, places)]}).encode()
    # Never below nothing: what is left over is negative then, as C has it.
    head += b" " * ((8 - len(head) % 8) % 8)
    span = Span()
    span.copy_of(MAGIC + struct.pack("<II", len(head), rows) + head)
    return Block([span, *spans])


def fill_column(Column column not None, list values not None):
    """Numbers into a column, as numbers or as text, for tests: None where there is no value."""
    for value in values:
        if value is None:
            column.put_null()
        elif column.width:
            column.put_int(value, True)
        else:
            text = b"%d" % value
            column.put_bytes(<const uint8_t*><const char*>text, PyBytes_GET_SIZE(text))
