"""Publisher confirms of a channel: a verdict for each publish, told when the disk has the message.

A publish that was written to the log carries the number of its record; it may be confirmed once the
log has come so far. Publishes of one turn that share a verdict are one run, told as one ack, so the
client hears of them in order and seldom.
"""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from warren.session.outlet cimport Outlet
from warren.wire.octets cimport store16, store32, store64


@cython.final
cdef class Confirms:
    """Every publish is acked or nacked exactly once, in order of publishing."""

    def __dealloc__(self):
        free(self.pending)

    cdef Pending* at(self, size_t i) noexcept:
        return &self.pending[(self.head + i) & (self.capacity - 1)]

    cdef int grow(self) except -1:
        cdef size_t capacity = self.capacity * 2 if self.capacity else 8, i
        cdef Pending* grown = <Pending*>malloc(capacity * sizeof(Pending))
        if grown is NULL:
            raise MemoryError()
        for i in range(self.count):
            grown[i] = self.at(i)[0]
        free(self.pending)
        self.pending = grown
        self.capacity = capacity
        self.head = 0
        return 0

    cdef int note(self, bint accepted, uint64_t mark) except -1:
        """The verdict on the next publish; `mark` is its record in the log, 0 for none."""
        cdef Pending* newest
        self.last += 1
        if self.count:
            newest = self.at(self.count - 1)
            if mark < newest.mark:
                mark = newest.mark
            if accepted and newest.accepted and newest.open:
                newest.last = self.last
                newest.mark = mark
                return 0
        if self.count == self.capacity:
            self.grow()
        newest = self.at(self.count)
        newest.last = self.last
        newest.mark = mark
        newest.accepted = accepted
        newest.open = True
        self.count += 1
        return 0

    cdef int flush(self, Outlet outlet, int channel, uint64_t persisted) except -1:
        """The turn is over: tell the client of every run that the log has reached."""
        cdef Pending* oldest
        cdef uint64_t acked = 0
        while self.count and self.at(0).mark <= persisted:
            oldest = self.at(0)
            if oldest.accepted:
                acked = oldest.last
            else:
                if acked > self.told:
                    self.tell(outlet, channel, acked, True, acked > self.told + 1)
                self.tell(outlet, channel, oldest.last, False, False)
                self.told = oldest.last
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
        if acked > self.told:
            self.tell(outlet, channel, acked, True, acked > self.told + 1)
            self.told = acked
        if self.count:
            self.at(self.count - 1).open = False
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
        return self.last - self.told
