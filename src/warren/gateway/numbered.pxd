from libc.stdint cimport uint32_t


cdef class Numbered:
    cdef list items
    cdef list free_numbers     # what the next ones at freed places are called
    cdef uint32_t* numbers
    cdef size_t room

    cdef object at(self, uint32_t number)
    cdef int put(self, uint32_t number, object item) except -1
    cdef int make_room(self, size_t n) except -1
