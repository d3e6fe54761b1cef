from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.message cimport Message
from warren.wire.output cimport Output

# Operations of a ring. The first four are as in the log (store/journal.pxd).
cdef enum:
    OP_PUBLISH = 1
    OP_GONE = 2
    OP_REQUEUE = 3
    OP_WATERMARK = 4
    OP_VIEW = 16       # a master begins: epoch (8), bits as below (1)
    OP_REFUSED = 17    # a publish was refused: gateway (8), number (8)
    OP_OUT = 18        # what consumers have or had: slots (8 each)
    OP_CURSOR = 19     # what a cursor does (queue/cursors.py)
    OP_USED = 20       # an auto-delete queue has a consumer: version (1)
    OP_BATCH = 21      # a batch of a producer begins (0) or ends (1): (1)

# Bits of OP_VIEW.
cdef enum:
    VIEW_PROMOTED = 1  # another has served before
    VIEW_COLD = 2      # all replicas were down at once: transient messages are gone

cdef enum:
    OP_HEAD_BYTES = 5          # kind (1), length of what follows (4)
    PUBLISH_HEAD_BYTES = 48    # see `write_publish`


cdef class Operation:
    cdef readonly uint64_t index
    cdef readonly uint64_t epoch
    cdef readonly int kind
    # of a publish
    cdef readonly uint64_t slot
    cdef readonly int64_t wall_ms
    cdef readonly uint32_t flags
    cdef readonly uint64_t gateway
    cdef readonly uint64_t sequence
    cdef public Message message      # None: only its place is known
    cdef public uint64_t place
    cdef public uint32_t body_len
    # of all others
    cdef readonly bytes data


cdef int write_publish(Output out, Message message, uint64_t slot, int64_t wall_ms, uint32_t flags,
                       uint64_t gateway, uint64_t sequence) except -1
cdef int write_operation(Output out, int kind, const uint8_t* data, size_t n) except -1
cdef bytes bytes_of(Output out)
cdef list slots_of(bytes data)
cdef list parse_operations(bytes data, uint64_t first, uint64_t epoch)
cdef Operation make_operation(uint64_t index, uint64_t epoch, int kind, bytes data)
cdef Operation make_publish(uint64_t index, uint64_t epoch, uint64_t slot, int64_t wall_ms,
                            uint32_t flags, uint64_t gateway, uint64_t sequence, uint64_t place,
                            uint32_t body_len)
