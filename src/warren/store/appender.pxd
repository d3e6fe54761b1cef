from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)

cdef enum:
    RECORD_HEADER_BYTES = 32
    SEGMENT_HEADER_BYTES = 32


cdef struct Batch:
    uint8_t* data
    size_t length
    size_t room


# The records of a batch that go to one segment with one sync.
cdef struct Piece:
    uint8_t* data
    size_t length
    bint opens                 # a new segment begins with it
    uint32_t segment           # ... with this number
    uint64_t first_sequence


cdef class Appender:
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t filled
    cdef bint has_mutex
    cdef readonly size_t segment_bytes
    cdef readonly uint32_t salt
    # the appending side's own
    cdef readonly uint32_t segment     # number of the segment that records are appended to
    cdef size_t segment_end            # where its next record goes; 0: the next one opens another
    # shared with the writing side, under the mutex
    cdef Batch filling                 # what is appended now
    cdef uint64_t next_sequence
    cdef uint64_t persisted_sequence
    cdef uint64_t persisted_end        # the place behind the last record that is on the disk
    cdef uint64_t synced_batches
    cdef uint64_t written_bytes
    cdef int error                     # errno of the failed write or sync; 0: none
    cdef bint stopping
    # the writing side's own
    cdef Batch writing
    cdef uint64_t writing_last         # sequence of the newest record in it
    cdef uint64_t writing_end          # the place behind that record
    cdef uint32_t writing_segment      # number of the segment that is being written

    cdef uint8_t* reserve(self, size_t n) except NULL
    cdef uint64_t finish(self, uint8_t* header, int kind, int flags, uint32_t queue_id,
                         uint64_t epoch, uint32_t length) except 0
    cdef uint64_t next_place(self, size_t n) noexcept
    cdef int wake(self) except -1
    cdef bint take_batch(self) noexcept nogil
    cdef bint next_piece(self, uint8_t* start, Piece* piece) noexcept nogil
    cdef void batch_done(self, int failure) noexcept nogil
    cdef void encode_segment_header(self, uint8_t* header, Piece* piece) noexcept nogil
