"""A queue as one of several replicas: what its log has made of it, and back again.

The master's queue acts at once and may have to take back what the other replicas never had; the
others follow what all of them have. `Replicated` is the part of a queue that both need. Messages
come by slot, so all replicas have them at the same places.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from warren.model.message cimport Message
from warren.model.ports cimport MirrorPort
from warren.queue.backlog cimport LEVEL_SHIFT, Backlog, position_of
from warren.queue.paging cimport hold_in_memory, load_slots
from warren.queue.slots cimport (
    CHUNK_SLOTS, GUESSED, LOGGED, REDELIVERED, TRANSIENT, Chunk, Slot, SlotLog, logged_as,
    message_of,
)
from warren.queue.snapshot cimport encode_level

cdef uint64_t ALL_POSITIONS = ~<uint64_t>0


cdef class Replicated(Backlog):
    """See the module's text."""

    def join_ring(self, MirrorPort mirror not None):
        """From now on it has other replicas, or may get some; it answers publishes later."""
        assert self.journal is not None and self.queue_id
        self.mirror = mirror
        self.far = True

        levels = []
        self.all_levels(levels)
        for _, log in levels:
            (<SlotLog>log).durable = True

    def leave_ring(self):
        """This node has no replica any more: the object stands for old deliveries only."""
        self.mirror = None
        self.retired = True

    cdef int all_levels(self, list found) except -1:
        for i, level in enumerate((self.log,) if self.levels is None else self.levels):
            if level is not None:
                found.append((i, level))
        return 0

    @property
    def positions_used(self):
        """How many positions were ever given out."""
        cdef list levels = []
        self.all_levels(levels)
        return sum((<SlotLog>log).next_position for _, log in levels)

    # -- following ---------------------------------------------------------------------------------

    cdef bint follow_message(self, uint64_t slot, Message message, uint64_t place,
                             uint32_t body_len, int64_t expires_ms, bint opened,
                             bint transient) except -1:
        """A message has come to all replicas; False when it is here already, with a copy.

        Without the message, its place in the log is known.
        """
        cdef SlotLog log = self.restored_level(slot)
        cdef Slot* entry
        cdef uint64_t position = position_of(slot)
        if position < log.next_position and self.entry_at(slot) is not NULL:
            if opened:
                log.opened = max(log.opened, position + 1)
            return False
        entry = log.fill(position)
        if message is not None:
            self.settle_in(log, entry, slot, message, expires_ms, opened)
            return True
        entry.content = place << 1 | 1
        entry.expires_ms = expires_ms
        entry.body_len = body_len
        entry.returns = 0
        entry.flags = LOGGED | TRANSIENT if transient else LOGGED
        log.kept += 1
        log.kept_bytes += body_len
        log.live_bytes += body_len
        log.ready_bytes += body_len
        self.ready += 1
        if expires_ms:
            self.may_expire = True
        if opened:
            log.opened = max(log.opened, position + 1)
        return True

    cdef int note_arrival(self, uint64_t slot, uint32_t flags) except -1:
        """A message that has come to all replicas: the flags of its operation say when."""
        return self.restored_level(slot).mark_stamp(position_of(slot), flags)

    cdef int copy_state(self, uint64_t slot, Slot* entry) except -1:
        """What a copy is to say of a message beyond the message itself."""
        return COPIED_REDELIVERED if entry.flags & REDELIVERED else 0

    cdef int mark_copied(self, uint64_t slot, int returns, int state) except -1:
        """What the copy has said of it."""
        cdef Slot* entry = self.entry_at(slot)
        if entry is not NULL:
            entry.returns = <unsigned short>returns
            if state & COPIED_REDELIVERED:
                entry.flags |= REDELIVERED
        return 0

    cdef int follow_gone(self, uint64_t first, uint64_t count) except -1:
        """Messages have left on all replicas; those that a copy has not brought are not there."""
        cdef uint64_t slot
        cdef SlotLog log = self.restored_level(first)
        if position_of(first) + count > log.next_position:
            log.next_position = position_of(first) + count
        for slot in range(first, first + count):
            if self.entry_at(slot) is not NULL:
                log.take(position_of(slot))
                log.remove(position_of(slot))
                self.ready -= 1
        return 0

    cdef int forget_transient(self) except -1:
        """All replicas were down at once: what was not to outlive that has gone."""
        cdef list levels = [], gone = []
        cdef SlotLog log
        cdef Chunk* chunk
        cdef uint64_t first
        cdef size_t i
        cdef int j
        cdef bint spilled
        self.all_levels(levels)
        for level, found in levels:
            log = <SlotLog>found
            for i in range(log.count):
                chunk = log.chunks[log.first + i]
                if chunk is NULL or chunk.live == 0:
                    continue
                first = <uint64_t>level << LEVEL_SHIFT | (log.first_number + i) * CHUNK_SLOTS
                spilled = chunk.slots is NULL
                if spilled and not load_slots(log, chunk, first):
                    continue
                for j in range(CHUNK_SLOTS):
                    if chunk.slots[j].content and chunk.slots[j].flags & TRANSIENT:
                        gone.append(first + j)
                if spilled:
                    free(chunk.slots)
                    chunk.slots = NULL
        for slot in gone:
            self.follow_gone(slot, 1)
        return 0

    # -- the master --------------------------------------------------------------------------------

    cdef int remove_left(self, uint64_t first, uint64_t count) except -1:
        """All replicas know that these have left."""
        cdef uint64_t slot
        cdef SlotLog log = self.level(first)
        for slot in range(first, first + count):
            if log.at(position_of(slot)) is not NULL:
                log.remove(position_of(slot))
                self.leaving -= 1
        return 0

    def count_flagged(self):
        """How many ready messages go out as redelivered because they may have been delivered."""
        cdef SlotLog log
        cdef Chunk* chunk
        cdef uint64_t count = 0, first
        cdef size_t i
        cdef int j
        cdef list levels = []
        self.all_levels(levels)
        for _, level in levels:
            log = <SlotLog>level
            for i in range(log.count):
                chunk = log.chunks[log.first + i]
                first = (log.first_number + i) * CHUNK_SLOTS
                if first >= log.flagged_below:
                    break
                if chunk is NULL or chunk.ready == 0:
                    continue
                if first + CHUNK_SLOTS <= log.flagged_below:
                    count += chunk.ready
                    continue
                for j in range(<int>(log.flagged_below - first)):
                    count += chunk.ready_bits[j >> 6] >> (j & 63) & 1
        return count

    def maybe_seen(self):
        """The slots of all messages that are out, about to leave, or back after they were out.

        None when that cannot be known.
        """
        cdef list levels = [], found = []
        self.all_levels(levels)
        for n, level in levels:
            if not self.find_seen(<SlotLog>level, <uint64_t>n << LEVEL_SHIFT, found):
                return None
        return found

    cdef bint find_seen(self, SlotLog log, uint64_t level_bits, list found) except -1:
        cdef Chunk* chunk
        cdef uint64_t first
        cdef size_t i
        cdef int j
        cdef bint spilled
        for i in range(log.count):
            chunk = log.chunks[log.first + i]
            first = (log.first_number + i) * CHUNK_SLOTS
            if chunk is NULL or chunk.live == chunk.retained:
                continue
            if (first >= max(log.opened, log.opening)
                    and chunk.ready + chunk.retained == chunk.live):
                # Nobody has been given anything of it.
                continue
            spilled = chunk.slots is NULL
            if spilled and not load_slots(log, chunk, level_bits | first):
                return False
            for j in range(CHUNK_SLOTS):
                if chunk.retained_bits[j >> 6] >> (j & 63) & 1:
                    # It has left: nobody will be given it again.
                    continue
                if chunk.slots[j].content and (
                        chunk.slots[j].flags & REDELIVERED
                        or not chunk.ready_bits[j >> 6] >> (j & 63) & 1):
                    found.append(level_bits | (first + <uint64_t>j))
            if spilled:
                free(chunk.slots)
                chunk.slots = NULL
        return True

    def take_out(self, list slots not None):
        """Of these slots, those that are ready and may be with somebody are not ready; which.

        What was never given out is not with anybody: whoever says that they hold it means another
        message, of a fork that had one in its place.
        """
        cdef uint64_t slot
        cdef SlotLog log
        cdef Slot* entry
        cdef Chunk* chunk
        cdef int j
        taken = []
        for slot in slots:
            log = self.level(slot)
            entry = NULL if log is None else self.entry_at(slot)
            if entry is NULL:
                continue
            chunk = log.chunk_of(position_of(slot))
            j = position_of(slot) % CHUNK_SLOTS
            if not (entry.flags & REDELIVERED or position_of(slot) < log.flagged_below):
                continue
            if chunk.ready_bits[j >> 6] >> (j & 63) & 1:
                log.take(position_of(slot))
                self.ready -= 1
                taken.append(slot)
        return taken

    def flag(self, list slots not None):
        """These may have been delivered."""
        cdef Slot* entry
        for slot in slots:
            if self.level(<uint64_t>slot) is not None:
                entry = self.entry_at(<uint64_t>slot)
                if entry is not NULL:
                    entry.flags |= REDELIVERED

    cdef int commit_all(self) except -1:
        """All that is here is on all replicas."""
        cdef list levels = []
        self.all_levels(levels)
        for _, log in levels:
            (<SlotLog>log).committed = (<SlotLog>log).next_position
        return 0

    cdef int take_back_all(self) except -1:
        """What is not committed has never been; whatever was out is back."""
        cdef list levels = []
        cdef SlotLog log
        cdef uint64_t position
        self.all_levels(levels)
        self.ready = 0
        for i, level in levels:
            log = <SlotLog>level
            log.make_all_ready()
            for position in range(log.committed, log.next_position):
                if self.entry_at(<uint64_t>i << LEVEL_SHIFT | position) is not NULL:
                    log.take(position)
                    log.remove(position)
            log.cut_back(log.committed)
            log.opening = log.open_mark = 0
            self.ready += log.ready
        self.leaving = 0
        return 0

    def log_all(self):
        """Messages that were in memory only are written, as all of a mirrored queue are."""
        cdef list levels = []
        cdef SlotLog log
        cdef Slot* entry
        cdef uint64_t position, slot
        self.all_levels(levels)
        for i, level in levels:
            log = <SlotLog>level
            for position in range(log.first_number * CHUNK_SLOTS, log.next_position):
                slot = <uint64_t>i << LEVEL_SHIFT | position
                entry = self.entry_at(slot)
                if entry is NULL or entry.flags & LOGGED:
                    continue
                message = self.look_at(entry)
                if message is None:
                    continue
                if entry.content & 1:
                    # What it had was a place aside.
                    self.journal.release(entry.content >> 1, entry.body_len, False)
                    hold_in_memory(log, entry, message)
                if log.is_retained(position):
                    # The others are to have it, and then to hear that it has left.
                    log.unretain(position)
                    self.leaving += 1
                    self.note_gone(slot)
                entry.flags |= logged_as(message)
                log.kept += 1
                log.kept_bytes += entry.body_len
                self.journal.stage(self, slot, entry.expires_ms,
                                   entry.flags & TRANSIENT | <int>log.stamp_at(position))
                self.journal.commit(message)

    # -- images ------------------------------------------------------------------------------------

    def level_heads(self):
        """(level, next position, first live one, opened, flagged below) of each, as committed."""
        cdef list levels = [], found = []
        cdef SlotLog log
        cdef uint64_t end
        self.all_levels(levels)
        for i, level in levels:
            log = <SlotLog>level
            end = log.committed if self.mirror.acts else log.next_position
            found.append((i, end, min(self.first_live(log), end), log.opened, log.flagged_below))
        return found

    cdef uint64_t first_live(self, SlotLog log) noexcept:
        cdef size_t i
        cdef int j
        cdef Chunk* chunk
        for i in range(log.count):
            chunk = log.chunks[log.first + i]
            if chunk is NULL or chunk.live == 0:
                continue
            if chunk.slots is NULL:
                return (log.first_number + i) * CHUNK_SLOTS
            for j in range(CHUNK_SLOTS):
                if chunk.slots[j].content:
                    return (log.first_number + i) * CHUNK_SLOTS + <uint64_t>j
        return log.next_position

    def begin_anew(self, list heads not None):
        """Drop everything; be as `level_heads` says, without the messages."""
        cdef SlotLog log
        for level in (self.log,) if self.levels is None else self.levels:
            if level is not None:
                # Its messages go with it.
                (<SlotLog>level).disown()
        self.log = SlotLog(self.journal, True)
        if self.levels is not None:
            self.levels = [None] * len(self.levels)
            self.levels[0] = self.log
        self.ready = self.leaving = 0
        for i, next_position, _first, opened, flagged_below in heads:
            log = self.restored_level(<uint64_t>i << LEVEL_SHIFT)
            log.next_position = next_position
            log.opened = opened
            log.flagged_below = flagged_below

    cdef bytes committed_levels(self):
        """For a checkpoint: the messages that all replicas have."""
        cdef list levels = [], parts = []
        cdef SlotLog log
        self.all_levels(levels)
        for i, level in levels:
            log = <SlotLog>level
            if log.next_position:
                parts.append(encode_level(
                    log, i, False, log.committed if self.mirror.acts else ALL_POSITIONS))
        return len(parts).to_bytes(2, "little") + b"".join(parts)

    cdef Message look_at(self, Slot* entry):
        """The message of a slot, in memory or not; None when it cannot be read."""
        if entry.content & 1:
            return self.journal.fetch(entry.content >> 1)
        return message_of(entry)

    # -- what cannot be read here, and others have -------------------------------------------------

    cdef int lose_chunk(self, SlotLog log, uint64_t slot) except -1:
        """The header of a chunk tells which messages it has: others are asked for each in its turn.

        Until then they stand where the index stands, which is no message.
        """
        cdef Chunk* chunk = log.chunk_of(position_of(slot))
        cdef uint64_t place = chunk.index_place, size = 0
        cdef uint32_t left = chunk.live
        cdef int j
        if self.mirror is None or not self.mirror.has_others():
            return Backlog.lose_chunk(self, log, slot)
        chunk.slots = <Slot*>calloc(CHUNK_SLOTS, sizeof(Slot))
        if chunk.slots is NULL:
            raise MemoryError()
        for j in range(CHUNK_SLOTS):
            if not (chunk.ready_bits[j >> 6] | chunk.retained_bits[j >> 6]) >> (j & 63) & 1:
                continue
            chunk.slots[j].content = place << 1 | 1
            chunk.slots[j].flags = LOGGED | GUESSED
            # Their bytes are known together.
            size = chunk.body_bytes // left
            chunk.slots[j].body_len = <uint32_t>size
            chunk.body_bytes -= size
            left -= 1
            self.journal.retain_kept(place, <uint32_t>size)
        log.drop_index(chunk)
        return 0

    cdef uint64_t missing_at(self, uint64_t slot) except? 0:
        """Where the message of a slot should be in the log; 0: it is here, or not needed any more.
        """
        cdef Slot* entry = NULL if self.level(slot) is None else self.entry_at(slot)
        return entry.content >> 1 if entry is not NULL and entry.content & 1 else 0

    cdef int refit(self, uint64_t slot, uint32_t body_len, int64_t expires_ms, int returns,
                   int state, bint transient) except -1:
        """Another replica has said what there is to a message; what is known here is newer."""
        cdef SlotLog log = self.level(slot)
        cdef uint64_t position = position_of(slot)
        cdef Slot* entry = log.at(position)
        cdef Chunk* chunk = log.chunk_of(position)
        cdef int64_t more = <int64_t>body_len - entry.body_len
        if not entry.flags & GUESSED:
            return 0
        entry.flags = (entry.flags & ~<int>GUESSED | (TRANSIENT if transient else 0)
                       | (REDELIVERED if state & COPIED_REDELIVERED else 0))
        entry.returns = max(entry.returns, <unsigned short>returns)
        entry.expires_ms = expires_ms
        entry.body_len = body_len
        if expires_ms:
            self.may_expire = True
        if log.is_retained(position):
            log.retained_bytes += <uint64_t>more
            return 0
        log.live_bytes += <uint64_t>more
        log.kept_bytes += <uint64_t>more
        if chunk.ready_bits[position % CHUNK_SLOTS >> 6] >> (position & 63) & 1:
            log.ready_bytes += <uint64_t>more
        return 0

    def mending_ended(self, int64_t now_ms):
        """What could not be read is here again, or nobody has it: the queue goes on."""
        self.mending = False
        self.go_on_burying(now_ms)
        self.pump(now_ms)

    def hand_on(self, Replicated heir not None):
        """Another object is the queue from now on; this one stands for its old deliveries only."""
        heir.log, heir.levels, heir.journal = self.log, self.levels, self.journal
        heir.ready, heir.leaving, heir.may_expire = self.ready, self.leaving, self.may_expire
        heir.queue_id, heir.durable = self.queue_id, self.durable
        heir.epoch, heir.operations = self.epoch, self.operations
        heir.mirror, heir.far = self.mirror, self.far
        heir.damage, heir.unreadable = self.damage, self.unreadable
        self.retired = True
        self.mirror = None
        self.journal = None
        self.log = SlotLog()
        if self.levels is not None:
            self.levels = [None] * len(self.levels)
            self.levels[0] = self.log
        self.ready = self.leaving = self.queue_id = 0
        self.durable = False

    # -- looking, for tests and tools --------------------------------------------------------------

    def walk(self):
        """All messages: (slot, place, flags, returns, expires_ms, body length, ready, message).

        `message` is None when it is paged out; chunks that are only in the log stay there.
        """
        cdef SlotLog log
        cdef Chunk* chunk
        cdef Slot* entry
        cdef uint64_t level_bits, first
        cdef size_t i
        cdef int j, flags
        cdef bint spilled, resident
        found = []
        for n, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            level_bits = <uint64_t>n << LEVEL_SHIFT
            for i in range(log.count if log is not None else 0):
                chunk = log.chunks[log.first + i]
                if chunk is NULL or chunk.live == 0:
                    continue
                first = (log.first_number + i) * CHUNK_SLOTS
                spilled = chunk.slots is NULL
                if spilled and not load_slots(log, chunk, level_bits | first):
                    raise ValueError(f"the index of chunk {first // CHUNK_SLOTS} cannot be read")
                for j in range(CHUNK_SLOTS):
                    entry = &chunk.slots[j]
                    if entry.content == 0:
                        continue
                    resident = not entry.content & 1
                    flags = entry.flags | (first + j < log.flagged_below)
                    found.append((
                        level_bits | (first + j),
                        message_of(entry).place if resident else entry.content >> 1,
                        flags, entry.returns, entry.expires_ms, entry.body_len,
                        chunk.ready_bits[j >> 6] >> (j & 63) & 1,
                        message_of(entry) if resident else None,
                    ))
                if spilled:
                    free(chunk.slots)
                    chunk.slots = NULL
        return found

    def index_places(self):
        """Of chunks with an index: (first slot, the index's place, whether slots are only there,
        whether it is needed after a restart)."""
        cdef SlotLog log
        cdef Chunk* chunk
        cdef size_t i
        found = []
        for n, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            for i in range(log.count if log is not None else 0):
                chunk = log.chunks[log.first + i]
                if chunk is not NULL and chunk.index_place:
                    found.append((
                        <uint64_t>n << LEVEL_SHIFT | (log.first_number + i) * CHUNK_SLOTS,
                        chunk.index_place, chunk.slots is NULL, bool(chunk.index_kept)))
        return found

    def watermarks(self):
        """(next position, opened, asked to be opened, flagged below) of each level."""
        levels = (self.log,) if self.levels is None else self.levels
        return [None if log is None else
                ((<SlotLog>log).next_position, (<SlotLog>log).opened, (<SlotLog>log).opening,
                 (<SlotLog>log).flagged_below) for log in levels]
