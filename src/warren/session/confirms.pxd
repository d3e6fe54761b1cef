from libc.stdint cimport uint64_t

from warren.session.outlet cimport Outlet


# A run of publishes with one verdict, which may be told once the log has come so far.
cdef struct Pending:
    uint64_t last
    uint64_t mark
    bint accepted
    bint open              # the next publish of the same turn may join it


cdef class Confirms:
    cdef readonly uint64_t last        # sequence number of the newest publish
    cdef readonly uint64_t told        # everything up to here has been told to the client
    cdef Pending* pending              # a ring; runs in order of publishing
    cdef size_t capacity
    cdef size_t head
    cdef readonly size_t count

    cdef Pending* at(self, size_t i) noexcept
    cdef int grow(self) except -1
    cdef int note(self, bint accepted, uint64_t mark) except -1
    cdef int flush(self, Outlet outlet, int channel, uint64_t persisted) except -1
    cdef int tell(self, Outlet outlet, int channel, uint64_t tag, bint accepted,
                  bint multiple) except -1
