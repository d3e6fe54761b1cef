"""What a home remembers of one incarnation of a gateway: how far its publishes have been taken.

It outlives links, so that a publish that comes again on the next one is not taken twice and a
refusal that was lost with a link is told again. It lives as long as that incarnation may come back.
"""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove


@cython.final
cdef class GatewayRecord:
    """See the module's text."""

    def __dealloc__(self):
        free(self.waiting)
        free(self.refused)

    cdef Waiting* at(self, size_t i) noexcept:
        return &self.waiting[(self.head + i) & (self.capacity - 1)]

    cdef int start(self, object end, uint64_t session, uint64_t base) except -1:
        """A new link: the gateway has the answers up to `base`, or no longer wants them."""
        if session <= self.session:
            raise ValueError("the gateway has another link by now")
        self.session = session
        if self.current is not None:
            # Nobody has noticed yet that the link before this one is over.
            self.current.link_lost()
        self.current = end
        self.heard(base)
        if base > self.last:
            self.last = self.done = base
            self.count = 0
            self.head = 0
        return 0

    cdef int note(self, uint64_t mark, bint accepted) except -1:
        """The next publish was taken; `mark` is its record in the log, 0 for none."""
        cdef Waiting* newest
        self.last += 1
        if not accepted:
            self.note_refused()
        if self.count:
            newest = self.at(self.count - 1)
            if mark <= newest.mark:
                newest.last = self.last
                return 0
        return self.push(mark)

    cdef int note_refused(self) except -1:
        cdef size_t room
        cdef uint64_t* grown
        if self.refused_count == self.refused_room:
            room = self.refused_room * 2 if self.refused_room else 16
            grown = <uint64_t*>realloc(self.refused, room * sizeof(uint64_t))
            if grown is NULL:
                raise MemoryError()
            self.refused = grown
            self.refused_room = room
        self.refused[self.refused_count] = self.last
        self.refused_count += 1
        return 0

    cdef int push(self, uint64_t mark) except -1:
        cdef size_t capacity, i
        cdef Waiting* grown
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else 16
            grown = <Waiting*>malloc(capacity * sizeof(Waiting))
            if grown is NULL:
                raise MemoryError()
            for i in range(self.count):
                grown[i] = self.at(i)[0]
            free(self.waiting)
            self.waiting = grown
            self.capacity = capacity
            self.head = 0
        self.at(self.count).last = self.last
        self.at(self.count).mark = mark
        self.count += 1
        return 0

    cdef void advance(self, uint64_t persisted) noexcept:
        """The log has come so far."""
        while self.count and self.at(0).mark <= persisted:
            self.done = self.at(0).last
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1

    cdef void heard(self, uint64_t upto) noexcept:
        """The gateway knows of the refusals up to a sequence number."""
        cdef size_t n = 0
        while n < self.refused_count and self.refused[n] <= upto:
            n += 1
        self.refused_count -= n
        memmove(self.refused, self.refused + n, self.refused_count * sizeof(uint64_t))
