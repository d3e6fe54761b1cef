from warren.model.ports cimport ConsumerPort


cdef class ConsumerRing:
    cdef list members      # highest priority first, then in order of becoming available
    cdef Py_ssize_t turn   # whose turn it is among the highest priority
    cdef Py_ssize_t top    # how many share the highest priority

    cdef int add(self, ConsumerPort consumer) except -1
    cdef int discard(self, ConsumerPort consumer) except -1
    cdef void measure_top(self) noexcept
    cdef inline Py_ssize_t size(self) noexcept:
        return len(self.members)
    cdef inline ConsumerPort next(self):
        """Whose turn it is; the ring must not be empty."""
        cdef Py_ssize_t i = self.turn
        self.turn = i + 1 if i + 1 < self.top else 0
        return <ConsumerPort>self.members[i]
