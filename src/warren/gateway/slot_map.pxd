from libc.stdint cimport uint32_t, uint64_t

cdef struct Place:
    uint64_t key
    uint64_t value       # 0: nothing stands here


cdef class SlotMap:
    cdef Place* places
    cdef size_t capacity   # a power of two; 0: none yet
    cdef int shift
    cdef readonly size_t count

    cdef size_t home_of(self, uint64_t key) noexcept
    cdef int put(self, uint64_t key, uint64_t value) except -1
    cdef uint64_t pop(self, uint64_t key) noexcept
    cdef int grow(self) except -1
    cdef uint32_t count_of(self, uint64_t value) noexcept
    cdef void clear(self) noexcept
