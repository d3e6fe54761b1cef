from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.message cimport Message

cdef enum:
    CHUNK_SLOTS = 128
    CHUNK_WORDS = 2      # CHUNK_SLOTS / 64

cdef struct Slot:
    PyObject* message     # owned; NULL once the message has left the queue
    int64_t expires_ms    # 0: never
    uint32_t returns      # how often it was put back
    uint8_t redelivered

cdef struct Chunk:
    uint32_t ready
    uint32_t live
    uint64_t ready_bits[CHUNK_WORDS]
    Slot slots[CHUNK_SLOTS]


cdef class SlotLog:
    cdef Chunk** chunks
    cdef size_t capacity       # of the chunk directory
    cdef size_t first          # index in the directory of the oldest chunk kept
    cdef size_t count          # chunks in the directory from `first`
    cdef uint64_t first_number  # chunk number of that oldest chunk
    cdef uint64_t hint         # no position below this is ready
    cdef Chunk* spare
    cdef readonly uint64_t next_position
    cdef readonly uint64_t ready
    cdef readonly uint64_t live
    cdef readonly uint64_t ready_bytes
    cdef readonly uint64_t live_bytes

    cdef int64_t append(self, Message message, int64_t expires_ms, bint ready) except -1
    cdef int64_t first_ready(self) noexcept
    cdef inline Chunk* chunk_of(self, uint64_t position) noexcept:
        return self.chunks[self.first + <size_t>(position // CHUNK_SLOTS - self.first_number)]
    cdef Slot* at(self, uint64_t position) noexcept
    cdef void take(self, uint64_t position) noexcept
    cdef void put_back(self, uint64_t position) noexcept
    cdef Message remove(self, uint64_t position)
    cdef Chunk* new_chunk(self) except NULL
    cdef void trim(self) noexcept
