"""What a home remembers of one incarnation of a gateway: how far its publishes have been taken.

It outlives links, so that a publish that comes again on the next one is not taken twice and a
refusal that was lost with a link is told again. It lives as long as that incarnation may come back.

It is the publisher of what goes to mirrored queues, which answer later. When such a queue leaves
this node, what it has not answered is elsewhere: the gateway sends it where the queue is.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from warren.gateway.sequences cimport Sequences
from warren.model.ports cimport PublisherPort


@cython.final
cdef class GatewayRecord(PublisherPort):
    """See the module's text."""

    def __cinit__(self):
        self.refused = Sequences()
        self.elsewhere = Sequences()
        self.turned_away = {}

    def __dealloc__(self):
        free(self.waiting)
        free(self.open)

    cdef Waiting* at(self, size_t i) noexcept:
        return &self.waiting[(self.head + i) & (self.capacity - 1)]

    cdef Open* open_at(self, size_t i) noexcept:
        return &self.open[(self.open_head + i) & (self.open_capacity - 1)]

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
            self.last = self.done = self.logged = base
            self.count = self.open_count = 0
            self.head = self.open_head = 0
        return 0

    cdef int note(self, uint64_t mark, bint accepted) except -1:
        """The next publish was taken; `mark` is its record in the log, 0 for none."""
        cdef Waiting* newest
        self.last += 1
        if not accepted:
            self.refused.add(self.last)
        if self.count:
            newest = self.at(self.count - 1)
            if mark <= newest.mark:
                newest.last = self.last
                return 0
        return self.push(mark)

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
            self.logged = self.at(0).last
            self.head = (self.head + 1) & (self.capacity - 1)
            self.count -= 1
        while self.open_count and not self.open_at(0).waits:
            self.open_head = (self.open_head + 1) & (self.open_capacity - 1)
            self.open_count -= 1
        self.done = self.logged
        if self.open_count and self.open_at(0).sequence <= self.logged:
            self.done = self.open_at(0).sequence - 1

    cdef void heard(self, uint64_t upto) noexcept:
        """The gateway knows of the refusals up to a sequence number."""
        self.refused.forget(upto)
        self.elsewhere.forget(upto)

    @property
    def refused_count(self):
        """Refusals that the gateway has not heard of, as far as is known."""
        return self.refused.count

    # -- queues that answer later ------------------------------------------------------------------

    cdef int note_open(self, uint32_t number, uint32_t attempt) except -1:
        """The newest publish has gone to a queue that will answer later."""
        if self.open_count == self.open_capacity:
            self.grow_open()
        self.open_at(self.open_count).sequence = self.last
        self.open_at(self.open_count).number = number
        self.open_at(self.open_count).attempt = attempt
        self.open_at(self.open_count).waits = True
        self.open_count += 1
        return 0

    cdef int grow_open(self) except -1:
        cdef size_t capacity = self.open_capacity * 2 if self.open_capacity else 16, i
        cdef Open* grown = <Open*>malloc(capacity * sizeof(Open))
        if grown is NULL:
            raise MemoryError()
        for i in range(self.open_count):
            grown[i] = self.open_at(i)[0]
        free(self.open)
        self.open = grown
        self.open_capacity = capacity
        self.open_head = 0
        return 0

    cdef int note_elsewhere(self, uint32_t number, uint32_t attempt) except -1:
        """The next publish is for a queue that is not here.

        So are all behind it until the gateway begins anew: none may overtake it.
        """
        self.turned_away[number] = attempt
        self.note(0, True)
        return self.elsewhere.add(self.last)

    cdef bint is_turned_away(self, uint32_t number, uint32_t attempt) except -1:
        """Whether an earlier publish of the same attempt was elsewhere."""
        if not self.turned_away:
            return False
        if self.turned_away.get(number, 0) >= attempt:
            return True
        self.turned_away.pop(number, None)
        return False

    cdef bint part_done(self, uint64_t tag, bint accepted) except -1:
        cdef size_t low = 0, high = self.open_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.open_at(middle).sequence < tag:
                low = middle + 1
            else:
                high = middle
        while low < self.open_count and not self.open_at(low).waits:
            low += 1
        if low == self.open_count or self.open_at(low).sequence != tag:
            # The queue left before it answered, and the gateway was told so.
            return False
        self.open_at(low).waits = False
        if not accepted:
            self.refused.add(tag)
        if self.due or self.current is None:
            return False
        self.due = True
        return True

    cdef int parts_over(self) except -1:
        self.due = False
        if self.current is not None:
            self.current.answer_now()
        return 0

    def queue_left(self, uint32_t number, bint tell=True):
        """The queue is here no more: what it has not answered is elsewhere."""
        cdef size_t i
        cdef Open* entry
        cdef bint found = False
        for i in range(self.open_count):
            entry = self.open_at(i)
            if entry.number != number or not entry.waits:
                continue
            entry.waits = False
            found = True
            if entry.attempt:
                self.elsewhere.add(entry.sequence)
                self.turned_away[number] = entry.attempt
            else:
                # Its gateway has nothing to send it again by.
                self.refused.add(entry.sequence)
        if self.current is not None:
            self.current.queue_left(number)
            if found and tell:
                self.current.answer_now()
