from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from warren.model.message cimport PERSISTENT, Message
from warren.model.ports cimport JournalPort
from warren.queue.marks cimport Marks

cdef enum:
    CHUNK_SLOTS = 128
    CHUNK_WORDS = 2      # CHUNK_SLOTS / 64
    # What a message in memory takes beyond its header and body.
    MESSAGE_BYTES = 160

# Bits of Slot.flags.
cdef enum:
    REDELIVERED = 1
    LOGGED = 2           # the log has it for this queue: that it leaves must be logged too
    TRANSIENT = 4        # ... although it is not to outlive all replicas of a mirrored queue
    GUESSED = 8          # its index cannot be read: only that it is there is known (replica.pyx)

cdef struct Slot:
    uint64_t content     # the Message, owned; or its place << 1 | 1 when paged out; 0: it has left
    int64_t expires_ms   # 0: never
    uint32_t body_len
    uint16_t returns     # how often it was put back
    uint8_t flags

cdef struct Chunk:
    uint32_t ready
    uint32_t live
    uint32_t retained
    uint64_t ready_bits[CHUNK_WORDS]
    uint64_t retained_bits[CHUNK_WORDS]  # left the queue, kept for its cursors
    uint64_t logged_bits[CHUNK_WORDS]   # which are logged, while the slots are not in memory
    uint64_t body_bytes                 # of all live ones, likewise
    uint64_t index_place                # where the slots stand in the log, as they are; 0: nowhere
    bint index_kept                     # the index is needed after a restart, too
    Slot* slots                         # NULL: only in the log


cdef inline uint8_t logged_as(Message message) noexcept:
    """The flags of a message that the log has."""
    return LOGGED if message.delivery_mode == PERSISTENT else LOGGED | TRANSIENT


cdef class SlotLog:
    cdef Chunk** chunks
    cdef size_t capacity       # of the chunk directory
    cdef size_t first          # index in the directory of the oldest chunk kept
    cdef size_t count          # chunks in the directory from `first`
    cdef uint64_t first_number  # chunk number of that oldest chunk
    cdef uint64_t hint         # no position below this is ready
    cdef Chunk* spare
    cdef JournalPort journal   # None: all in memory
    cdef bint durable          # its logged messages survive a restart
    cdef readonly uint64_t next_position
    cdef readonly uint64_t ready
    cdef readonly uint64_t live
    cdef readonly uint64_t ready_bytes
    cdef readonly uint64_t live_bytes
    cdef readonly uint64_t kept        # of the live ones, those that the log has
    cdef readonly uint64_t kept_bytes
    cdef readonly uint64_t retained        # beyond those: kept for cursors only
    cdef readonly uint64_t retained_bytes
    # what may be delivered, and what may have been: see backlog.pyx
    cdef readonly uint64_t opened
    cdef uint64_t opening
    cdef uint64_t open_mark
    cdef uint64_t open_size
    cdef readonly uint64_t flagged_below
    # of a mirrored queue: what all replicas in sync have; nothing behind it may be delivered
    cdef readonly uint64_t committed
    # paging: how far it has come; positions of messages, then numbers of chunks
    cdef uint64_t out_to
    cdef uint64_t paged_to
    cdef uint64_t indexed_to
    cdef uint64_t spilled_to
    cdef uint64_t spilled_behind   # likewise, of chunks that are kept for cursors only
    # when messages came, by position
    cdef readonly Marks arrivals
    cdef int64_t marked_ms     # the newest mark
    cdef uint32_t stamp        # the same, as records have it; 0: unknown

    cdef int64_t append(self, Message message, int64_t expires_ms, bint ready,
                        uint8_t flags) except -1
    cdef Slot* restore(self, uint64_t position) except NULL
    cdef int64_t first_ready(self) noexcept
    cdef inline Chunk* chunk_of(self, uint64_t position) noexcept:
        return self.chunks[self.first + <size_t>(position // CHUNK_SLOTS - self.first_number)]
    cdef inline bint covers(self, uint64_t position) noexcept:
        cdef uint64_t number = position // CHUNK_SLOTS
        return number >= self.first_number and number < self.first_number + self.count
    cdef Chunk* chunk_at(self, uint64_t position) noexcept
    cdef Slot* at(self, uint64_t position) noexcept
    cdef void take(self, uint64_t position) noexcept
    cdef void put_back(self, uint64_t position) noexcept
    cdef void remove(self, uint64_t position) noexcept
    cdef void retain(self, uint64_t position) noexcept
    cdef void unretain(self, uint64_t position) noexcept
    cdef void release(self, uint64_t position) noexcept
    cdef void drop_slot(self, uint64_t position) noexcept
    cdef void uncount(self, Slot* slot) noexcept
    cdef inline bint is_retained(self, uint64_t position) noexcept:
        cdef Chunk* chunk = self.chunk_at(position)
        return (chunk is not NULL and chunk.retained_bits[position % CHUNK_SLOTS >> 6]
                >> (position & 63) & 1)
    cdef void free_chunk(self, size_t i) noexcept
    cdef void drop_index(self, Chunk* chunk) noexcept
    cdef void unkeep_index(self, Chunk* chunk) noexcept
    cdef void drop_content(self, Slot* slot) noexcept
    cdef void disown(self) noexcept
    cdef Chunk* chunk_for(self, uint64_t number) except NULL
    cdef int make_room(self) except -1
    cdef Chunk* new_chunk(self) except NULL
    cdef void trim(self) noexcept
    cdef int make_room_before(self, uint64_t number) except -1
    cdef Slot* fill(self, uint64_t position) except NULL
    cdef void make_all_ready(self) noexcept
    cdef int mark(self, int64_t now_ms) except -1
    cdef int mark_stamp(self, uint64_t position, uint32_t flags) except -1
    cdef uint32_t stamp_at(self, uint64_t position) noexcept
    cdef void cut_back(self, uint64_t position) noexcept
    cdef int load_marks(self, bytes data) except -1
    cdef int64_t first_live(self) noexcept


cdef inline Message message_of(Slot* slot):
    """The message of a slot that is in memory."""
    return <Message><void*>slot.content


cdef inline uint64_t cost_of(Message message) noexcept:
    return MESSAGE_BYTES + <uint64_t>message.header_len + message.body_len
