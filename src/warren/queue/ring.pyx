"""The consumers of a queue that can take a message now, in turn, highest priority first."""

cimport cython

from warren.model.ports cimport ConsumerPort


@cython.final
cdef class ConsumerRing:
    """Round-robin inside the highest priority present; lower ones wait until those are busy."""

    def __cinit__(self):
        self.members = []

    cdef void measure_top(self) noexcept:
        cdef Py_ssize_t n = len(self.members), i = 0
        cdef int priority
        if n:
            priority = (<ConsumerPort>self.members[0]).priority
            # The usual case, all alike, is seen at once from the last one.
            if (<ConsumerPort>self.members[n - 1]).priority == priority:
                i = n
            else:
                while (<ConsumerPort>self.members[i]).priority == priority:
                    i += 1
        self.top = i
        if self.turn >= self.top:
            self.turn = 0

    cdef int add(self, ConsumerPort consumer) except -1:
        cdef Py_ssize_t i = len(self.members)
        if consumer.available:
            return 0
        consumer.available = True
        while i > 0 and (<ConsumerPort>self.members[i - 1]).priority < consumer.priority:
            i -= 1
        self.members.insert(i, consumer)
        self.measure_top()
        return 0

    cdef int discard(self, ConsumerPort consumer) except -1:
        cdef Py_ssize_t i
        if not consumer.available:
            return 0
        consumer.available = False
        for i in range(len(self.members)):
            if self.members[i] is consumer:
                del self.members[i]
                if i < self.turn:
                    self.turn -= 1
                self.measure_top()
                return 0
        return 0
