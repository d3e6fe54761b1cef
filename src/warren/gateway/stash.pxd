from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.gateway.messages cimport Incoming
from warren.gateway.unanswered cimport Sent
from warren.model.message cimport Message
from warren.model.ports cimport PublisherPort


cdef class StashRoom:
    cdef object open_file
    cdef readonly uint64_t limit
    cdef readonly size_t window      # bytes of publishes that stay in memory, for each home
    cdef size_t chunk                # what a file is given at a time
    cdef readonly uint64_t used      # bytes in the files of all stashes


cdef class Stash:
    cdef StashRoom room
    cdef readonly bint failing       # the disk has refused what was to be written last
    cdef object file                 # None: nothing of it is on the disk
    cdef readonly size_t count       # publishes in it
    cdef size_t chunks               # in the file
    cdef uint64_t written            # bytes in the file, also of what has been read again
    cdef uint8_t* tail               # the newest, not yet in the file
    cdef size_t tail_len
    cdef size_t tail_room
    cdef size_t newest               # where the newest record begins in the tail
    cdef Message newest_message      # what it is of; None: it is in the file, or read
    cdef bytes window                # the oldest, which are being read
    cdef size_t window_at
    cdef list publishers             # those that wait for an answer, by their number - 1
    cdef dict numbers                # of publishers
    cdef Incoming incoming

    cdef bint is_full(self) noexcept
    cdef bint put(self, Message message, uint32_t number, PublisherPort publisher, uint64_t tag,
                  uint64_t order) except -1
    cdef int put_entry(self, Sent* entry) except -1
    cdef int take(self, Sent* entry) except -1
    cdef int write_tail(self) except -1
    cdef bint joins(self, Message message, uint32_t number, uint32_t publisher,
                    uint64_t tag) except -1
    cdef uint32_t number_of(self, PublisherPort publisher) except? 0
    cdef int make_room(self, size_t n) except -1
    cdef int next_window(self) except -1
    cdef int clear(self) except -1
