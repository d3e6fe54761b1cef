from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

# What a message's content header holds beyond plain properties; bits of Message.marks.
cdef enum:
    HAS_HEADERS = 1       # a headers table
    HAS_CARBON_COPY = 2   # a CC or BCC key in it
    HAS_REPLY_TO = 4      # reply_to names the direct reply-to pseudo queue
    HAS_USER_ID = 8
    HAS_DELAY = 16        # an x-delay key in the headers table
    BAD_EXPIRATION = 32   # expiration is not a decimal number of milliseconds


cdef enum:
    PERSISTENT = 2        # delivery_mode of a message that is to survive a restart


cdef class Address:
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef readonly bytes wire
    cdef readonly tuple hidden_keys    # the routing keys of BCC, which no consumer is shown


cdef class Message:
    cdef readonly Address address
    cdef uint8_t* data             # content header payload, then the body
    cdef readonly uint32_t header_len
    cdef readonly uint32_t body_len
    cdef readonly uint32_t table_at    # where the headers table's entries start in data
    cdef readonly uint32_t table_len
    cdef readonly uint32_t user_id_at  # where the user_id short string starts in data
    cdef readonly uint64_t place       # where it stands in the log; 0: nowhere
    cdef readonly int64_t ttl_ms       # -1: none
    cdef readonly uint8_t delivery_mode
    cdef readonly uint8_t priority
    cdef readonly uint8_t marks

    cdef int allocate(self, uint32_t header_len, uint32_t body_len) except -1
