"""Publisher confirms of a channel: a verdict for each publish, told when the disk has the message.

A publish that was written to the log carries the number of its record; it may be confirmed once the
log has come so far. One that went to queues on other nodes also waits for their answers. Publishes
of one turn that share a verdict are one run, told as one ack, so the client hears of them in order
and seldom; those that another node refused are told out of the middle of their run.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from warren.session.outlet cimport Outlet
from warren.wire.octets cimport store16, store32, store64


@cython.final
cdef class Confirms:
    """Every publish is acked or nacked exactly once, in order of publishing."""

    def __dealloc__(self):
        free(self.pending)
        free(self.refused)

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

    cdef int note(self, bint accepted, uint64_t mark, uint64_t parts, int64_t now_us) except -1:
        """The verdict on the next publish; `mark` is its record in the log, 0 for none.

        `parts` is how often `part_done` will be called for it.
        """
        cdef Pending* newest
        self.last += 1
        if self.count:
            newest = self.at(self.count - 1)
            if mark < newest.mark:
                mark = newest.mark
            if accepted and newest.accepted and newest.open:
                newest.last = self.last
                newest.mark = mark
                newest.parts += parts
                return 0
        if self.count == self.capacity:
            self.grow()
        newest = self.at(self.count)
        newest.last = self.last
        newest.mark = mark
        newest.parts = parts
        newest.began_us = now_us
        newest.accepted = accepted
        newest.open = True
        self.count += 1
        return 0

    cdef bint part_done(self, uint64_t tag, bint accepted) except -1:
        """Another node has answered for a publish; whether its run may be told now."""
        cdef size_t low = 0, high = self.count, middle
        cdef Pending* run
        while low < high:
            middle = (low + high) // 2
            if self.at(middle).last < tag:
                low = middle + 1
            else:
                high = middle
        if low == self.count or tag <= self.told:
            return False
        run = self.at(low)
        if run.parts:
            run.parts -= 1
        if not accepted and run.accepted:
            self.note_refused(tag)
        return run.parts == 0 and low == 0

    cdef int note_refused(self, uint64_t tag) except -1:
        cdef size_t i = self.refused_count, room
        cdef uint64_t* grown
        while i and self.refused[i - 1] > tag:
            i -= 1
        if i and self.refused[i - 1] == tag:
            return 0
        if self.refused_count == self.refused_room:
            room = self.refused_room * 2 if self.refused_room else 16
            grown = <uint64_t*>realloc(self.refused, room * sizeof(uint64_t))
            if grown is NULL:
                raise MemoryError()
            self.refused = grown
            self.refused_room = room
        memmove(self.refused + i + 1, self.refused + i,
                (self.refused_count - i) * sizeof(uint64_t))
        self.refused[i] = tag
        self.refused_count += 1
        return 0

    cdef size_t forget_refused(self, uint64_t last) noexcept:
        """How many were refused up to a publish; they stand at the front and are told next."""
        cdef size_t n = 0
        while n < self.refused_count and self.refused[n] <= last:
            n += 1
        self.refused_count -= n
        return n

    cdef int flush(self, Outlet outlet, int channel, uint64_t persisted) except -1:
        """The turn is over: tell the client of every run that the log has reached."""
        cdef Pending* oldest
        cdef uint64_t acked = 0, refused, timed = self.told
        cdef int64_t now_us = 0
        cdef size_t i, n
        while self.count and self.at(0).mark <= persisted and self.at(0).parts == 0:
            oldest = self.at(0)
            if now_us == 0:
                now_us = outlet.turn.present_us()
            outlet.turn.confirm_times.note(now_us - oldest.began_us, oldest.last - timed)
            timed = oldest.last
            if oldest.accepted:
                if self.refused_count:
                    n = self.forget_refused(oldest.last)
                    for i in range(n):
                        refused = self.refused[i]
                        if refused - 1 > self.told:
                            self.tell(outlet, channel, refused - 1, True, refused - 2 > self.told)
                        self.tell(outlet, channel, refused, False, False)
                        self.told = refused
                    memmove(self.refused, self.refused + n, self.refused_count * sizeof(uint64_t))
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
        outlet.frames_out += 1
        outlet.wrote()
        return 0

    def outstanding(self):
        """How many publishes wait for their verdict."""
        return self.last - self.told
