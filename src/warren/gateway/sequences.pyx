"""Sequence numbers in order: the few of many that something special became of."""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove


@cython.final
cdef class Sequences:
    """Mostly added at the end and forgotten from the beginning."""

    def __dealloc__(self):
        free(self.numbers)

    cdef int add(self, uint64_t number) except -1:
        cdef size_t room, i = self.count
        cdef uint64_t* grown
        while i and self.numbers[i - 1] > number:
            i -= 1
        if i and self.numbers[i - 1] == number:
            return 0
        if self.count == self.room:
            room = self.room * 2 if self.room else 16
            grown = <uint64_t*>realloc(self.numbers, room * sizeof(uint64_t))
            if grown is NULL:
                raise MemoryError()
            self.numbers = grown
            self.room = room
        memmove(self.numbers + i + 1, self.numbers + i, (self.count - i) * sizeof(uint64_t))
        self.numbers[i] = number
        self.count += 1
        return 0

    cdef void forget(self, uint64_t upto) noexcept:
        """Those up to a number are not needed any more."""
        cdef size_t n = 0
        while n < self.count and self.numbers[n] <= upto:
            n += 1
        if n:
            self.count -= n
            memmove(self.numbers, self.numbers + n, self.count * sizeof(uint64_t))

    cdef size_t above(self, uint64_t number) noexcept:
        """The index of the first above a number."""
        cdef size_t i = 0
        while i < self.count and self.numbers[i] <= number:
            i += 1
        return i
