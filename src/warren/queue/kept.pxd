from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.queue.replica cimport Replicated
from warren.queue.slots cimport SlotLog

cdef enum:
    # How exact the times are at which messages came.
    TIME_MARK_MS = 100
    # delivery_mode of a message that is to survive a restart.
    PERSISTENT = 2

cdef inline uint64_t nothing_kept() noexcept:
    return ~<uint64_t>0


cdef class KeptBacklog(Replicated):
    cdef readonly object cursors       # of cursors.py; None: there never was one
    cdef readonly uint64_t kept_from   # what leaves from this position on is retained
    cdef int64_t marked_ms             # when the time was last noted
    cdef uint64_t known_end            # positions before it are on the disk
    cdef uint64_t alone_to             # positions before it came when there was no other replica
    cdef public str opening_drain      # a cursor that drains, once all replicas have heard of it
    cdef public bint in_batch          # publishes belong to a batch that is not committed yet
    cdef readonly uint64_t drained     # messages that a cursor acknowledged

    cdef inline bint must_log(self, Message message) noexcept:
        """Whether a durable queue logs it: all, once replicas or cursors are to have them alike."""
        return (message.delivery_mode == PERSISTENT or self.mirror is not None
                or self.kept_from != nothing_kept())
    cdef int keep(self, SlotLog log, uint64_t slot, Message message, int64_t expires_ms,
                  bint opened) except -1
    cdef int mark_time(self, int64_t now_ms) except -1
    cdef int drain_to(self, uint64_t end) except -1
    cdef int release_kept(self, uint64_t first, uint64_t end) except -1
    cdef uint64_t find_end(self) except? 0
    cdef list retained_runs(self)
    cdef int leave(self, SlotLog log, uint64_t position) except -1
    cdef bytes encode_kept(self)
    cdef int load_kept(self, bytes snapshot, size_t at) except -1
    cdef bytes encode_marks(self)
    cdef int load_marks(self, bytes snapshot, size_t at) except -1
