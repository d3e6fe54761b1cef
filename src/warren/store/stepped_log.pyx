"""A log on any files, written step by step: the writer without its thread.

Nothing happens by itself: `step` writes and syncs one batch, so a test or a simulator decides what
comes between an append and its sync. The bytes are those of `writer.LogWriter`.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.store.appender cimport (
    SEGMENT_HEADER_BYTES, Appender, Piece, pthread_mutex_lock, pthread_mutex_unlock,
)

import errno as error_numbers

from warren.store.records import segment_name


cdef class SteppedLog(Appender):
    """A `Log` on a disk that a test puts beneath; see `files.WritableFiles`."""

    def __init__(self, disk, uint64_t next_sequence=1, size_t segment_bytes=67108864,
                 uint32_t last_segment=0, uint32_t salt=0):
        self.disk = disk
        self.begin(next_sequence, segment_bytes, last_segment, salt)
        self.segment_name = ""

    def step(self):
        """Write and sync what has gathered. An error is kept for `check`; a PowerCut passes."""
        cdef bint any_taken
        if self.error:
            return
        pthread_mutex_lock(&self.mutex)
        any_taken = self.take_batch()
        pthread_mutex_unlock(&self.mutex)
        if not any_taken:
            return
        failure = 0
        try:
            self.write_batch()
        except OSError as error:
            failure = error.errno or error_numbers.EIO
        self.batch_done(failure)

    def write_batch(self):
        cdef Piece piece
        cdef uint8_t* at = self.writing.data
        cdef uint8_t header[SEGMENT_HEADER_BYTES]
        while self.next_piece(at, &piece):
            if piece.opens:
                self.end_segment()
                self.segment_name = segment_name(piece.first_sequence)
                self.segment_used = 0
                self.disk.create(self.segment_name)
                self.disk.reserve(self.segment_name, self.segment_bytes)
                self.disk.sync_names()
                self.encode_segment_header(header, &piece)
                self.write_all(header[:SEGMENT_HEADER_BYTES])
            self.write_all(piece.data[:piece.length])
            self.disk.sync(self.segment_name)
            at = piece.data + piece.length

    def write_all(self, bytes data not None):
        while data:
            written = self.disk.append(self.segment_name, data)
            self.segment_used += written
            data = data[written:]

    def end_segment(self):
        if self.segment_name:
            self.disk.truncate(self.segment_name, self.segment_used)
            self.disk.sync(self.segment_name)

    def fail(self, int error):
        """From here on the log behaves as after a failed write or sync."""
        self.error = error

    def close(self):
        """Write and sync what has gathered, then take no more. Raises as `check` does."""
        if not self.stopping:
            self.step()
            self.stopping = True
            if not self.error:
                try:
                    self.end_segment()
                except OSError as error:
                    self.error = error.errno or error_numbers.EIO
        self.check()
