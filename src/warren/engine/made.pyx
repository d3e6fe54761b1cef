"""When the operations of a ring were made, and how many bytes they are: what a lag is measured by.

Of a log that came from another node it is when they came here. What was in the log at the start of
the node has no time.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from warren.model.ports cimport TurnClock
from warren.queue.marks cimport MADE_MARKS_MAX, Marks, unknown_ms


@cython.final
cdef class Made:
    """See the module's text."""

    def __init__(self):
        self.marks = Marks(MADE_MARKS_MAX, True)

    cdef int note(self, uint64_t first, uint64_t size, TurnClock turn) except -1:
        """A batch that begins with an index is there from now on."""
        if turn is not None:
            self.marks.note(first, turn.now_ms, self.size)
        self.size += size
        return 0

    cdef int cut(self, uint64_t after, uint64_t last) except -1:
        """Of the operations up to `last`, those above an index are forgotten."""
        self.size = self.marks.size_at(after + 1, last + 1, self.size)
        self.marks.forget_from(after + 1)
        return 0

    cdef int clear(self) except -1:
        self.marks.clear()
        self.size = 0
        return 0

    cdef bint is_full(self) noexcept:
        return self.marks.count == self.marks.most

    cdef int all_have(self, uint64_t position) except -1:
        """Nobody lags further behind than this."""
        self.marks.forget_before(position + 1)
        return 0

    def lag_behind(self, uint64_t position, uint64_t last, int64_t now_ms):
        """(bytes, milliseconds) of what a replica lacks that has all up to a position, of `last`.

        The time is that since the first of them was made. None: it is not known.
        """
        cdef int64_t at_ms = self.marks.at(position + 1)
        if position >= last:
            return 0, 0
        if at_ms == unknown_ms():
            return None, None
        return (self.size - self.marks.size_at(position + 1, last + 1, self.size),
                max(now_ms - at_ms, <int64_t>0))
