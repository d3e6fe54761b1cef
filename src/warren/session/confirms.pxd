from libc.stdint cimport int64_t, uint64_t

from warren.session.outlet cimport Outlet


# A run of publishes with one verdict, which may be told once the log has come so far and no answer
# from another node is missing.
cdef struct Pending:
    uint64_t last
    uint64_t mark
    int64_t began_us       # when the first of them came
    uint64_t parts         # answers that are still to come
    bint accepted
    bint open              # the next publish of the same turn may join it


cdef class Confirms:
    cdef readonly uint64_t last        # sequence number of the newest publish
    cdef readonly uint64_t told        # everything up to here has been told to the client
    cdef Pending* pending              # a ring; runs in order of publishing
    cdef size_t capacity
    cdef size_t head
    cdef readonly size_t count
    cdef uint64_t* refused             # of accepted runs: refused elsewhere, in order
    cdef size_t refused_room
    cdef size_t refused_count

    cdef Pending* at(self, size_t i) noexcept
    cdef int grow(self) except -1
    cdef int note(self, bint accepted, uint64_t mark, uint64_t parts, int64_t now_us) except -1
    cdef bint part_done(self, uint64_t tag, bint accepted) except -1
    cdef int note_refused(self, uint64_t tag) except -1
    cdef size_t forget_refused(self, uint64_t last) noexcept
    cdef int flush(self, Outlet outlet, int channel, uint64_t persisted) except -1
    cdef int tell(self, Outlet outlet, int channel, uint64_t tag, bint accepted,
                  bint multiple) except -1
