from libc.stdint cimport uint8_t, uint64_t

from warren.store.appender cimport Appender, Piece


cdef class LogWriter(Appender):
    cdef readonly str directory
    cdef object thread
    # the thread's own
    cdef int segment_fd
    cdef int directory_fd
    cdef size_t segment_used
    cdef size_t batch_bytes            # of the newest batch
    cdef size_t room_end               # how far room is set aside in the segment; 0: none is
    cdef size_t zeros_end              # how far blocks were written once, at least
    cdef uint64_t unlooked_bytes       # written since the free room was last looked at
    cdef readonly uint64_t free_bytes  # free room of the file system when last looked at
    cdef readonly int event_fd         # readable when `persisted` has moved or an error came

    cdef int run(self) noexcept nogil
    cdef int write_batch(self) noexcept nogil
    cdef int write_all(self, const uint8_t* data, size_t n) noexcept nogil
    cdef bint wants_zeros(self) noexcept nogil
    cdef void write_zeros(self) noexcept nogil
    cdef int end_segment(self) noexcept nogil
    cdef int open_segment(self, Piece* piece) noexcept nogil
    cdef void look_at_room(self) noexcept nogil
    cdef void tell(self) noexcept nogil
