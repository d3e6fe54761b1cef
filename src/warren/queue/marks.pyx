"""When things came that have a number each: marks here and there, not a time for every one.

Messages of a queue have rising positions, operations of a ring rising indexes. A mark says that
from a number on everything came at a time, until the next mark. Who makes marks decides how close
they are. There are never more than a number of them: when they are too many, those go first that
make the least difference, measured by how old they are. So what is told is never too young, and
too old by a little only: by as much as marks are apart while they are few, later by some hundredths
of the age.

A mark may carry a size besides, which rises too: how many bytes there were before its number.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

UNKNOWN_MS = unknown_ms()

cdef enum:
    # Marks are thinned to this many quarters of the most there may be.
    QUARTERS_LEFT = 3
    # A mark may go when its neighbours are apart by this part of the age, or by more if need be.
    FINEST_PART = 32
    # Stamps are seconds in 27 bits, which is four years; they are taken for times up to so many
    # seconds behind the start of the node, or before that.
    STAMP_BITS = 27
    AHEAD_S = 31536000

    MARK_BYTES = 16


cdef uint32_t stamp_of(int64_t wall_ms) noexcept:
    """A time of the wall clock as records have it; never 0."""
    cdef uint32_t seconds = <uint32_t>((<uint64_t>(wall_ms // 1000))
                                       & (((<uint64_t>1) << STAMP_BITS) - 1))
    return (seconds if seconds else 1) << STAMP_SHIFT


cdef int64_t wall_of(uint32_t stamp, int64_t near_ms) noexcept:
    """The time by the wall clock that a stamp means, for a node that started at `near_ms`."""
    cdef int64_t latest = near_ms // 1000 + AHEAD_S
    cdef uint64_t back = ((<uint64_t>latest - (stamp >> STAMP_SHIFT))
                          & (((<uint64_t>1) << STAMP_BITS) - 1))
    return (latest - <int64_t>back) * 1000


def to_stamp(int64_t wall_ms):
    """`stamp_of`, for tests."""
    return stamp_of(wall_ms)


def from_stamp(uint32_t stamp, int64_t near_ms):
    """`wall_of`, for tests."""
    return wall_of(stamp, near_ms)


@cython.final
@cython.no_gc
cdef class Marks:
    """See the module's text."""

    def __cinit__(self, size_t most, bint sized=False):
        self.most = most
        self.sized = sized
        self.marks = NULL
        self.sizes = NULL

    def __dealloc__(self):
        free(self.marks)
        free(self.sizes)

    cdef int64_t newest_ms(self) noexcept:
        """Of the newest mark; UNKNOWN_MS when there is none."""
        return self.marks[self.count - 1].at_ms if self.count else unknown_ms()

    cdef size_t behind(self, uint64_t number) noexcept:
        """How many marks begin at a number or before it."""
        cdef size_t low = 0, high = self.count, middle
        if self.count and self.marks[self.count - 1].first <= number:
            return self.count
        while low < high:
            middle = (low + high) // 2
            if self.marks[middle].first <= number:
                low = middle + 1
            else:
                high = middle
        return low

    cpdef int note(self, uint64_t first, int64_t at_ms, uint64_t size=0) except -1:
        """From this number on it is that time. What is marked behind it was never so."""
        while self.count and self.marks[self.count - 1].first >= first:
            self.count -= 1
        if self.newest_ms() == at_ms:
            return 0
        self.make_room()
        self.marks[self.count].first = first
        self.marks[self.count].at_ms = at_ms
        if self.sized:
            self.sizes[self.count] = size
        self.count += 1
        return 0

    cpdef int insert(self, uint64_t first, int64_t at_ms) except -1:
        """As `note`, and what is marked behind it stays: it came later. Not where there are sizes.
        """
        cdef size_t i = self.behind(first)
        cdef int64_t before = self.marks[i - 1].at_ms if i else unknown_ms()
        if before == at_ms:
            return 0
        if i and self.marks[i - 1].first == first:
            self.marks[i - 1].at_ms = at_ms
            return 0
        if self.count == self.most:
            self.make_room()
            i = self.behind(first)
        else:
            self.make_room()
        memmove(self.marks + i + 1, self.marks + i, (self.count - i) * sizeof(Mark))
        self.marks[i].first = first
        self.marks[i].at_ms = at_ms
        self.count += 1
        return 0

    cpdef int64_t at(self, uint64_t number) noexcept:
        """When that came; UNKNOWN_MS where nobody knows."""
        cdef size_t i = self.behind(number)
        return self.marks[i - 1].at_ms if i else unknown_ms()

    cpdef uint64_t size_at(self, uint64_t number, uint64_t end, uint64_t end_size) noexcept:
        """The bytes before a number, as far as marks tell; `end_size` are those before `end`.

        Exact where there is a mark; in between it is taken to rise evenly.
        """
        cdef size_t i = self.behind(number)
        cdef uint64_t first = 0, size = 0
        if number >= end:
            return end_size
        if i < self.count:
            end, end_size = self.marks[i].first, self.sizes[i]
        if i:
            first, size = self.marks[i - 1].first, self.sizes[i - 1]
        elif self.count:
            # Older than anything that is known of.
            return self.sizes[0]
        if end <= first:
            return size
        return size + <uint64_t>(<double>(end_size - size) * <double>(number - first)
                                 / <double>(end - first))

    cpdef void forget_before(self, uint64_t number) noexcept:
        """Nobody asks for what came before that number any more."""
        cdef size_t i = self.behind(number)
        if i > 1:
            self.count -= i - 1
            memmove(self.marks, self.marks + i - 1, self.count * sizeof(Mark))
            if self.sized:
                memmove(self.sizes, self.sizes + i - 1, self.count * sizeof(uint64_t))

    cpdef void forget_from(self, uint64_t number) noexcept:
        """What has this number or a higher one has never been."""
        while self.count and self.marks[self.count - 1].first >= number:
            self.count -= 1

    cpdef void clear(self) noexcept:
        self.count = 0

    # -- room --------------------------------------------------------------------------------------

    cdef int make_room(self) except -1:
        """Room for one more."""
        cdef size_t room
        cdef void* grown
        cdef int part = FINEST_PART
        if self.count == self.most:
            while part >= 0 and self.count * 4 > self.most * QUARTERS_LEFT:
                self.count = self.thin(part)
                part = part * 3 // 4 if part else -1
        if self.count < self.room:
            return 0
        room = min(self.room * 2, self.most) if self.room else 2
        grown = realloc(self.marks, room * sizeof(Mark))
        if grown is NULL:
            raise MemoryError()
        self.marks = <Mark*>grown
        if self.sized:
            grown = realloc(self.sizes, room * sizeof(uint64_t))
            if grown is NULL:
                raise MemoryError()
            self.sizes = <uint64_t*>grown
        self.room = room
        return 0

    cdef size_t thin(self, int part) noexcept:
        """Drops marks that make little difference; how many are left. With 0: every second one."""
        cdef size_t i, kept = 1
        cdef int64_t newest_ms = self.newest_ms()
        for i in range(1, self.count):
            if i + 1 < self.count and self.may_go(kept - 1, i, part, newest_ms):
                continue
            self.marks[kept] = self.marks[i]
            if self.sized:
                self.sizes[kept] = self.sizes[i]
            kept += 1
        return kept

    cdef bint may_go(self, size_t before, size_t i, int part, int64_t newest_ms) noexcept:
        cdef int64_t old_ms = self.marks[before].at_ms, next_ms = self.marks[i + 1].at_ms
        if part == 0:
            return i & 1
        if (old_ms == unknown_ms() or next_ms == unknown_ms() or newest_ms == unknown_ms()
                or self.marks[i].at_ms == unknown_ms()):
            return False
        # A clock that went back leaves times that do not rise: those stay as long as there is room.
        return 0 <= next_ms - old_ms <= (newest_ms - old_ms) // part

    # -- keeping -----------------------------------------------------------------------------------

    def encode(self, int64_t offset_ms):
        """Number of marks (2), then each: its number (8), its time plus an offset, 0: unknown (8).
        """
        cdef size_t i
        cdef int64_t at_ms
        cdef bytearray out = bytearray(2 + self.count * MARK_BYTES)
        cdef char* p = out
        cdef uint32_t count = <uint32_t>self.count
        memcpy(p, &count, 2)
        p += 2
        for i in range(self.count):
            at_ms = self.marks[i].at_ms
            at_ms = 0 if at_ms == unknown_ms() else at_ms + offset_ms
            memcpy(p, &self.marks[i].first, 8)
            memcpy(p + 8, &at_ms, 8)
            p += MARK_BYTES
        return bytes(out)

    def load(self, bytes data not None, int64_t offset_ms):
        """As `encode` told it. ValueError when that cannot be."""
        cdef size_t size = <size_t>len(data), at
        cdef const char* p = data
        cdef uint64_t first
        cdef int64_t at_ms
        if size < 2 or size != 2 + MARK_BYTES * <size_t>int.from_bytes(data[:2], "little"):
            raise ValueError("marks of a queue are cut short")
        self.clear()
        for at in range(2, size, MARK_BYTES):
            memcpy(&first, p + at, 8)
            memcpy(&at_ms, p + at + 8, 8)
            if self.count and first <= self.marks[self.count - 1].first:
                raise ValueError("marks of a queue do not rise")
            self.note(first, at_ms - offset_ms if at_ms else unknown_ms())

    def rows(self):
        """(number, time) of each, for tests."""
        return [(self.marks[i].first, self.marks[i].at_ms) for i in range(self.count)]
