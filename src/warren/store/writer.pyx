"""The thread that writes the log: whatever has gathered is written and synced in one go.

`append` copies a record into the batch being filled and returns its sequence number. The thread
takes the batch, fills in the checksums, writes, syncs, moves the `persisted` mark and rings
`event_fd`; what was appended meanwhile is the next batch. There is no timer: a lone append is
synced at once, and under load batches grow by themselves. The thread never holds the interpreter's
lock.

When it has nothing to do it writes zeros to the next stretch of the segment. A sync of what stands
on such blocks is over when the disk has them. Blocks that were only set aside must be noted as
written first: on ext4 a worker of the kernel does that, for which the sync waits, and so does a
commit of the file system's journal, if it has one.

A write or sync that fails is final. The mark stays where it is, `check` raises, and the process
must end: after a failed fdatasync nobody knows what is on the disk.
"""

cimport cython
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from warren.store.appender cimport (
    SEGMENT_HEADER_BYTES, Appender, Piece, pthread_cond_signal, pthread_cond_wait,
    pthread_mutex_lock, pthread_mutex_unlock,
)

import os
import threading

cdef extern from "<fcntl.h>" nogil:
    int c_openat "openat"(int directory, const char* name, int flags, int mode)
    int c_fallocate "fallocate"(int fd, int mode, long offset, long length)
    int c_sync_file_range "sync_file_range"(int fd, int64_t offset, int64_t n, unsigned int flags)
    unsigned int SYNC_FILE_RANGE_WRITE
    int O_CREAT
    int O_EXCL
    int O_WRONLY
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    ssize_t c_write "write"(int fd, const void* data, size_t n)
    ssize_t c_pwrite "pwrite"(int fd, const void* data, size_t n, long offset)
    int c_fdatasync "fdatasync"(int fd)
    int c_fsync "fsync"(int fd)
    int c_ftruncate "ftruncate"(int fd, long length)
    int c_close "close"(int fd)

cdef extern from "<sys/statvfs.h>" nogil:
    cdef struct c_statvfs "statvfs":
        unsigned long f_frsize
        unsigned long f_bavail
    int c_fstatvfs "fstatvfs"(int fd, c_statvfs* found)

cdef enum:
    # How much is written between two looks at the free room.
    LOOK_BYTES = 4194304
    # A segment's room is set aside only where this many more would fit.
    SPACIOUS_SEGMENTS = 16
    # So many zeros are written at a time, when fewer than the second number are ahead.
    ZEROS_BYTES = 262144
    ZEROS_LOW_BYTES = 65536
    # Not under load: what comes in larger batches would all be written twice.
    SMALL_BATCH_BYTES = 4096

cdef uint8_t ZEROS[ZEROS_BYTES]
memset(ZEROS, 0, ZEROS_BYTES)


@cython.final
cdef class LogWriter(Appender):
    """One log directory, appended to by the caller and written by a thread of its own."""

    def __init__(self, str directory not None, uint64_t next_sequence=1,
                 size_t segment_bytes=67108864, uint32_t last_segment=0, uint32_t salt=0):
        self.directory = directory
        self.begin(next_sequence, segment_bytes, last_segment, salt)
        self.segment_fd = -1
        self.event_fd = -1
        self.directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.look_at_room()
        self.thread = threading.Thread(target=self._run, name="warren-log", daemon=True)
        self.thread.start()

    @property
    def where(self):
        """What errors name as the place of the failure."""
        return self.directory

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

    def _run(self):
        with nogil:
            self.run()

    cdef int run(self) noexcept nogil:
        cdef int failure
        while True:
            pthread_mutex_lock(&self.mutex)
            while self.filling.length == 0 and not self.stopping:
                if self.wants_zeros():
                    pthread_mutex_unlock(&self.mutex)
                    self.write_zeros()
                    pthread_mutex_lock(&self.mutex)
                else:
                    pthread_cond_wait(&self.filled, &self.mutex)
            if not self.take_batch():
                pthread_mutex_unlock(&self.mutex)
                failure = self.end_segment()
                if failure:
                    self.error = failure
                return failure
            pthread_mutex_unlock(&self.mutex)
            failure = self.write_batch()
            self.batch_done(failure)
            self.tell()
            if failure:
                return failure

    cdef int write_batch(self) noexcept nogil:
        """Writes and syncs one batch, turning to a new segment where one begins."""
        cdef Piece piece
        cdef uint8_t* at = self.writing.data
        cdef int failure = 0
        self.batch_bytes = self.writing.length
        while self.next_piece(at, &piece):
            if piece.opens:
                failure = self.open_segment(&piece)
            if failure == 0:
                failure = self.write_all(piece.data, piece.length)
            if failure == 0 and c_fdatasync(self.segment_fd) != 0:
                failure = errno
            if failure:
                return failure
            at = piece.data + piece.length
        self.unlooked_bytes += self.writing.length
        if self.unlooked_bytes > LOOK_BYTES:
            self.look_at_room()
        return 0

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

    cdef bint wants_zeros(self) noexcept nogil:
        """Whether little is left that small batches can be written over."""
        return (self.segment_fd >= 0 and self.batch_bytes <= SMALL_BATCH_BYTES
                and self.zeros_end < self.room_end
                and self.zeros_end < self.segment_used + ZEROS_LOW_BYTES)

    cdef void write_zeros(self) noexcept nogil:
        """The next stretch of the room that was set aside becomes blocks that were written once.

        It is of use only, so a failure ends no more than that. The disk is given the zeros at once,
        and nobody waits for them; if it fails to write them, the next sync says so.
        """
        cdef size_t start = max(self.zeros_end, self.segment_used)
        cdef size_t n
        if start >= self.room_end:
            self.zeros_end = self.room_end
            return
        n = min(<size_t>ZEROS_BYTES, self.room_end - start)
        if c_pwrite(self.segment_fd, ZEROS, n, <long>start) != <ssize_t>n:
            self.room_end = 0
            return
        self.zeros_end = start + n
        c_sync_file_range(self.segment_fd, <int64_t>start, <int64_t>n, SYNC_FILE_RANGE_WRITE)

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

    cdef int open_segment(self, Piece* piece) noexcept nogil:
        """Ends the current segment and begins the next; its name is durable before its records."""
        cdef char name[32]
        cdef uint8_t header[SEGMENT_HEADER_BYTES]
        cdef int failure = self.end_segment()
        if failure:
            return failure
        snprintf(name, 32, "%016llx.wal", <unsigned long long>piece.first_sequence)
        self.segment_fd = c_openat(self.directory_fd, name,
                                   O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0o640)
        if self.segment_fd < 0:
            return errno
        self.encode_segment_header(header, piece)
        self.segment_used = self.zeros_end = self.room_end = 0
        self.look_at_room()
        # A sync is a third faster when it need not record that the file has grown. Where there is
        # no support for that the writes themselves will tell, and where room is short the log must
        # not be what takes the last of it.
        if self.free_bytes > self.segment_bytes * SPACIOUS_SEGMENTS:
            if c_fallocate(self.segment_fd, 0, 0, <long>self.segment_bytes) == 0:
                self.room_end = self.segment_bytes
        if c_fsync(self.directory_fd) != 0:
            return errno
        return self.write_all(header, SEGMENT_HEADER_BYTES)

    cdef void look_at_room(self) noexcept nogil:
        cdef c_statvfs found
        self.unlooked_bytes = 0
        if c_fstatvfs(self.directory_fd, &found) == 0:
            self.free_bytes = <uint64_t>found.f_frsize * found.f_bavail

    cdef void tell(self) noexcept nogil:
        cdef uint64_t one = 1
        c_write(self.event_fd, &one, 8)
