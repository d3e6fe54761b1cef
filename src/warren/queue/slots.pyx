"""Where a queue keeps its messages: a log of slots with stable positions.

A message gets the next position when it comes in and keeps it until it leaves, so "requeue to its
original place" is setting a bit. A slot is *ready* (its bit is set), *out* (delivered, waiting for
a settlement) or gone. Slots live in chunks; a chunk whose messages are all gone is freed, also in
the middle. The bits and the per-chunk counts make finding the next ready slot cheap however many
slots before it are out: a run of 100,000 costs some 800 chunk headers, not 100,000 looks.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from warren.model.message cimport Message

cdef extern from *:
    int ctz64 "__builtin_ctzll"(unsigned long long) nogil


@cython.final
@cython.no_gc
cdef class SlotLog:
    """Positions, and the message at each."""

    def __cinit__(self):
        self.chunks = NULL
        self.spare = NULL

    def __dealloc__(self):
        cdef size_t i
        cdef int j
        cdef Chunk* chunk
        for i in range(self.first, self.first + self.count):
            chunk = self.chunks[i]
            if chunk is not NULL:
                for j in range(CHUNK_SLOTS):
                    Py_XDECREF(chunk.slots[j].message)
                free(chunk)
        free(self.chunks)
        free(self.spare)

    cdef Chunk* new_chunk(self) except NULL:
        """Adds a chunk for the next positions to the end of the directory."""
        cdef Chunk* chunk
        cdef size_t capacity
        cdef Chunk** grown
        if self.first + self.count == self.capacity:
            if self.first > self.capacity // 2:
                memmove(self.chunks, self.chunks + self.first, self.count * sizeof(Chunk*))
                self.first = 0
            else:
                capacity = self.capacity * 2 if self.capacity else 4
                grown = <Chunk**>realloc(self.chunks, capacity * sizeof(Chunk*))
                if grown is NULL:
                    raise MemoryError()
                self.chunks = grown
                self.capacity = capacity
        if self.spare is not NULL:
            chunk = self.spare
            self.spare = NULL
            memset(chunk, 0, sizeof(Chunk))
        else:
            chunk = <Chunk*>calloc(1, sizeof(Chunk))
            if chunk is NULL:
                raise MemoryError()
        if self.count == 0:
            self.first_number = self.next_position // CHUNK_SLOTS
        self.chunks[self.first + self.count] = chunk
        self.count += 1
        return chunk

    cdef int64_t append(self, Message message, int64_t expires_ms, bint ready) except -1:
        cdef uint64_t position = self.next_position
        cdef uint64_t number = position // CHUNK_SLOTS
        cdef Chunk* chunk
        cdef Slot* slot
        cdef int j = position % CHUNK_SLOTS
        if self.count == 0 or number >= self.first_number + self.count:
            chunk = self.new_chunk()
        else:
            chunk = self.chunks[self.first + self.count - 1]
        slot = &chunk.slots[j]
        Py_INCREF(message)
        slot.message = <PyObject*>message
        slot.expires_ms = expires_ms
        slot.returns = 0
        slot.redelivered = 0
        chunk.live += 1
        self.live += 1
        self.live_bytes += message.body_len
        self.next_position = position + 1
        if ready:
            chunk.ready_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
            chunk.ready += 1
            if self.ready == 0:
                self.hint = position
            self.ready += 1
            self.ready_bytes += message.body_len
        return <int64_t>position

    cdef int64_t first_ready(self) noexcept:
        """The lowest ready position, or -1."""
        cdef uint64_t number
        cdef size_t i
        cdef int word, start
        cdef uint64_t bits
        cdef Chunk* chunk
        if self.ready == 0:
            return -1
        number = self.hint // CHUNK_SLOTS
        start = self.hint % CHUNK_SLOTS
        if number < self.first_number:
            number = self.first_number
            start = 0
        for i in range(number - self.first_number, self.count):
            chunk = self.chunks[self.first + i]
            if chunk is not NULL and chunk.ready:
                for word in range(start >> 6, CHUNK_WORDS):
                    bits = chunk.ready_bits[word]
                    if word == start >> 6:
                        bits &= (~<uint64_t>0) << (start & 63)
                    if bits:
                        self.hint = ((self.first_number + i) * CHUNK_SLOTS
                                     + <uint64_t>(word * 64) + <uint64_t>ctz64(bits))
                        return <int64_t>self.hint
            start = 0
        return -1

    cdef Slot* at(self, uint64_t position) noexcept:
        """The slot of a live message; NULL when there is none."""
        cdef uint64_t number = position // CHUNK_SLOTS
        cdef Chunk* chunk
        if number < self.first_number or number >= self.first_number + self.count:
            return NULL
        chunk = self.chunk_of(position)
        if chunk is NULL or chunk.slots[position % CHUNK_SLOTS].message is NULL:
            return NULL
        return &chunk.slots[position % CHUNK_SLOTS]

    cdef void take(self, uint64_t position) noexcept:
        """A ready message goes out."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        chunk.ready_bits[j >> 6] &= ~((<uint64_t>1) << (j & 63))
        chunk.ready -= 1
        self.ready -= 1
        self.ready_bytes -= (<Message>chunk.slots[j].message).body_len
        if position == self.hint:
            self.hint = position + 1

    cdef void put_back(self, uint64_t position) noexcept:
        """A message that was out is ready again, at its old place."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        chunk.ready_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
        chunk.ready += 1
        if self.ready == 0 or position < self.hint:
            self.hint = position
        self.ready += 1
        self.ready_bytes += (<Message>chunk.slots[j].message).body_len

    cdef Message remove(self, uint64_t position):
        """A message that is out leaves for good."""
        cdef size_t i = self.first + <size_t>(position // CHUNK_SLOTS - self.first_number)
        cdef Chunk* chunk = self.chunks[i]
        cdef Slot* slot = &chunk.slots[position % CHUNK_SLOTS]
        cdef Message message = <Message>slot.message
        slot.message = NULL
        # `message` holds a reference of its own now; this one was the slot's.
        Py_XDECREF(<PyObject*>message)
        self.live -= 1
        self.live_bytes -= message.body_len
        chunk.live -= 1
        if chunk.live == 0:
            # The newest chunk is kept while it has room: more messages are coming to it.
            if i != self.first + self.count - 1 or self.next_position % CHUNK_SLOTS == 0:
                if self.spare is NULL:
                    self.spare = chunk
                else:
                    free(chunk)
                self.chunks[i] = NULL
                if i == self.first:
                    self.trim()
        return message

    cdef void trim(self) noexcept:
        """Forgets freed chunks at the old end."""
        while self.count and self.chunks[self.first] is NULL:
            self.first += 1
            self.first_number += 1
            self.count -= 1
        if self.count == 0:
            self.first = 0
