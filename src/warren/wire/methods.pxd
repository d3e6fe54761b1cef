from libc.stdint cimport uint8_t


# As decode_method, from memory: for callers that have not made a bytes object of the payload.
cdef tuple method_from_memory(const uint8_t* p, Py_ssize_t n)
