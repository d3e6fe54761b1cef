"""The thread that writes the log: whatever has gathered is written and synced in one go.

`append` copies a record into the batch being filled and returns its sequence number. The thread
takes the batch, fills in the checksums, writes, syncs, moves the `persisted` mark and rings
`event_fd`; what was appended meanwhile is the next batch. There is no timer: a lone append is
synced at once, and under load batches grow by themselves. The thread never holds the interpreter's
lock.

A write or sync that fails is final. The mark stays where it is, `check` raises, and the process
must end: after a failed fdatasync nobody knows what is on the disk.
"""

cimport cython
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from warren.store.crc32c cimport crc32c

import os
import threading

from warren.store.records import FORMAT_VERSION, PAYLOAD_BYTES_MAX, SEGMENT_MAGIC

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)

cdef extern from "<fcntl.h>" nogil:
    int c_openat "openat"(int directory, const char* name, int flags, int mode)
    int c_fallocate "fallocate"(int fd, int mode, long offset, long length)
    int O_CREAT
    int O_EXCL
    int O_WRONLY
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t c_write "write"(int fd, const void* data, size_t n)
    int c_fdatasync "fdatasync"(int fd)
    int c_fsync "fsync"(int fd)
    int c_ftruncate "ftruncate"(int fd, long length)
    int c_close "close"(int fd)

cdef enum:
    RECORD_HEADER_BYTES = 32
    SEGMENT_HEADER_BYTES = 32
    # Between two syncs; a record's place among the unsynced has 16 bits.
    BATCH_RECORDS_MAX = 65536
    # A batch buffer that has grown beyond this is given back after use.
    BATCH_KEEP_BYTES = 8388608


cdef void store16(uint8_t* p, uint16_t v) noexcept nogil:
    memcpy(p, &v, 2)


cdef void store32(uint8_t* p, uint32_t v) noexcept nogil:
    memcpy(p, &v, 4)


cdef void store64(uint8_t* p, uint64_t v) noexcept nogil:
    memcpy(p, &v, 8)


cdef uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


@cython.final
cdef class LogWriter:
    """One log directory, appended to by the caller and written by a thread of its own."""

    def __init__(self, str directory not None, uint64_t next_sequence=1,
                 size_t segment_bytes=67108864):
        self.directory = directory
        self.directory_path = os.fsencode(directory)
        self.next_sequence = next_sequence
        self.persisted_sequence = next_sequence - 1
        self.segment_bytes = segment_bytes
        self.segment_fd = -1
        self.event_fd = -1
        self.directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.filled, NULL)
        self.has_mutex = True
        self.thread = threading.Thread(target=self._run, name="warren-log", daemon=True)
        self.thread.start()

    def __dealloc__(self):
        if self.has_mutex:
            pthread_mutex_destroy(&self.mutex)
            pthread_cond_destroy(&self.filled)
        free(self.filling.data)
        free(self.writing.data)

    # -- the appending side ------------------------------------------------------------------------

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
        """The payload stands behind its header: number it and wake the thread."""
        cdef uint64_t sequence = self.next_sequence
        store32(header, 0)
        store32(header + 4, length)
        store64(header + 8, sequence)
        header[16] = <uint8_t>kind
        header[17] = <uint8_t>flags
        header[18] = header[19] = 0
        store32(header + 20, queue_id)
        store64(header + 24, epoch)
        self.next_sequence = sequence + 1
        self.filling.length += RECORD_HEADER_BYTES + <size_t>length
        pthread_cond_signal(&self.filled)
        pthread_mutex_unlock(&self.mutex)
        return sequence

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
        return self.finish(header, kind, flags, queue_id, epoch, <uint32_t>n)

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
        """(batches synced, bytes written) so far."""
        pthread_mutex_lock(&self.mutex)
        cdef uint64_t batches = self.synced_batches, written = self.written_bytes
        pthread_mutex_unlock(&self.mutex)
        return batches, written

    def check(self):
        """Raises OSError when a write or sync has failed."""
        if self.error:
            raise OSError(self.error, os.strerror(self.error), self.directory)

    def close(self):
        """Write and sync what has gathered, then end the thread. Raises as `check` does."""
        pthread_mutex_lock(&self.mutex)
        self.stopping = True
        pthread_cond_signal(&self.filled)
        pthread_mutex_unlock(&self.mutex)
        self.thread.join()
        for fd in (self.segment_fd, self.directory_fd, self.event_fd):
            if fd >= 0:
                os.close(fd)
        self.segment_fd = self.directory_fd = self.event_fd = -1
        self.check()

    # -- the writing side --------------------------------------------------------------------------

    def _run(self):
        with nogil:
            self.run()

    cdef int run(self) noexcept nogil:
        cdef Batch empty
        cdef uint64_t last
        cdef int failure
        while True:
            pthread_mutex_lock(&self.mutex)
            while self.filling.length == 0 and not self.stopping:
                pthread_cond_wait(&self.filled, &self.mutex)
            if self.filling.length == 0:
                pthread_mutex_unlock(&self.mutex)
                failure = self.end_segment()
                if failure:
                    self.error = failure
                return failure
            empty = self.writing
            self.writing = self.filling
            self.filling = empty
            last = self.next_sequence - 1
            pthread_mutex_unlock(&self.mutex)
            failure = self.write_batch()
            pthread_mutex_lock(&self.mutex)
            if failure:
                self.error = failure
            else:
                self.persisted_sequence = last
                self.synced_batches += 1
                self.written_bytes += self.writing.length
            pthread_mutex_unlock(&self.mutex)
            self.writing.length = 0
            if self.writing.room > BATCH_KEEP_BYTES:
                free(self.writing.data)
                self.writing.data = NULL
                self.writing.room = 0
            self.tell()
            if failure:
                return failure

    cdef int write_batch(self) noexcept nogil:
        """Checksums, writes and syncs one batch, turning to a new segment where one is full."""
        cdef uint8_t* p = self.writing.data
        cdef uint8_t* end = p + self.writing.length
        cdef uint8_t* start = p
        cdef size_t size, used
        cdef uint64_t synced = load64(p + 8) - 1   # whatever stands before this batch
        cdef int failure
        while p < end:
            size = RECORD_HEADER_BYTES + <size_t>load32(p + 4)
            used = self.segment_used + (p - start)
            if self.segment_fd < 0 or (used > SEGMENT_HEADER_BYTES
                                       and used + size > self.segment_bytes):
                failure = self.write_all(start, p - start)
                if failure == 0:
                    failure = self.open_segment(load64(p + 8))
                if failure:
                    return failure
                start = p
                synced = load64(p + 8) - 1
            elif load64(p + 8) - synced > BATCH_RECORDS_MAX:
                failure = self.write_all(start, p - start)
                if failure == 0 and c_fdatasync(self.segment_fd) != 0:
                    failure = errno
                if failure:
                    return failure
                start = p
                synced = load64(p + 8) - 1
            store16(p + 18, <uint16_t>(load64(p + 8) - synced - 1))
            store32(p, crc32c(0, p + 4, size - 4))
            p += size
        failure = self.write_all(start, end - start)
        if failure == 0 and c_fdatasync(self.segment_fd) != 0:
            failure = errno
        return failure

    cdef int write_all(self, const uint8_t* data, size_t n) noexcept nogil:
        cdef ssize_t written
        self.segment_used += n
        while n:
            written = c_write(self.segment_fd, data, n)
            if written < 0:
                if errno == EINTR:
                    continue
                return errno
            if written == 0:
                return EIO
            data += written
            n -= written
        return 0

    cdef int end_segment(self) noexcept nogil:
        """Gives back the room that was not used, and syncs."""
        cdef int failure = 0
        if self.segment_fd < 0:
            return 0
        if c_ftruncate(self.segment_fd, <long>self.segment_used) != 0:
            failure = errno
        elif c_fdatasync(self.segment_fd) != 0:
            failure = errno
        c_close(self.segment_fd)
        self.segment_fd = -1
        return failure

    cdef int open_segment(self, uint64_t first_sequence) noexcept nogil:
        """Ends the current segment and begins the next; its name is durable before its records."""
        cdef char name[32]
        cdef uint8_t header[SEGMENT_HEADER_BYTES]
        cdef int failure = self.end_segment()
        if failure:
            return failure
        snprintf(name, 32, "%016llx.wal", <unsigned long long>first_sequence)
        self.segment_fd = c_openat(self.directory_fd, name,
                                   O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0o640)
        if self.segment_fd < 0:
            return errno
        memset(header, 0, SEGMENT_HEADER_BYTES)
        memcpy(header, MAGIC, 8)
        store32(header + 8, VERSION)
        store64(header + 16, first_sequence)
        store32(header + 28, crc32c(0, header, 28))
        self.segment_used = 0
        # A sync is a third faster when it need not record that the file has grown. Where there is
        # no room for that, or no support, the writes themselves will tell.
        c_fallocate(self.segment_fd, 0, 0, <long>self.segment_bytes)
        if c_fsync(self.directory_fd) != 0:
            return errno
        return self.write_all(header, SEGMENT_HEADER_BYTES)

    cdef void tell(self) noexcept nogil:
        cdef uint64_t one = 1
        c_write(self.event_fd, &one, 8)


cdef uint8_t MAGIC[8]
memcpy(MAGIC, <const char*>(<bytes>SEGMENT_MAGIC), 8)
cdef uint32_t VERSION = FORMAT_VERSION
cdef size_t LENGTH_MAX = PAYLOAD_BYTES_MAX
