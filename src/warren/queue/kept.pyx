"""The part of a queue that cursors see: what has left it and is kept, and what they may read.

A message that leaves at or behind the position of some cursor is *retained*: its slot and what it
holds stay, and only the queue's consumers see it no more. So a range of positions reads the same
however often it is read, until all cursors have trimmed it.

Every change is an operation of the queue: `cursor_operation` applies it and has the log remember
it, `restore_cursor` applies one that comes from the log, or from the master of a mirrored queue.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free

from warren.model.message cimport Message
from warren.model.ports cimport JournalPort, MirrorPort
from warren.queue.backlog cimport LEVEL_SHIFT, Backlog, position_of
from warren.queue.paging cimport load_slots
from warren.queue.replica cimport COPIED_RETAINED, Replicated
from warren.queue.slots cimport (
    CHUNK_SLOTS, LOGGED, Chunk, Slot, SlotLog, logged_as, message_of,
)
from warren.telemetry.event_buffer cimport EVENT_DRAIN

from warren.model.errors import AccessRefused
from warren.queue.cursors import Cursors, decode_cursors, time_operation


cdef class KeptBacklog(Replicated):
    """See the module's text."""

    def __cinit__(self, *args, **kwargs):
        self.kept_from = nothing_kept()
        self.opening_drain = ""

    def join_ring(self, MirrorPort mirror not None):
        """What was here before counts as committed, which does not say that it is on the disk."""
        self.alone_to = self.log.next_position
        Replicated.join_ring(self, mirror)

    def hand_on(self, Replicated heir not None):
        """Cursors go with the messages: nobody reads this one any more."""
        cdef KeptBacklog kept = <KeptBacklog?>heir
        Replicated.hand_on(self, heir)
        kept.cursors, self.cursors = self.cursors, None
        kept.kept_from, self.kept_from = self.kept_from, nothing_kept()
        kept.known_end, self.known_end = self.known_end, 0
        kept.alone_to, self.alone_to = self.alone_to, 0
        kept.marked_ms = self.marked_ms = 0
        self.opening_drain = ""

    def begin_anew(self, list heads not None):
        """See `Replicated`; cursors come with the image, if there are any."""
        Replicated.begin_anew(self, heads)
        self.cursors = None
        self.kept_from = nothing_kept()
        self.known_end = self.alone_to = 0

    def check_drained(self):
        """See QueuePort."""
        if self.opening_drain:
            raise AccessRefused(
                f"queue '{self.name}' is about to be drained by the cursor '{self.opening_drain}'")
        if self.cursors is not None and self.cursors.drain is not None:
            raise AccessRefused(
                f"queue '{self.name}' is drained by the cursor '{self.cursors.drain.name}'")

    # -- keeping for later -------------------------------------------------------------------------

    def hold(self, Message message not None, int64_t due_ms):
        """Keep a message that is not to be delivered from here; its slot."""
        cdef uint64_t slot = <uint64_t>self.log.append(message, due_ms, True, 0)
        self.ready += 1
        if self.durable and message.delivery_mode == PERSISTENT:
            self.keep(self.log, slot, message, due_ms, False)
        return slot

    def let_go(self, uint64_t slot):
        """Take a message that was held out; None when it could not be read."""
        cdef Slot* entry = self.entry_at(slot)
        cdef Message message
        if entry is NULL or not self.bring_in(slot, entry):
            return None
        message = message_of(entry)
        self.log.take(slot)
        self.ready -= 1
        self.left(self.log, slot)
        return message

    def held(self):
        """(slot, when it is due) of all that is held."""
        cdef uint64_t position
        cdef Slot* entry
        found = []
        for position in range(self.log.first_number * CHUNK_SLOTS, self.log.next_position):
            entry = self.entry_at(position)
            if entry is not NULL:
                found.append((position, entry.expires_ms))
        return found

    cdef int keep(self, SlotLog log, uint64_t slot, Message message, int64_t expires_ms,
                  bint opened) except -1:
        """A persistent message has come to a durable queue."""
        if self.journal is None:
            return 0
        log.at(position_of(slot)).flags |= logged_as(message)
        log.kept += 1
        log.kept_bytes += message.body_len
        if opened:
            log.opened = position_of(slot) + 1
        if self.events is not None and self.mirror is None:
            self.events.await_log(self.event_number, self.epoch, slot)
        return self.journal.stage(self, slot, expires_ms,
                                  opened | logged_as(message) | <int>log.stamp)

    # -- operations --------------------------------------------------------------------------------

    def cursor_operation(self, bytes operation not None):
        """Do one; the record of the log that tells it, 0: none. Raises ValueError.

        A mirrored queue does it when all replicas have it: then the answer is its index in the
        ring's log.
        """
        if self.run_count:
            # What left before the operation is told before it: a replay must come to the same.
            self.tell_gone()
        if self.mirror is not None:
            return self.mirror.change_cursors(operation)
        self.restore_cursor(operation)
        if not self.durable or self.journal is None or self.queue_id == 0:
            return 0
        return self.journal.cursor(self, operation)

    def apply_cursor(self, bytes operation not None):
        """Do one that the log is told otherwise."""
        self.restore_cursor(operation)

    cdef int restore_cursor(self, bytes operation) except -1:
        cdef uint64_t before = self.kept_from, drained
        if self.cursors is None:
            self.cursors = Cursors()
        drained = self.cursors.apply(operation)
        self.kept_from = self.cursors.floor
        if drained:
            self.drain_to(drained)
        if self.kept_from > before:
            self.release_kept(before, self.kept_from)
        return 0

    cdef int mark_time(self, int64_t now_ms) except -1:
        """Notes when the messages that now come have come."""
        self.marked_ms = now_ms
        if self.journal is not None:
            self.cursor_operation(time_operation(self.journal.to_wall(now_ms),
                                                 self.log.next_position))
        return 0

    cdef int left(self, SlotLog log, uint64_t slot) except -1:
        cdef uint64_t position = position_of(slot)
        cdef bint logged
        if position < self.kept_from or self.mirror is not None:
            return Backlog.left(self, log, slot)
        logged = log.at(position).flags & LOGGED
        log.retain(position)
        return self.note_gone(slot) if logged else 0

    cdef int drain_to(self, uint64_t end) except -1:
        """The cursor that is the consumer acknowledges: the operation itself tells that they left.
        """
        cdef SlotLog log = self.log
        cdef int64_t head = log.first_ready()
        while 0 <= head < <int64_t>end:
            if self.entry_at(<uint64_t>head) is not NULL:
                log.take(<uint64_t>head)
                self.ready -= 1
                self.drained += 1
                if self.events is not None and (self.mirror is None or self.mirror.acts):
                    self.note_event(EVENT_DRAIN, 0, <uint64_t>head, 1, 0)
                if <uint64_t>head >= self.kept_from:
                    log.retain(<uint64_t>head)
                else:
                    log.remove(<uint64_t>head)
            head = log.first_ready()
        return 0

    cdef int release_kept(self, uint64_t first, uint64_t end) except -1:
        """No cursor needs what is retained in a range."""
        cdef SlotLog log = self.log
        cdef uint64_t position = max(first, log.first_number * CHUNK_SLOTS)
        cdef Chunk* chunk
        end = min(end, log.next_position)
        while position < end and log.retained:
            chunk = log.chunk_at(position)
            if chunk is NULL or chunk.retained == 0:
                position = (position // CHUNK_SLOTS + 1) * CHUNK_SLOTS
                continue
            if log.is_retained(position) and self.entry_at(position) is not NULL:
                log.release(position)
            position += 1
        return 0

    # -- one of several replicas -------------------------------------------------------------------

    cdef int leave(self, SlotLog log, uint64_t position) except -1:
        """All replicas know that a message that is out has left: cursors may still need it."""
        if position < self.kept_from:
            log.remove(position)
        else:
            log.retain(position)
        return 0

    cdef int follow_gone(self, uint64_t first, uint64_t count) except -1:
        cdef uint64_t position
        cdef SlotLog log = self.log
        if self.kept_from == nothing_kept() and log.retained == 0:
            return Replicated.follow_gone(self, first, count)
        log.next_position = max(log.next_position, first + count)
        for position in range(first, first + count):
            # A copy may have brought it as one that has left already.
            if self.entry_at(position) is not NULL and not log.is_retained(position):
                log.take(position)
                self.leave(log, position)
                self.ready -= 1
        return 0

    cdef int remove_left(self, uint64_t first, uint64_t count) except -1:
        cdef uint64_t position
        cdef SlotLog log = self.log
        if self.kept_from == nothing_kept():
            return Replicated.remove_left(self, first, count)
        for position in range(first, first + count):
            if log.at(position) is not NULL:
                self.leave(log, position)
                self.leaving -= 1
        return 0

    cdef int mark_copied(self, uint64_t slot, int returns, int state) except -1:
        Replicated.mark_copied(self, slot, returns, state)
        if state & COPIED_RETAINED and self.levels is None and self.entry_at(slot) is not NULL:
            self.log.take(slot)
            self.log.retain(slot)
            self.ready -= 1
        return 0

    cdef int copy_state(self, uint64_t slot, Slot* entry) except -1:
        cdef int state = Replicated.copy_state(self, slot, entry)
        if self.levels is None and self.log.is_retained(slot):
            state |= COPIED_RETAINED
        return state

    def encode_cursors(self):
        """All about them but what is retained."""
        return b"" if self.cursors is None else self.cursors.encode()

    def load_cursors(self, bytes cursors not None):
        """As `encode_cursors` told it. Raises ValueError."""
        if cursors:
            self.cursors = decode_cursors(cursors)
            self.kept_from = self.cursors.floor

    # -- coming back from the log ------------------------------------------------------------------

    cdef int restore_gone(self, uint64_t first, uint64_t count) except -1:
        cdef uint64_t position, end = first + count
        cdef SlotLog log = self.log
        if self.levels is not None or end <= self.kept_from:
            return Backlog.restore_gone(self, first, count)
        if first < self.kept_from:
            Backlog.restore_gone(self, first, self.kept_from - first)
            first = self.kept_from
        if end > log.next_position:
            # Their publishes were lost to damage; their positions are not given out again.
            log.next_position = end
        for position in range(first, end):
            if self.entry_at(position) is not NULL and not log.is_retained(position):
                log.take(position)
                log.retain(position)
                self.ready -= 1
        return 0

    cdef list retained_runs(self):
        """(first, count) of retained messages that are in the log."""
        cdef SlotLog log = self.log
        cdef Chunk* chunk
        cdef uint64_t position, first = 0, count = 0
        cdef size_t i
        cdef int j
        runs = []
        for i in range(log.count):
            chunk = log.chunks[log.first + i]
            if chunk is NULL or chunk.retained == 0:
                continue
            for j in range(CHUNK_SLOTS):
                if not chunk.retained_bits[j >> 6] >> (j & 63) & 1:
                    continue
                if chunk.slots is NULL:
                    if not chunk.logged_bits[j >> 6] >> (j & 63) & 1:
                        continue
                elif not chunk.slots[j].flags & LOGGED:
                    continue
                position = (log.first_number + i) * CHUNK_SLOTS + <uint64_t>j
                if count and first + count == position:
                    count += 1
                    continue
                if count:
                    runs.append((first, count))
                first, count = position, 1
        if count:
            runs.append((first, count))
        return runs

    def snapshot(self, bint clean):
        """What a checkpoint keeps of the queue: messages, then cursors and what is kept for them.
        """
        levels = Backlog.snapshot(self, clean)
        return levels if self.mirror is not None else levels + self.encode_kept()

    cdef bytes encode_kept(self):
        cdef bytes marks = self.encode_marks()
        if self.cursors is None and not marks:
            return b""
        cursors = self.encode_cursors()
        runs = self.retained_runs()
        parts = [len(cursors).to_bytes(4, "little"), cursors, len(runs).to_bytes(4, "little")]
        for first, count in runs:
            parts.append(first.to_bytes(8, "little") + count.to_bytes(8, "little"))
        parts.append(marks)
        return b"".join(parts)

    cdef bytes encode_marks(self):
        """When messages came: number of levels (2), each with its priority (1) and its marks."""
        cdef list levels = [], parts = []
        cdef SlotLog log
        self.all_levels(levels)
        for i, level in levels:
            log = <SlotLog>level
            if log.live and log.arrivals.count:
                parts.append(bytes([i]) + log.arrivals.encode(self.journal.to_wall(1) - 1))
        return len(parts).to_bytes(2, "little") + b"".join(parts) if parts else b""

    cdef int load_marks(self, bytes snapshot, size_t at) except -1:
        """Where they end."""
        cdef size_t size = <size_t>len(snapshot), end
        cdef int count = int.from_bytes(snapshot[at:at + 2], "little")
        at += 2
        for _ in range(count):
            if at + 3 > size:
                raise ValueError("the marks of a queue in the checkpoint are cut short")
            end = at + 3 + 16 * <size_t>int.from_bytes(snapshot[at + 1:at + 3], "little")
            self.restored_level(<uint64_t>snapshot[at] << LEVEL_SHIFT).load_marks(
                snapshot[at + 1:end])
            at = end
        return <int>at

    def load_snapshot(self, bytes snapshot not None):
        """The queue as a checkpoint kept it. Raises ValueError when that cannot be."""
        return self.load_kept(snapshot, Backlog.load_snapshot(self, snapshot))

    cdef int load_kept(self, bytes snapshot, size_t at) except -1:
        """What stands there behind the messages; where it ends."""
        if at == <size_t>len(snapshot):
            return <int>at
        size = int.from_bytes(snapshot[at:at + 4], "little")
        runs_at = <Py_ssize_t>at + 8 + size
        if runs_at > len(snapshot):
            raise ValueError("the cursors of a queue in the checkpoint are cut short")
        self.load_cursors(snapshot[at + 4:runs_at - 4])
        end = runs_at + 16 * int.from_bytes(snapshot[runs_at - 4:runs_at], "little")
        if end > len(snapshot) or (self.levels is not None and (size or end > runs_at)):
            raise ValueError("the cursors of a queue in the checkpoint are cut short")
        for i in range(runs_at, end, 16):
            self.restore_gone(int.from_bytes(snapshot[i:i + 8], "little"),
                              int.from_bytes(snapshot[i + 8:i + 16], "little"))
        return end if end == len(snapshot) else self.load_marks(snapshot, <size_t>end)

    # -- what may be read --------------------------------------------------------------------------

    cdef uint64_t find_end(self) except? 0:
        """The position before which all is on the disk, of all replicas in sync. It never moves
        back."""
        cdef SlotLog log = self.log
        cdef JournalPort journal = self.journal
        cdef Slot* entry
        cdef Chunk* chunk
        cdef uint64_t place, end = log.next_position
        if journal is None or not self.durable:
            return log.next_position
        if self.mirror is not None:
            if not self.mirror.acts:
                # A mirror's copy: nothing comes into it before it is committed.
                return log.next_position
            end = log.committed
            if self.known_end >= self.alone_to:
                return end
        while self.known_end < end:
            chunk = log.chunk_at(self.known_end)
            if chunk is NULL or chunk.slots is NULL:
                self.known_end = min((self.known_end // CHUNK_SLOTS + 1) * CHUNK_SLOTS, end)
                continue
            entry = log.at(self.known_end)
            if entry is not NULL and entry.flags & LOGGED and not entry.content & 1:
                place = message_of(entry).place
                if place == 0 or place >= journal.persisted_end:
                    break
            self.known_end += 1
        return self.known_end

    @property
    def may_have_cursors(self):
        """With priorities positions are not in order."""
        return self.levels is None

    @property
    def readable_end(self):
        """Ranges up to here may be read: they will read the same after any crash."""
        return self.find_end()

    @property
    def next_position(self):
        """The position of the next message that comes."""
        return self.log.next_position

    @property
    def retained(self):
        """Messages that have left and are kept for cursors."""
        return self.log.retained

    @property
    def retained_bytes(self):
        return self.log.retained_bytes

    def first_kept(self):
        """The lowest position at which there is a message, or the end."""
        cdef SlotLog log = self.log
        cdef Chunk* chunk
        cdef size_t i
        cdef uint64_t bits
        cdef int j
        for i in range(log.count):
            chunk = log.chunks[log.first + i]
            if chunk is NULL or chunk.live == 0:
                continue
            for j in range(CHUNK_SLOTS):
                bits = chunk.ready_bits[j >> 6] | chunk.retained_bits[j >> 6]
                if (bits >> (j & 63) & 1) or (chunk.slots is not NULL and chunk.slots[j].content):
                    return (log.first_number + i) * CHUNK_SLOTS + <uint64_t>j
        return log.next_position

    def admit(self, uint64_t first, uint64_t end, uint64_t rows, uint64_t size,
              uint64_t found=0, uint64_t taken=0):
        """How far a batch goes that is to have so many rows and bytes at most: its end, its rows
        and bytes.

        A long way is walked in several: each begins where the last has ended, and is told how many
        rows and bytes there were before. A batch has at least one message, if there is one: a limit
        never stops a reader for good.
        """
        cdef SlotLog log = self.log
        cdef uint64_t position = first, next_chunk
        cdef Chunk* chunk
        cdef Slot* entry
        cdef bint spilled
        end = min(end, self.find_end())
        while position < end:
            next_chunk = (position // CHUNK_SLOTS + 1) * CHUNK_SLOTS
            chunk = log.chunk_at(position)
            if chunk is NULL or chunk.live == 0:
                position = min(next_chunk, end)
                continue
            spilled = chunk.slots is NULL
            if (spilled and position % CHUNK_SLOTS == 0 and next_chunk <= end
                    and found + chunk.live <= rows and taken + chunk.body_bytes <= size):
                # All of it, without a look at the disk.
                found += chunk.live
                taken += chunk.body_bytes
                position = next_chunk
                continue
            if spilled and not load_slots(log, chunk, next_chunk - CHUNK_SLOTS):
                # Whoever reads it is told.
                position = min(next_chunk, end)
                continue
            while position < end and position < next_chunk:
                entry = &chunk.slots[position % CHUNK_SLOTS]
                if entry.content:
                    if found and (found >= rows or taken + entry.body_len > size):
                        end = position
                        break
                    found += 1
                    taken += entry.body_len
                position += 1
            if spilled:
                free(chunk.slots)
                chunk.slots = NULL
        return position, found, taken
