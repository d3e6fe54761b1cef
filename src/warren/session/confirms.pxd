from libc.stdint cimport uint64_t

from warren.session.outlet cimport Outlet


cdef class Confirms:
    cdef readonly uint64_t last        # sequence number of the newest publish
    cdef readonly uint64_t settled     # everything up to here has its verdict
    cdef readonly uint64_t told        # everything up to here has been told to the client
    cdef dict early                    # verdicts that came before an older one's

    cdef inline uint64_t begin(self) noexcept:
        self.last += 1
        return self.last
    cdef int settle(self, uint64_t sequence, bint accepted, Outlet outlet, int channel) except -1
    cdef int flush(self, Outlet outlet, int channel) except -1
    cdef int tell(self, Outlet outlet, int channel, uint64_t tag, bint accepted,
                  bint multiple) except -1
