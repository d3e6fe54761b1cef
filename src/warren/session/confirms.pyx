"""Publisher confirms of a channel: verdicts in any order come in, runs of acks go out as one."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from warren.session.outlet cimport Outlet
from warren.wire.octets cimport store16, store32, store64


@cython.final
cdef class Confirms:
    """Every publish is acked or nacked exactly once, in order of publishing."""

    cdef int settle(self, uint64_t sequence, bint accepted, Outlet outlet, int channel) except -1:
        if sequence != self.settled + 1:
            if self.early is None:
                self.early = {}
            self.early[sequence] = accepted
            return 0
        while True:
            if not accepted:
                self.flush(outlet, channel)
                self.tell(outlet, channel, sequence, False, False)
                self.told = sequence
            self.settled = sequence
            if not self.early:
                return 0
            sequence += 1
            if sequence not in self.early:
                return 0
            accepted = self.early.pop(sequence)

    cdef int flush(self, Outlet outlet, int channel) except -1:
        """Tell the client of all acks that have gathered."""
        if self.settled > self.told:
            self.tell(outlet, channel, self.settled, True, self.settled > self.told + 1)
            self.told = self.settled
        return 0

    cdef int tell(self, Outlet outlet, int channel, uint64_t tag, bint accepted,
                  bint multiple) except -1:
        cdef uint8_t* p = outlet.output.reserve(21 + 8)
        p[0] = 1
        store16(p + 1, channel)
        store32(p + 3, 13)
        store16(p + 7, 60)
        store16(p + 9, 80 if accepted else 120)
        store64(p + 11, tag)
        p[19] = multiple
        p[20] = 0xCE
        outlet.output.end += 21
        outlet.wrote()
        return 0

    def outstanding(self):
        """How many publishes wait for their verdict."""
        return self.last - self.settled
