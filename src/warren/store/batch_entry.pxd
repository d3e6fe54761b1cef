from libc.stdint cimport uint32_t, uint64_t

from warren.model.message cimport Message


cdef inline int add_entry(bytearray batch, Message message, size_t count, const char* targets,
                          size_t size) except -1:
    """A message of a batch, and the queues that have just staged it; the batch counts them."""
    cdef uint64_t place = message.place
    cdef uint32_t sizes[2]
    sizes[0] = message.body_len
    sizes[1] = <uint32_t>count
    (<uint32_t*><char*>batch)[0] += 1
    batch += (<char*>&place)[:8]
    batch += (<char*>sizes)[:8]
    batch += targets[:size]
    return 0
