from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    # How exact the times are at which messages have come.
    MARK_EVERY_MS = 1000
    # Marks of a queue, and of a ring's operations: some kilobytes.
    ARRIVAL_MARKS_MAX = 256
    MADE_MARKS_MAX = 128
    # Where a record says when its message has come: see docs/internals/wal-format.md.
    STAMP_SHIFT = 5

cdef struct Mark:
    uint64_t first    # holds from this number on
    int64_t at_ms     # UNKNOWN_MS: nobody knows

cdef inline int64_t unknown_ms() noexcept:
    return -((<int64_t>1) << 62)

cdef inline uint32_t stamp_in(uint32_t flags) noexcept:
    """Of the flags of a target, the time: 0 where none is told."""
    return flags & ~<uint32_t>31

cdef uint32_t stamp_of(int64_t wall_ms) noexcept
cdef int64_t wall_of(uint32_t stamp, int64_t near_ms) noexcept


cdef class Marks:
    cdef Mark* marks
    cdef uint64_t* sizes     # NULL: sizes are not wanted
    cdef size_t room
    cdef readonly size_t count
    cdef readonly size_t most
    cdef bint sized

    cpdef int note(self, uint64_t first, int64_t at_ms, uint64_t size=*) except -1
    cpdef int insert(self, uint64_t first, int64_t at_ms) except -1
    cpdef int64_t at(self, uint64_t number) noexcept
    cpdef uint64_t size_at(self, uint64_t number, uint64_t end, uint64_t end_size) noexcept
    cpdef void forget_before(self, uint64_t number) noexcept
    cpdef void forget_from(self, uint64_t number) noexcept
    cpdef void clear(self) noexcept
    cdef size_t behind(self, uint64_t number) noexcept
    cdef int make_room(self) except -1
    cdef size_t thin(self, int part) noexcept
    cdef int64_t newest_ms(self) noexcept
    cdef bint may_go(self, size_t before, size_t i, int part, int64_t newest_ms) noexcept
