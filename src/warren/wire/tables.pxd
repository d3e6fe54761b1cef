from libc.stdint cimport int64_t, uint8_t, uint32_t

from warren.wire.writer cimport Writer

# 0 if the entries are well-formed all the way down, else -1. `depth` is how many tables and arrays
# these entries are already inside: 0 for a method's argument or a message's headers.
cdef int check_table(const uint8_t* p, uint32_t n, int depth) noexcept nogil

# Bytes of the tagged value at p, its type octet included; -1 if it is malformed or beyond n.
cdef int64_t check_value(const uint8_t* p, uint32_t n, int depth) noexcept nogil

# The same without looking inside tables and arrays.
cdef int64_t skip_value(const uint8_t* p, uint32_t n) noexcept nogil

# Offset of the tagged value of a top-level key (the first of that name) in checked entries, or -1.
cdef int64_t find_key(const uint8_t* p, uint32_t n, const char* key, int key_len) noexcept nogil

# For memory that the check functions have passed: nothing is checked again.
cdef dict table_from_memory(const uint8_t* p, uint32_t n)
cdef object value_from_memory(const uint8_t* p, uint32_t n)

cdef int write_table(Writer out, dict table, int depth) except -1
