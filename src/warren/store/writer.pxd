from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


cdef struct Batch:
    uint8_t* data
    size_t length
    size_t room


cdef class LogWriter:
    cdef readonly str directory
    cdef bytes directory_path
    cdef object thread
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t filled
    cdef bint has_mutex
    # shared with the thread, under the mutex
    cdef Batch filling             # what is appended now
    cdef uint64_t next_sequence
    cdef uint64_t persisted_sequence
    cdef uint64_t synced_batches
    cdef uint64_t written_bytes
    cdef int error                 # errno of the failed write or sync; 0: none
    cdef bint stopping
    # the thread's own
    cdef Batch writing
    cdef int segment_fd
    cdef int directory_fd
    cdef size_t segment_used
    cdef readonly size_t segment_bytes
    cdef readonly int event_fd     # readable when `persisted` has moved or an error came

    cdef uint8_t* reserve(self, size_t n) except NULL
    cdef uint64_t finish(self, uint8_t* header, int kind, int flags, uint32_t queue_id,
                         uint64_t epoch, uint32_t length) except 0
    cdef int run(self) noexcept nogil
    cdef int write_batch(self) noexcept nogil
    cdef int write_all(self, const uint8_t* data, size_t n) noexcept nogil
    cdef int end_segment(self) noexcept nogil
    cdef int open_segment(self, uint64_t first_sequence) noexcept nogil
    cdef void tell(self) noexcept nogil
