"""Deliveries that are out, by number: a hash table of numbers that makes no objects.

Open addressing with linear probing; what stands behind a removed place moves up, so there are no
tombstones and a table that is used for months stays as fast as a new one.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    FIRST_CAPACITY = 16
    FIRST_SHIFT = 60
    # A table that was once longer than this is given back when it is empty.
    KEEP_CAPACITY = 4096

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15


@cython.final
cdef class SlotMap:
    """Keys and values are any numbers, but no value is 0."""

    def __dealloc__(self):
        free(self.places)

    cdef size_t home_of(self, uint64_t key) noexcept:
        return <size_t>((key * SPREAD) >> self.shift)

    cdef int put(self, uint64_t key, uint64_t value) except -1:
        cdef size_t i
        if (self.count + 1) * 4 > self.capacity * 3:
            self.grow()
        i = self.home_of(key)
        while self.places[i].value and self.places[i].key != key:
            i = (i + 1) & (self.capacity - 1)
        if self.places[i].value == 0:
            self.count += 1
        self.places[i].key = key
        self.places[i].value = value
        return 0

    cdef uint64_t pop(self, uint64_t key) noexcept:
        """The value, removed; 0 when there is none."""
        cdef size_t i, hole, mask = self.capacity - 1
        cdef uint64_t value
        if self.count == 0:
            return 0
        i = self.home_of(key)
        while self.places[i].value and self.places[i].key != key:
            i = (i + 1) & mask
        value = self.places[i].value
        if value == 0:
            return 0
        self.count -= 1
        hole = i
        while True:
            i = (i + 1) & mask
            if self.places[i].value == 0:
                break
            # One that is at home between the hole and here would not be found across the hole.
            if ((i - self.home_of(self.places[i].key)) & mask) >= ((i - hole) & mask):
                self.places[hole] = self.places[i]
                hole = i
        self.places[hole].value = 0
        if self.count == 0 and self.capacity > KEEP_CAPACITY:
            self.clear()
        return value

    cdef int grow(self) except -1:
        cdef Place* old = self.places
        cdef size_t old_capacity = self.capacity, i, j
        cdef size_t capacity = old_capacity * 2 if old_capacity else FIRST_CAPACITY
        cdef Place* grown = <Place*>calloc(capacity, sizeof(Place))
        if grown is NULL:
            raise MemoryError()
        self.shift = self.shift - 1 if old_capacity else FIRST_SHIFT
        self.places = grown
        self.capacity = capacity
        for i in range(old_capacity):
            if old[i].value:
                j = self.home_of(old[i].key)
                while grown[j].value:
                    j = (j + 1) & (capacity - 1)
                grown[j] = old[i]
        free(old)
        return 0

    cdef void clear(self) noexcept:
        if self.capacity > KEEP_CAPACITY:
            free(self.places)
            self.places = NULL
            self.capacity = 0
        elif self.capacity:
            memset(self.places, 0, self.capacity * sizeof(Place))
        self.count = 0

    cdef uint32_t count_of(self, uint64_t value) noexcept:
        """How many keys have a value."""
        cdef size_t i
        cdef uint32_t found = 0
        for i in range(self.capacity if self.count else 0):
            found += self.places[i].value == value
        return found

    def insert(self, uint64_t key, uint64_t value):
        """`put` for Python callers."""
        self.put(key, value)

    def remove(self, uint64_t key):
        """`pop` for Python callers."""
        return self.pop(key)

    def keys(self):
        cdef size_t i
        return sorted([self.places[i].key for i in range(self.capacity) if self.places[i].value])

    def __len__(self):
        return self.count
