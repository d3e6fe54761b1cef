"""The messages of a queue: in memory, in the log, or both, whatever the queue does with them.

A slot number is `priority level << 55 | position`.

What may be delivered. After a crash, every message that may have been delivered must come again
flagged as redelivered, and no others. Nobody logs deliveries for that: the log holds a watermark
for each level, `opened`, and a logged message is delivered only when the watermark on the disk is
beyond it. A publish that comes while consumers wait carries the watermark in its own record and
goes out at once; a backlog is opened a window at a time, ahead of the consumers.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc

from warren.model.message cimport Message
from warren.model.ports cimport STAGE_OPENED, JournalPort, QueuePort, Run
from warren.queue.paging cimport (
    hold_in_memory, load_slots, page_in, page_out, spill, write_indexes,
)
from warren.queue.slots cimport (
    CHUNK_SLOTS, LOGGED, Chunk, Slot, SlotLog, logged_as, message_of,
)
from warren.queue.snapshot cimport decode_level, encode_level

# What the snapshot of a mirrored queue begins with; of others, it is their number of levels.
MIRRORED = b"\xff\xff"
cdef uint64_t ALL_POSITIONS = ~<uint64_t>0

cdef enum:
    # How much of a backlog is opened at first, and at most.
    OPEN_MESSAGES_MIN = 64
    OPEN_MESSAGES_MAX = 8192
    LEVEL_COUNT_MAX = 256


cdef int by_first(const void* a, const void* b) noexcept nogil:
    cdef uint64_t first = (<const Run*>a).first, second = (<const Run*>b).first
    return -1 if first < second else first > second


cdef class Backlog(QueuePort):
    """See the module's text."""

    def __dealloc__(self):
        free(self.runs)

    def __init__(self, str name not None, int max_priority=-1):
        self.name = name
        self.damage = ""
        self.max_priority = max_priority
        self.log = SlotLog()
        self.levels = [None] * (max_priority + 1) if max_priority >= 0 else None
        if self.levels is not None:
            self.levels[0] = self.log

    def attach(self, JournalPort journal not None):
        """From now on it can page messages out, and if it is durable log them. To be called first.
        """
        assert self.log.next_position == 0
        self.journal = journal
        self.log = SlotLog(journal, self.durable)
        if self.levels is not None:
            self.levels[0] = self.log

    def detach(self):
        """The queue is deleted: the log need not hear of what leaves it any more."""
        cdef SlotLog log
        cdef size_t i
        for n, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if log is None or self.journal is None:
                continue
            for i in range(log.count):
                if log.chunks[log.first + i] is not NULL:
                    load_slots(log, log.chunks[log.first + i],
                               <uint64_t>n << LEVEL_SHIFT | (log.first_number + i) * CHUNK_SLOTS)
            log.disown()
        self.queue_id = 0
        self.durable = False

    # -- positions ---------------------------------------------------------------------------------

    cdef SlotLog level_of(self, Message message):
        cdef int priority
        if self.levels is None:
            return self.log
        priority = message.priority
        if priority > self.max_priority:
            priority = self.max_priority
        if self.levels[priority] is None:
            self.levels[priority] = SlotLog(self.journal, self.durable)
        return <SlotLog>self.levels[priority]

    cdef SlotLog level(self, uint64_t slot):
        return self.log if self.levels is None else <SlotLog>self.levels[<int>(slot >> LEVEL_SHIFT)]

    cdef SlotLog restored_level(self, uint64_t slot):
        """The level of a slot that the log names, made if need be."""
        cdef int priority = <int>(slot >> LEVEL_SHIFT)
        if priority > self.max_priority and not (priority == 0 and self.levels is None):
            raise ValueError(f"queue '{self.name}' has no priority {priority}")
        if self.levels is None:
            return self.log
        if self.levels[priority] is None:
            self.levels[priority] = SlotLog(self.journal, self.durable)
        return <SlotLog>self.levels[priority]

    cdef int64_t head(self) noexcept:
        """The slot that is next to go out, or -1."""
        cdef int i
        cdef SlotLog level
        if self.ready == 0:
            return -1
        if self.levels is None:
            return self.log.first_ready()
        for i in range(self.max_priority, -1, -1):
            if self.levels[i] is not None:
                level = <SlotLog>self.levels[i]
                if level.ready:
                    return (<int64_t>i << LEVEL_SHIFT) | level.first_ready()
        return -1

    cdef uint64_t sum_bytes(self, bint ready_only) noexcept:
        cdef uint64_t total = 0
        if self.levels is None:
            return self.log.ready_bytes if ready_only else self.log.live_bytes
        for level in self.levels:
            if level is not None:
                total += (<SlotLog>level).ready_bytes if ready_only else (<SlotLog>level).live_bytes
        return total

    cdef Slot* entry_at(self, uint64_t slot) except? NULL:
        """The slot of a live message, loaded from the log if need be; NULL when there is none."""
        cdef SlotLog log = self.level(slot)
        cdef uint64_t position = position_of(slot)
        cdef Chunk* chunk
        if log is None:
            return NULL
        chunk = log.chunk_at(position)
        if chunk is NULL:
            return NULL
        if chunk.slots is NULL and not load_slots(log, chunk, slot - position % CHUNK_SLOTS):
            self.lose_chunk(log, slot)
        return log.at(position)

    cdef Slot* front(self, uint64_t* slot) except? NULL:
        """The slot next to go out; NULL when nothing is ready. Its message may be paged out."""
        cdef int64_t head
        cdef Slot* entry
        while True:
            head = self.head()
            if head < 0:
                return NULL
            entry = self.entry_at(<uint64_t>head)
            if entry is not NULL:
                slot[0] = <uint64_t>head
                return entry

    cdef bint bring_in(self, uint64_t slot, Slot* entry) except -1:
        """Has the message of a ready slot in memory; False when it could not be read.

        It is lost then, or another replica is asked for it (`mending`) and nothing may overtake it.
        """
        if not entry.content & 1:
            return True
        if page_in(self.level(slot), position_of(slot)):
            return True
        self.mending = self.mirror is not None and self.mirror.asks_for(slot)
        if not self.mending:
            self.lose(slot)
        return False

    # -- what cannot be read -----------------------------------------------------------------------

    cdef int lose(self, uint64_t slot) except -1:
        """A ready message cannot be read back: it is taken out, and said so."""
        cdef SlotLog log = self.level(slot)
        cdef uint64_t place = log.at(position_of(slot)).content >> 1
        # What stands at its place is kept for salvage: nothing is released.
        log.journal.retain(place, 0)
        if log.is_retained(position_of(slot)):
            log.release(position_of(slot))
        else:
            log.take(position_of(slot))
            self.ready -= 1
            Backlog.left(self, log, slot)
        self.unreadable += 1
        self.journal.unreadable(self, slot, place, 1)
        return 0

    cdef int lose_chunk(self, SlotLog log, uint64_t slot) except -1:
        """The slots of a chunk cannot be read back; all of them are ready, or kept for cursors."""
        cdef uint64_t position = position_of(slot)
        cdef uint64_t first = position - position % CHUNK_SLOTS
        cdef uint64_t level_bits = slot - position
        cdef Chunk* chunk = log.chunk_of(position)
        cdef uint64_t count = chunk.live, place = chunk.index_place
        cdef int j
        for j in range(CHUNK_SLOTS):
            if chunk.logged_bits[j >> 6] >> (j & 63) & 1:
                self.note_gone(level_bits | (first + j))
                log.kept -= not chunk.retained_bits[j >> 6] >> (j & 63) & 1
        log.kept_bytes -= min(log.kept_bytes, chunk.body_bytes)
        log.ready -= chunk.ready
        log.live -= chunk.ready
        if chunk.ready:
            log.ready_bytes -= min(log.ready_bytes, chunk.body_bytes)
            log.live_bytes -= min(log.live_bytes, chunk.body_bytes)
        else:
            log.retained_bytes -= min(log.retained_bytes, chunk.body_bytes)
        log.retained -= chunk.retained
        self.ready -= chunk.ready
        chunk.live = chunk.ready = chunk.retained = 0
        chunk.index_place = 0
        log.free_chunk(log.first + <size_t>(first // CHUNK_SLOTS - log.first_number))
        log.trim()
        self.unreadable += count
        self.journal.unreadable(self, level_bits | first, place, count)
        return 0

    # -- what leaves -------------------------------------------------------------------------------

    cdef int left(self, SlotLog log, uint64_t slot) except -1:
        """A message that is out leaves for good."""
        cdef bint logged = log.at(position_of(slot)).flags & LOGGED
        if self.mirror is not None and self.mirror.acts:
            # Another master may not have heard of it: it stays until all replicas have.
            self.leaving += 1
            return self.note_gone(slot)
        log.remove(position_of(slot))
        return self.note_gone(slot) if logged else 0

    cdef int note_gone(self, uint64_t slot) except -1:
        cdef Run* run
        cdef Run* grown
        cdef size_t room
        if self.queue_id == 0:
            return 0
        if self.mirror is not None and not self.mirror.acts:
            # A copy that cannot read a message has nothing to say of it to the others.
            return 0
        if self.run_count:
            run = &self.runs[self.run_count - 1]
            if run.first + run.count == slot:
                run.count += 1
                return 0
        else:
            self.journal.note_gone(self)
        if self.run_count == self.run_room:
            room = self.run_room * 2 if self.run_room else 16
            grown = <Run*>realloc(self.runs, room * sizeof(Run))
            if grown is NULL:
                raise MemoryError()
            self.runs = grown
            self.run_room = room
        self.runs[self.run_count].first = slot
        self.runs[self.run_count].count = 1
        self.run_count += 1
        return 0

    cdef int tell_gone(self) except -1:
        cdef size_t i, merged = 0
        if self.run_count == 0 or self.queue_id == 0:
            self.run_count = 0
            return 0
        if self.run_count > 1:
            qsort(self.runs, self.run_count, sizeof(Run), by_first)
            for i in range(1, self.run_count):
                if self.runs[merged].first + self.runs[merged].count == self.runs[i].first:
                    self.runs[merged].count += self.runs[i].count
                else:
                    merged += 1
                    self.runs[merged] = self.runs[i]
        self.run_count = 0
        return self.journal.gone(self, self.runs, merged + 1)

    # -- what may be delivered ---------------------------------------------------------------------

    cdef bint may_deliver(self, SlotLog log, uint64_t slot, Slot* entry) except -1:
        """Whether the watermark on the disk is beyond a ready message; else it is on its way."""
        cdef uint64_t position = position_of(slot)
        if self.mirror is not None and (position >= log.committed or not self.mirror.acts
                                        or self.mirror.paused):
            return False
        if not entry.flags & LOGGED:
            return True
        if position < log.opened:
            if (log.opened < log.next_position and log.opening <= log.opened
                    and log.opened - position <= log.open_size // 2):
                self.open_more(log, slot)
            return True
        if log.opening > position and self.reached() < log.open_mark:
            return False
        if log.opening <= position:
            self.open_more(log, slot)
        self.watermark_moved()
        return position < log.opened

    cdef uint64_t reached(self) noexcept:
        """How far the log is kept, or the log of all replicas."""
        return self.mirror.commit_index if self.mirror is not None else self.journal.persisted

    cdef int open_more(self, SlotLog log, uint64_t slot) except -1:
        """Opens the next window of a backlog; windows grow while consumers keep at it."""
        cdef uint64_t position = position_of(slot)
        cdef uint64_t upto = log.opened if log.opened > position else position
        log.open_size = max(min(log.open_size * 2, OPEN_MESSAGES_MAX), OPEN_MESSAGES_MIN)
        upto = min(upto + log.open_size, log.next_position)
        log.opening = upto
        log.open_mark = self.journal.open_up(self, (slot - position) | upto)
        return 0

    def open_ahead(self, uint64_t count):
        """Have the next `count` messages opened; the record of the log to wait for, 0: none."""
        cdef SlotLog log
        cdef uint64_t upto, mark = 0
        cdef int64_t head
        if not self.durable or self.journal is None:
            return 0
        self.watermark_moved()
        for i, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            head = -1 if log is None else log.first_ready()
            if head < 0:
                continue
            upto = min(<uint64_t>head + count, log.next_position)
            if upto > log.opened and upto > log.opening:
                log.opening = upto
                log.open_mark = self.journal.open_up(self, <uint64_t>i << LEVEL_SHIFT | upto)
            if log.opening > log.opened and upto > log.opened:
                mark = max(mark, log.open_mark)
        return mark

    cdef bint watermark_moved(self) except -1:
        """Takes over the watermarks that are on the disk now; whether there were any."""
        cdef bint moved = False
        cdef SlotLog log
        for level in ((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if (log is not None and log.opening > log.opened
                    and log.open_mark <= self.reached()):
                log.opened = log.opening
                moved = True
        return moved

    # -- coming back from the log ------------------------------------------------------------------

    cdef int restore(self, uint64_t slot, uint64_t place, uint32_t body_len, int64_t expires_ms,
                     uint32_t flags) except -1:
        cdef SlotLog log = self.restored_level(slot)
        cdef Slot* entry = log.restore(position_of(slot))
        entry.content = place << 1 | 1
        entry.expires_ms = expires_ms
        entry.body_len = body_len
        entry.flags = LOGGED
        log.live_bytes += body_len
        log.ready_bytes += body_len
        log.kept += 1
        log.kept_bytes += body_len
        self.ready += 1
        if expires_ms:
            self.may_expire = True
        if flags & STAGE_OPENED:
            log.opened = position_of(slot) + 1
        return log.mark_stamp(position_of(slot), flags)

    cdef int restore_message(self, uint64_t slot, Message message, int64_t expires_ms,
                             bint opened) except -1:
        """As `restore`, with the message in memory and its place in it."""
        cdef SlotLog log = self.restored_level(slot)
        return self.settle_in(log, log.restore(position_of(slot)), slot, message, expires_ms,
                              opened)

    cdef int settle_in(self, SlotLog log, Slot* entry, uint64_t slot, Message message,
                       int64_t expires_ms, bint opened) except -1:
        entry.expires_ms = expires_ms
        entry.body_len = message.body_len
        entry.returns = 0
        entry.flags = logged_as(message)
        log.kept += 1
        log.kept_bytes += message.body_len
        hold_in_memory(log, entry, message)
        log.live_bytes += message.body_len
        log.ready_bytes += message.body_len
        self.ready += 1
        if expires_ms:
            self.may_expire = True
        if opened:
            log.opened = max(log.opened, position_of(slot) + 1)
        return 0

    cdef int restore_gone(self, uint64_t first, uint64_t count) except -1:
        cdef uint64_t slot, end = first + count
        cdef SlotLog log = self.restored_level(first)
        if position_of(end) > log.next_position:
            # Their publishes were lost to damage; their positions are not given out again.
            end = max(first, end - position_of(end) + log.next_position)
            log.next_position = position_of(first) + count
        for slot in range(first, end):
            if self.entry_at(slot) is not NULL:
                log.take(position_of(slot))
                log.remove(position_of(slot))
                self.ready -= 1
        return 0

    cdef int restore_returned(self, uint64_t slot) except -1:
        cdef Slot* entry
        self.restored_level(slot)
        entry = self.entry_at(slot)
        if entry is not NULL:
            entry.returns += 1
            self.level(slot).drop_index(self.level(slot).chunk_of(position_of(slot)))
        return 0

    cdef int restore_opened(self, uint64_t slot) except -1:
        cdef SlotLog log = self.restored_level(slot)
        # Messages that were not logged may have stood there.
        log.next_position = max(log.next_position, position_of(slot))
        if position_of(slot) > log.opened:
            log.opened = position_of(slot)
        return 0

    cdef bint move(self, uint64_t slot, uint64_t from_place, Message message) except -1:
        cdef Slot* entry
        cdef SlotLog log
        if not self.holds(slot, from_place) and not self.holds(slot, message.place):
            return False
        log = self.level(slot)
        entry = log.at(position_of(slot))
        if entry.content & 1:
            # It cannot be read at its new place before it is written there: until it is paged out
            # again, it stays in memory.
            hold_in_memory(log, entry, message)
            log.paged_to = min(log.paged_to, position_of(slot))
            log.out_to = min(log.out_to, position_of(slot))
        else:
            message_of(entry).place = message.place
        log.drop_index(log.chunk_of(position_of(slot)))
        return True

    cdef bint holds(self, uint64_t slot, uint64_t place) except -1:
        cdef Slot* entry
        if slot >> LEVEL_SHIFT and (self.levels is None
                                    or slot >> LEVEL_SHIFT > <uint64_t>self.max_priority):
            return False
        entry = self.entry_at(slot)
        if entry is NULL:
            return False
        if entry.content & 1:
            return entry.content >> 1 == place
        return message_of(entry).place == place

    cdef uint64_t relocate(self, uint64_t slot, uint64_t place) except? 0:
        cdef Slot* entry
        cdef uint64_t before
        cdef SlotLog log = self.restored_level(slot)
        entry = self.entry_at(slot)
        if entry is NULL:
            return 0
        before = entry.content >> 1
        entry.content = place << 1 | 1
        log.drop_index(log.chunk_of(position_of(slot)))
        return before

    def needs(self, uint64_t slot, uint64_t place):
        """Whether the message of a slot is the one that stands at a place."""
        return self.holds(slot, place)

    @property
    def is_opening(self):
        """Whether a watermark is still on its way to the disk."""
        cdef SlotLog log
        for level in ((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if log is not None and log.opening > log.opened:
                return True
        return False

    def needs_index(self, uint64_t slot, uint64_t place):
        """Whether the index of a slot's chunk is the one that stands at a place."""
        cdef SlotLog log = self.level(slot)
        cdef Chunk* chunk = NULL if log is None else log.chunk_at(position_of(slot))
        return chunk is not NULL and chunk.index_place == place

    def give_up_index(self, uint64_t slot, uint64_t place):
        """The segment with the index of a chunk is to go: the chunk does without it."""
        cdef SlotLog log = self.level(slot)
        cdef uint64_t number = position_of(slot) // CHUNK_SLOTS
        cdef Chunk* chunk
        if log is None:
            return
        chunk = log.chunk_at(position_of(slot))
        if chunk is NULL or chunk.index_place != place:
            return
        if chunk.slots is NULL and not load_slots(log, chunk, slot):
            self.lose_chunk(log, slot)
            return
        log.drop_index(chunk)
        log.indexed_to = min(log.indexed_to, number)
        log.spilled_to = min(log.spilled_to, number)

    def drop_segment(self, uint32_t number):
        """A segment of the log is missing: the messages in it are lost; how many those were."""
        cdef SlotLog log
        cdef uint64_t position, level_bits, before = self.unreadable
        cdef Slot* entry
        for i, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if log is None:
                continue
            level_bits = <uint64_t>i << LEVEL_SHIFT
            for position in range(log.first_number * CHUNK_SLOTS, log.next_position):
                entry = self.entry_at(level_bits | position)
                if entry is not NULL and entry.content & 1 and entry.content >> 33 == number:
                    self.lose(level_bits | position)
        return self.unreadable - before

    def snapshot(self, bint clean):
        """What a checkpoint keeps of the queue. `clean`: nothing is out, so flags tell it all."""
        parts = []
        if self.mirror is not None:
            return self.mirror.snapshot()
        for i, level in enumerate((self.log,) if self.levels is None else self.levels):
            if level is not None and (<SlotLog>level).next_position:
                parts.append(encode_level(<SlotLog>level, i, clean, ALL_POSITIONS))
        return len(parts).to_bytes(2, "little") + b"".join(parts)

    def load_snapshot(self, bytes snapshot not None):
        """The queue as a checkpoint kept it. Raises ValueError when that cannot be."""
        if len(snapshot) < 2:
            raise ValueError("a queue in the checkpoint is cut short")
        if snapshot[:2] == MIRRORED:
            self.journal.on_mirrored(self).load_snapshot(snapshot)
            return len(snapshot)
        return self.load_levels(snapshot, 0)

    cdef int load_levels(self, bytes snapshot, size_t at) except -1:
        """Fills the levels; where their bytes end."""
        cdef SlotLog log
        cdef int count = int.from_bytes(snapshot[at:at + 2], "little")
        at += 2
        for _ in range(count):
            if at >= <size_t>len(snapshot):
                raise ValueError("a queue in the checkpoint is cut short")
            log = self.restored_level(<uint64_t>snapshot[at] << LEVEL_SHIFT)
            at = decode_level(log, snapshot, at)
            self.ready += log.ready
        # Nobody knows without a look at each: times to live are looked at from now on.
        self.may_expire = True
        return <int>at

    def finish_restore(self):
        """All that is in the log has come: what may have been delivered is flagged."""
        if self.mirror is not None:
            self.mirror.replayed()
        else:
            self.flag_opened()

    cdef int flag_opened(self) except -1:
        cdef SlotLog log
        for level in ((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if log is not None:
                log.flagged_below = max(log.flagged_below, log.opened)
        return 0

    # -- paging ------------------------------------------------------------------------------------

    def page_out(self, uint64_t keep):
        """Memory is short: only the next `keep` messages stay in it."""
        cdef SlotLog log
        for i, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if log is not None and (log.live or log.retained):
                page_out(log, self, keep)
                spill(log, self, <uint64_t>i << LEVEL_SHIFT)

    def write_indexes(self, int limit):
        """Write the indexes of full chunks that have none, up to a number; how many that were."""
        cdef SlotLog log
        cdef int written = 0
        for i, level in enumerate((self.log,) if self.levels is None else self.levels):
            log = <SlotLog>level
            if log is not None and (log.live or log.retained) and written < limit:
                written += write_indexes(log, self, <uint64_t>i << LEVEL_SHIFT, log.first_number,
                                         log.first_number + log.count, limit - written)
        return written

    @property
    def chunk_count(self):
        """How many chunks its messages are in."""
        levels = (self.log,) if self.levels is None else self.levels
        return sum((<SlotLog>level).count for level in levels if level is not None)
