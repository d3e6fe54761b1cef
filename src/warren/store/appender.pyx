"""The appending half of a log: records gather in a batch, each with its number and its place.

A place is `segment number << 32 | offset`: where the record will stand, known before it is written,
so that a message can be read back later. Which segment a record goes to is therefore decided here;
the writing half (`writer.LogWriter` with its thread, `stepped_log.SteppedLog` by the step) is told
by a mark in the record's header where a new segment begins.
"""

from libc.stdlib cimport free, realloc
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from warren.store.crc32c cimport crc32c
from warren.store.octets cimport load16, load32, load64, store16, store32, store64

import os

from warren.store.records import BATCH_RECORDS_MAX as _BATCH_RECORDS_MAX
from warren.store.records import FORMAT_VERSION, PAYLOAD_BYTES_MAX, SEGMENT_MAGIC

cdef enum:
    # In the place field of a header until it is sealed: a new segment begins with this record.
    OPENS_SEGMENT = 0xFFFF
    # A batch buffer that has grown beyond this is given back after use.
    BATCH_KEEP_BYTES = 8388608

cdef uint64_t BATCH_RECORDS_MAX = _BATCH_RECORDS_MAX
cdef size_t LENGTH_MAX = PAYLOAD_BYTES_MAX
cdef uint32_t VERSION = FORMAT_VERSION
cdef uint8_t MAGIC[8]
memcpy(MAGIC, <const char*>(<bytes>SEGMENT_MAGIC), 8)


cdef class Appender:
    """See the module's text."""

    def __cinit__(self, *_arguments, **_options):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.filled, NULL)
        self.has_mutex = True

    def begin(self, uint64_t next_sequence, size_t segment_bytes, uint32_t last_segment,
              uint32_t salt):
        """Where to go on: the number of the next record, and of the newest segment there is."""
        self.next_sequence = next_sequence
        self.persisted_sequence = next_sequence - 1
        self.segment_bytes = segment_bytes
        self.segment = self.writing_segment = last_segment
        self.persisted_end = (<uint64_t>last_segment + 1) << 32
        self.salt = salt

    def __dealloc__(self):
        if self.has_mutex:
            pthread_mutex_destroy(&self.mutex)
            pthread_cond_destroy(&self.filled)
        free(self.filling.data)
        free(self.writing.data)

    # -- appending ---------------------------------------------------------------------------------

    cdef uint64_t next_place(self, size_t n) noexcept:
        """Where a record of `n` bytes, header included, is going to stand if appended next."""
        if self.segment_end == 0 or (self.segment_end > SEGMENT_HEADER_BYTES
                                     and self.segment_end + n > self.segment_bytes):
            return (<uint64_t>self.segment + 1) << 32 | SEGMENT_HEADER_BYTES
        return <uint64_t>self.segment << 32 | self.segment_end

    cdef uint8_t* reserve(self, size_t n) except NULL:
        """Room for a record in the batch; takes the mutex, which `finish` gives back."""
        cdef size_t room
        cdef uint8_t* grown
        pthread_mutex_lock(&self.mutex)
        if self.error or self.stopping:
            pthread_mutex_unlock(&self.mutex)
            self.check()
            raise RuntimeError("the log is closed")
        if self.filling.length + n > self.filling.room:
            room = self.filling.room if self.filling.room else 65536
            while self.filling.length + n > room:
                room *= 2
            grown = <uint8_t*>realloc(self.filling.data, room)
            if grown is NULL:
                pthread_mutex_unlock(&self.mutex)
                raise MemoryError()
            self.filling.data = grown
            self.filling.room = room
        return self.filling.data + self.filling.length

    cdef uint64_t finish(self, uint8_t* header, int kind, int flags, uint32_t queue_id,
                         uint64_t epoch, uint32_t length) except 0:
        """The payload stands behind its header: number it and find its place."""
        cdef uint64_t sequence = self.next_sequence
        cdef size_t size = RECORD_HEADER_BYTES + <size_t>length
        cdef uint64_t place = self.next_place(size)
        cdef bint opens = <uint32_t>(place >> 32) != self.segment
        store32(header, 0)
        store32(header + 4, length)
        store64(header + 8, sequence)
        header[16] = <uint8_t>kind
        header[17] = <uint8_t>flags
        store16(header + 18, OPENS_SEGMENT if opens else 0)
        store32(header + 20, queue_id)
        store64(header + 24, epoch)
        self.segment = <uint32_t>(place >> 32)
        self.segment_end = <size_t>(place & 0xFFFFFFFF) + size
        self.next_sequence = sequence + 1
        self.filling.length += size
        pthread_mutex_unlock(&self.mutex)
        return sequence

    cdef int wake(self) except -1:
        """Something was appended: let it be written."""
        self.kick()
        return 0

    def kick(self):
        """Let what has gathered be written."""
        pthread_cond_signal(&self.filled)

    def append(self, int kind, bytes payload not None, int flags=0, uint32_t queue_id=0,
               uint64_t epoch=0):
        """Append a record; its sequence number. It is durable once `persisted` has reached that.

        Raises OSError when an earlier write or sync has failed, RuntimeError after `close`,
        ValueError for a payload longer than PAYLOAD_BYTES_MAX.
        """
        cdef size_t n = len(payload)
        if n > LENGTH_MAX:
            raise ValueError(f"a record of {n} bytes is longer than the log takes ({LENGTH_MAX})")
        cdef uint8_t* header = self.reserve(RECORD_HEADER_BYTES + n)
        memcpy(header + RECORD_HEADER_BYTES, <const uint8_t*>payload, n)
        cdef uint64_t sequence = self.finish(header, kind, flags, queue_id, epoch, <uint32_t>n)
        self.wake()
        return sequence

    def roll(self):
        """The next record begins a new segment."""
        self.segment_end = 0

    @property
    def persisted(self):
        """The newest sequence number that is on the disk with all before it."""
        pthread_mutex_lock(&self.mutex)
        cdef uint64_t value = self.persisted_sequence
        pthread_mutex_unlock(&self.mutex)
        return value

    @property
    def appended(self):
        """The newest sequence number given out."""
        pthread_mutex_lock(&self.mutex)
        cdef uint64_t value = self.next_sequence - 1
        pthread_mutex_unlock(&self.mutex)
        return value

    @property
    def pending_bytes(self):
        """How much waits in memory to be written."""
        pthread_mutex_lock(&self.mutex)
        cdef size_t value = self.filling.length
        pthread_mutex_unlock(&self.mutex)
        return value

    def statistics(self):
        """(batches synced, bytes of records written) so far."""
        pthread_mutex_lock(&self.mutex)
        cdef uint64_t batches = self.synced_batches, written = self.written_bytes
        pthread_mutex_unlock(&self.mutex)
        return batches, written

    @property
    def where(self):
        """What errors name as the place of the failure."""
        return "log"

    def check(self):
        """Raises OSError when a write or sync has failed."""
        if self.error:
            raise OSError(self.error, os.strerror(self.error), self.where)

    def close(self):
        """Write and sync what has gathered, then end. Raises as `check` does."""
        raise NotImplementedError

    # -- for the writing half ----------------------------------------------------------------------

    cdef bint take_batch(self) noexcept nogil:
        """Makes what has gathered the batch to be written; False when there is nothing.

        To be called with the mutex held.
        """
        cdef Batch empty
        if self.filling.length == 0:
            return False
        empty = self.writing
        self.writing = self.filling
        self.filling = empty
        self.writing_last = self.next_sequence - 1
        if self.segment_end == 0:
            # The next record begins a new segment: all of this one is in the batch.
            self.writing_end = (<uint64_t>self.segment + 1) << 32
        else:
            self.writing_end = <uint64_t>self.segment << 32 | self.segment_end
        return True

    cdef bint next_piece(self, uint8_t* start, Piece* piece) noexcept nogil:
        """Finds and seals the records from `start` on that one sync may cover; False at the end.

        Sealing fills in the place among the unsynced and the checksum.
        """
        cdef uint8_t* p = start
        cdef uint8_t* end = self.writing.data + self.writing.length
        cdef size_t size
        cdef uint64_t count = 0
        if p >= end:
            return False
        piece.data = start
        piece.first_sequence = load64(p + 8)
        piece.opens = load16(p + 18) == OPENS_SEGMENT
        if piece.opens:
            self.writing_segment += 1
        piece.segment = self.writing_segment
        while p < end and count < BATCH_RECORDS_MAX:
            if p != start and load16(p + 18) == OPENS_SEGMENT:
                break
            size = RECORD_HEADER_BYTES + <size_t>load32(p + 4)
            store16(p + 18, <uint16_t>count)
            store32(p, crc32c(self.salt, p + 4, size - 4))
            p += size
            count += 1
        piece.length = p - start
        return True

    cdef void batch_done(self, int failure) noexcept nogil:
        """The batch is on the disk, or never will be."""
        pthread_mutex_lock(&self.mutex)
        if failure:
            self.error = failure
        else:
            self.persisted_sequence = self.writing_last
            self.persisted_end = self.writing_end
            self.synced_batches += 1
            self.written_bytes += self.writing.length
        pthread_mutex_unlock(&self.mutex)
        self.writing.length = 0
        if self.writing.room > BATCH_KEEP_BYTES:
            free(self.writing.data)
            self.writing.data = NULL
            self.writing.room = 0

    cdef void encode_segment_header(self, uint8_t* header, Piece* piece) noexcept nogil:
        memset(header, 0, SEGMENT_HEADER_BYTES)
        memcpy(header, MAGIC, 8)
        store32(header + 8, VERSION)
        store32(header + 12, piece.segment)
        store64(header + 16, piece.first_sequence)
        store32(header + 24, self.salt)
        store32(header + 28, crc32c(0, header, 28))
