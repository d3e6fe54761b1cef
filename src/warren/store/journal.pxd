from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport JournalPort, MirrorPort, QueuePort, Run
from warren.store.appender cimport Appender

# Kinds of records; as in records.py.
cdef enum:
    PUBLISH = 1
    GONE = 2
    REQUEUE = 3
    WATERMARK = 4
    INDEX = 5
    RING = 6
    METADATA = 7
    PLACED = 8
    MOVED = 9
    CURSOR = 11
    BATCH = 12

cdef enum:
    CONTENT_BYTES = 16    # what a message record begins with
    TARGET_BYTES = 56
    # bits of Target.flags
    TARGET_OPENED = 1     # ... and all before it may be delivered
    TARGET_COPIED = 2     # it came with a copy of the queue: it is no operation
    TARGET_TRANSIENT = 4  # it is not to outlive a stop of all replicas
    TARGET_PROMISED = 16  # its publisher may be told before the other replicas have it
    TARGET_GONE = 8       # the queue does not keep it: what stands in the slot leaves, dead

# What a record of kind RING says; its flags octet. See docs/internals/wal-format.md.
cdef enum:
    RING_OPERATION = 0    # the payload is one operation of the ring
    RING_BEGIN = 1        # the queue has a ring from here on
    RING_EPOCH = 2        # an epoch was adopted
    RING_COMMIT = 3       # operations up to here are committed
    RING_TRUNCATE = 4     # operations above this are forgotten
    RING_RESET = 5        # a copy begins anew
    RING_GAP = 6          # a copy has come so far
    RING_DROP = 7         # this node has no replica any more

cdef struct Target:
    uint32_t queue_id
    uint32_t flags
    uint64_t epoch
    uint64_t index
    uint64_t slot
    int64_t wall_ms
    uint64_t gateway       # of a mirrored queue: who has sent it ...
    uint64_t sequence      # ... and under which number

cdef struct Segment:
    uint64_t first_sequence
    uint64_t size
    uint64_t live          # how often something in it is needed
    uint64_t kept          # ... also after a restart
    uint64_t live_bytes    # of bodies, counted once for each queue
    bint exists


cdef class Journal(JournalPort):
    cdef readonly Appender log         # None until all that was in it has come back
    cdef readonly uint32_t salt
    cdef readonly dict queues          # by id
    cdef public object read_at         # (segment number, offset, size) -> bytes; raises OSError
    cdef public object on_unreadable   # (queue, slot, place, count)
    cdef public object on_lost         # the same, for forks, which keep it in mind
    cdef public object on_unknown      # (queue id) -> the queue, or None: a copy that was kept here
    cdef public object on_mirrored     # (queue) -> its mirror, made if need be
    cdef Target* targets
    cdef size_t target_count
    cdef size_t target_room
    cdef bytearray batch               # messages of the batch that is being committed; None: none
    cdef size_t unstaged               # staged, and gone from their queues before the commit
    cdef Segment* segments
    cdef uint32_t segments_from        # number of the first one in the table
    cdef size_t segments_room
    cdef readonly uint32_t last_segment
    cdef public int64_t wall_offset_ms   # wall clock minus the clock that queues use
    cdef bint pending                  # something was appended and not pushed on to the disk
    cdef bint awaited                  # ... that somebody waits for
    cdef list leaving                  # queues that have something to tell
    cdef list opening                  # queues that wait for a watermark
    cdef list ringing                  # mirrors with operations of this turn
    cdef list mirrored                 # (number of the target, queue) of what is staged
    cdef object waiters                # (mark, action), by mark
    cdef dict addresses
    cdef readonly uint64_t appended_bytes
    cdef readonly uint64_t messages_written

    cdef Segment* segment(self, uint32_t number) noexcept
    cdef int make_segment(self, uint32_t number) except -1
    cdef uint64_t seal(self, uint8_t* header, int kind, uint32_t queue_id, uint64_t epoch,
                       uint32_t length) except 0
    cdef uint64_t write_message(self, int kind, Message message, Target* targets,
                                size_t count) except 0
    cdef uint64_t operation(self, int kind, QueuePort queue, const void* data,
                            size_t n) except 0
    cdef int push(self) except -1
    cdef uint64_t short_record(self, int kind, QueuePort queue, uint64_t value) except 0
    cdef uint64_t write_copy(self, Message message, Target* target) except 0
    cdef uint64_t ring_record(self, QueuePort queue, int how, const uint8_t* data, size_t n,
                              bint lazy) except 0
    cdef QueuePort queue_of(self, uint32_t queue_id)
    cdef Message parse(self, const uint8_t* payload, size_t n)


cdef bint content_fits(const uint8_t* payload, size_t n) noexcept
