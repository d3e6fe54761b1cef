"""Where a queue keeps its messages: a log of slots with stable positions.

A message gets the next position when it comes in and keeps it until it leaves, so "requeue to its
original place" is setting a bit. A slot is *ready* (its bit is set), *out* (delivered, waiting for
a settlement), *retained* (it has left the queue and is kept for a cursor) or gone. Slots live in
chunks; a chunk whose messages are all gone is freed, also in the middle. The bits and the per-chunk
counts make finding the next ready slot cheap however many slots before it are out: a run of 100,000
costs some 800 chunk headers, not 100,000 looks.

With a journal, a slot may hold the message's place in the log instead of the message, and a chunk
may stand in the log altogether, leaving only its header here; `paging.pyx` moves them.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove, memset

from warren.model.message cimport Message
from warren.queue.marks cimport (
    ARRIVAL_MARKS_MAX, Marks, stamp_in, stamp_of, unknown_ms, wall_of,
)

cdef extern from *:
    int ctz64 "__builtin_ctzll"(unsigned long long) nogil

cdef enum:
    # A position further ahead than this many chunks is no position: the log has been tampered with.
    SKIPPED_CHUNKS_MAX = 1 << 26


# Seen by the collector, but not emptied by it: `__dealloc__` needs the journal.
@cython.final
@cython.no_gc_clear
cdef class SlotLog:
    """Positions, and the message at each."""

    def __cinit__(self, JournalPort journal=None, bint durable=False):
        self.durable = durable
        self.chunks = NULL
        self.spare = NULL
        self.journal = journal
        self.arrivals = Marks(ARRIVAL_MARKS_MAX)
        self.marked_ms = unknown_ms()

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.first, self.first + self.count):
            if self.chunks[i] is not NULL:
                self.free_chunk(i)
        free(self.chunks)
        if self.spare is not NULL:
            free(self.spare.slots)
            free(self.spare)

    cdef void free_chunk(self, size_t i) noexcept:
        """Frees a chunk and whatever is left in it."""
        cdef Chunk* chunk = self.chunks[i]
        cdef int j
        if chunk.slots is not NULL and chunk.live:
            for j in range(CHUNK_SLOTS):
                if chunk.slots[j].content:
                    self.drop_content(&chunk.slots[j])
        self.drop_index(chunk)
        self.chunks[i] = NULL
        if self.spare is NULL and chunk.slots is not NULL:
            self.spare = chunk
        else:
            free(chunk.slots)
            free(chunk)

    cdef void drop_content(self, Slot* slot) noexcept:
        """The slot lets go of its message, in memory and in the log."""
        cdef PyObject* held
        if slot.content & 1:
            self.journal.release(slot.content >> 1, slot.body_len, slot.flags & LOGGED)
        else:
            held = <PyObject*><void*>slot.content
            if self.journal is not None:
                self.journal.resident_bytes -= cost_of(<Message>held)
                if slot.flags & LOGGED:
                    self.journal.release((<Message>held).place, slot.body_len, True)
            Py_XDECREF(held)
        slot.content = 0

    cdef void drop_index(self, Chunk* chunk) noexcept:
        """The slots are no longer as they stand in the log."""
        if chunk.index_place:
            self.journal.release(chunk.index_place, 0, chunk.index_kept)
            chunk.index_place = 0

    cdef void unkeep_index(self, Chunk* chunk) noexcept:
        """Nothing that the index names survives a restart: no checkpoint speaks of it."""
        if chunk.index_place and chunk.index_kept:
            chunk.index_kept = False
            self.journal.retain(chunk.index_place, 0)
            self.journal.release(chunk.index_place, 0, True)

    cdef void disown(self) noexcept:
        """The queue is deleted: what is left of it is needed until it is dropped, and not kept."""
        cdef size_t i
        cdef int j
        cdef Chunk* chunk
        cdef Slot* slot
        for i in range(self.first, self.first + self.count):
            chunk = self.chunks[i]
            if chunk is NULL or chunk.slots is NULL:
                continue
            self.unkeep_index(chunk)
            for j in range(CHUNK_SLOTS):
                slot = &chunk.slots[j]
                if slot.content == 0 or not slot.flags & LOGGED:
                    continue
                slot.flags &= ~LOGGED
                if slot.content & 1:
                    self.journal.retain(slot.content >> 1, slot.body_len)
                    self.journal.release(slot.content >> 1, slot.body_len, True)
                else:
                    self.journal.release(message_of(slot).place, slot.body_len, True)
        self.durable = False

    cdef int make_room(self) except -1:
        """Room for one more chunk in the directory."""
        cdef size_t capacity
        cdef Chunk** grown
        if self.first + self.count < self.capacity:
            return 0
        if self.first > self.capacity // 2:
            memmove(self.chunks, self.chunks + self.first, self.count * sizeof(Chunk*))
            self.first = 0
            return 0
        capacity = self.capacity * 2 if self.capacity else 4
        grown = <Chunk**>realloc(self.chunks, capacity * sizeof(Chunk*))
        if grown is NULL:
            raise MemoryError()
        self.chunks = grown
        self.capacity = capacity
        return 0

    cdef Chunk* new_chunk(self) except NULL:
        cdef Chunk* chunk
        cdef Slot* slots
        if self.spare is not NULL:
            chunk = self.spare
            slots = chunk.slots
            self.spare = NULL
            memset(slots, 0, CHUNK_SLOTS * sizeof(Slot))
            memset(chunk, 0, sizeof(Chunk))
            chunk.slots = slots
            return chunk
        chunk = <Chunk*>calloc(1, sizeof(Chunk))
        slots = <Slot*>calloc(CHUNK_SLOTS, sizeof(Slot))
        if chunk is NULL or slots is NULL:
            free(chunk)
            free(slots)
            raise MemoryError()
        chunk.slots = slots
        return chunk

    cdef Chunk* chunk_for(self, uint64_t number) except NULL:
        """The chunk of that number at the new end of the directory, made if need be."""
        cdef size_t i
        if self.count and number >= self.first_number + self.count:
            # An empty one at the end was kept for messages that now come later.
            i = self.first + self.count - 1
            if self.chunks[i] is not NULL and self.chunks[i].live == 0:
                self.free_chunk(i)
                self.trim()
        if self.count == 0:
            self.first_number = number
        elif number >= self.first_number + self.count + SKIPPED_CHUNKS_MAX:
            raise ValueError(f"no queue has a position in chunk {number}")
        while number >= self.first_number + self.count:
            self.make_room()
            self.chunks[self.first + self.count] = NULL
            self.count += 1
        i = self.first + <size_t>(number - self.first_number)
        if self.chunks[i] is NULL:
            self.chunks[i] = self.new_chunk()
        return self.chunks[i]

    cdef int64_t append(self, Message message, int64_t expires_ms, bint ready,
                        uint8_t flags) except -1:
        cdef uint64_t position = self.next_position
        cdef uint64_t number = position // CHUNK_SLOTS
        cdef Chunk* chunk
        cdef Slot* slot
        cdef int j = position % CHUNK_SLOTS
        if self.count == 0 or number >= self.first_number + self.count:
            chunk = self.chunk_for(number)
        else:
            chunk = self.chunks[self.first + self.count - 1]
            if chunk is NULL:
                chunk = self.chunk_for(number)
        slot = &chunk.slots[j]
        Py_INCREF(message)
        slot.content = <uint64_t><void*>message
        slot.expires_ms = expires_ms
        slot.body_len = message.body_len
        slot.returns = 0
        slot.flags = flags
        chunk.live += 1
        self.live += 1
        self.live_bytes += message.body_len
        self.next_position = position + 1
        if self.journal is not None:
            self.journal.resident_bytes += cost_of(message)
        if ready:
            chunk.ready_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
            chunk.ready += 1
            if self.ready == 0:
                self.hint = position
            self.ready += 1
            self.ready_bytes += message.body_len
        return <int64_t>position

    cdef Slot* restore(self, uint64_t position) except NULL:
        """An empty slot for a message of the log, at its old position, counted as ready."""
        cdef Chunk* chunk
        cdef int j = position % CHUNK_SLOTS
        if position < self.next_position:
            raise ValueError(f"position {position} comes again")
        chunk = self.chunk_for(position // CHUNK_SLOTS)
        chunk.live += 1
        chunk.ready += 1
        chunk.ready_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
        if self.ready == 0:
            self.hint = position
        self.live += 1
        self.ready += 1
        self.next_position = position + 1
        return &chunk.slots[j]

    cdef int make_room_before(self, uint64_t number) except -1:
        """The directory begins with this chunk, or an earlier one."""
        cdef size_t more = <size_t>(self.first_number - number), i
        cdef Chunk** grown
        if number >= self.first_number:
            return 0
        if more > SKIPPED_CHUNKS_MAX:
            raise ValueError(f"no queue has a position in chunk {number}")
        if self.first < more:
            grown = <Chunk**>realloc(self.chunks, (self.capacity + more) * sizeof(Chunk*))
            if grown is NULL:
                raise MemoryError()
            self.chunks = grown
            self.capacity += more
            memmove(grown + self.first + more, grown + self.first, self.count * sizeof(Chunk*))
            self.first += more
        for i in range(self.first - more, self.first):
            self.chunks[i] = NULL
        self.first -= more
        self.count += more
        self.first_number = number
        return 0

    cdef Slot* fill(self, uint64_t position) except NULL:
        """As `restore`, for a message of a copy: it may come before others that are there."""
        cdef uint64_t number = position // CHUNK_SLOTS
        cdef Chunk* chunk
        cdef int j = position % CHUNK_SLOTS
        cdef size_t i
        if position >= self.next_position:
            return self.restore(position)
        if self.count and number < self.first_number:
            self.make_room_before(number)
        if self.count == 0 or number >= self.first_number + self.count:
            chunk = self.chunk_for(number)
        else:
            i = self.first + <size_t>(number - self.first_number)
            if self.chunks[i] is NULL:
                self.chunks[i] = self.new_chunk()
            chunk = self.chunks[i]
        if chunk.slots is NULL or chunk.slots[j].content:
            raise ValueError(f"position {position} comes again")
        chunk.live += 1
        chunk.ready += 1
        chunk.ready_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
        self.drop_index(chunk)
        if self.ready == 0 or position < self.hint:
            self.hint = position
        self.live += 1
        self.ready += 1
        return &chunk.slots[j]

    cdef void make_all_ready(self) noexcept:
        """Whatever is out is back at its place."""
        cdef size_t i
        cdef int j
        cdef Chunk* chunk
        for i in range(self.first, self.first + self.count):
            chunk = self.chunks[i]
            if (chunk is NULL or chunk.slots is NULL
                    or chunk.ready + chunk.retained == chunk.live):
                continue
            for j in range(CHUNK_SLOTS):
                if chunk.slots[j].content and not (
                        chunk.ready_bits[j >> 6] | chunk.retained_bits[j >> 6]) >> (j & 63) & 1:
                    self.put_back((self.first_number + (i - self.first)) * CHUNK_SLOTS
                                  + <uint64_t>j)

    cdef int64_t first_ready(self) noexcept:
        """The lowest ready position, or -1."""
        cdef uint64_t number
        cdef size_t i
        cdef int word, start
        cdef uint64_t bits
        cdef Chunk* chunk
        if self.ready == 0:
            return -1
        number = self.hint // CHUNK_SLOTS
        start = self.hint % CHUNK_SLOTS
        if number < self.first_number:
            number = self.first_number
            start = 0
        for i in range(number - self.first_number, self.count):
            chunk = self.chunks[self.first + i]
            if chunk is not NULL and chunk.ready:
                for word in range(start >> 6, CHUNK_WORDS):
                    bits = chunk.ready_bits[word]
                    if word == start >> 6:
                        bits &= (~<uint64_t>0) << (start & 63)
                    if bits:
                        self.hint = ((self.first_number + i) * CHUNK_SLOTS
                                     + <uint64_t>(word * 64) + <uint64_t>ctz64(bits))
                        return <int64_t>self.hint
            start = 0
        return -1

    cdef Chunk* chunk_at(self, uint64_t position) noexcept:
        """The chunk of a position; NULL when nothing of it is left."""
        return self.chunk_of(position) if self.covers(position) else NULL

    cdef Slot* at(self, uint64_t position) noexcept:
        """The slot of a live message; NULL when there is none, or the chunk is in the log only."""
        cdef Chunk* chunk = self.chunk_at(position)
        if (chunk is NULL or chunk.slots is NULL
                or chunk.slots[position % CHUNK_SLOTS].content == 0):
            return NULL
        return &chunk.slots[position % CHUNK_SLOTS]

    cdef void take(self, uint64_t position) noexcept:
        """A ready message goes out."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        chunk.ready_bits[j >> 6] &= ~((<uint64_t>1) << (j & 63))
        chunk.ready -= 1
        self.ready -= 1
        self.ready_bytes -= chunk.slots[j].body_len
        if position == self.hint:
            self.hint = position + 1

    cdef void put_back(self, uint64_t position) noexcept:
        """A message that was out is ready again, at its old place."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        chunk.ready_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
        chunk.ready += 1
        self.drop_index(chunk)
        if self.ready == 0 or position < self.hint:
            self.hint = position
        self.ready += 1
        self.ready_bytes += chunk.slots[j].body_len

    cdef void remove(self, uint64_t position) noexcept:
        """A message that is out leaves for good."""
        self.uncount(&self.chunk_of(position).slots[position % CHUNK_SLOTS])
        self.drop_slot(position)

    cdef void uncount(self, Slot* slot) noexcept:
        """It is not one of the queue's any more."""
        self.live -= 1
        self.live_bytes -= slot.body_len
        if slot.flags & LOGGED:
            self.kept -= 1
            self.kept_bytes -= slot.body_len

    cdef void retain(self, uint64_t position) noexcept:
        """A message that is out leaves the queue, and stays where it is for the queue's cursors."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        chunk.retained_bits[j >> 6] |= (<uint64_t>1) << (j & 63)
        chunk.retained += 1
        self.retained += 1
        self.retained_bytes += chunk.slots[j].body_len
        self.uncount(&chunk.slots[j])

    cdef void unretain(self, uint64_t position) noexcept:
        """The other way round: it is out again. Its chunk's slots are in memory."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        cdef Slot* slot = &chunk.slots[j]
        chunk.retained_bits[j >> 6] &= ~((<uint64_t>1) << (j & 63))
        chunk.retained -= 1
        self.retained -= 1
        self.retained_bytes -= slot.body_len
        self.live += 1
        self.live_bytes += slot.body_len
        if slot.flags & LOGGED:
            self.kept += 1
            self.kept_bytes += slot.body_len

    cdef void release(self, uint64_t position) noexcept:
        """No cursor needs a retained message any more. Its chunk's slots are in memory."""
        cdef Chunk* chunk = self.chunk_of(position)
        cdef int j = position % CHUNK_SLOTS
        chunk.retained_bits[j >> 6] &= ~((<uint64_t>1) << (j & 63))
        chunk.retained -= 1
        self.retained -= 1
        self.retained_bytes -= chunk.slots[j].body_len
        self.drop_slot(position)

    cdef void drop_slot(self, uint64_t position) noexcept:
        cdef size_t i = self.first + <size_t>(position // CHUNK_SLOTS - self.first_number)
        cdef Chunk* chunk = self.chunks[i]
        chunk.live -= 1
        self.drop_content(&chunk.slots[position % CHUNK_SLOTS])
        if chunk.live == 0:
            # The chunk that is being filled is kept: more messages are coming to it.
            if position // CHUNK_SLOTS != self.next_position // CHUNK_SLOTS:
                self.free_chunk(i)
                if i == self.first:
                    self.trim()

    cdef void trim(self) noexcept:
        """Forgets freed chunks at the old end."""
        while self.count and self.chunks[self.first] is NULL:
            self.first += 1
            self.first_number += 1
            self.count -= 1
        if self.count == 0:
            self.first = 0

    # -- when they came ----------------------------------------------------------------------------

    cdef int mark(self, int64_t now_ms) except -1:
        """Messages that are appended from here on have come now."""
        self.marked_ms = now_ms
        if self.journal is not None:
            self.stamp = stamp_of(self.journal.to_wall(max(now_ms, <int64_t>1)))
        if self.live == 0:
            self.arrivals.clear()
        else:
            self.arrivals.forget_before(self.first_number * CHUNK_SLOTS)
        return self.arrivals.note(self.next_position, now_ms)

    cdef int mark_stamp(self, uint64_t position, uint32_t flags) except -1:
        """The message at a position has come when its record says, or another replica."""
        cdef uint32_t stamp = stamp_in(flags)
        cdef int64_t at_ms
        if position + 1 == self.next_position and stamp == self.stamp:
            return 0
        # What `to_wall` adds is the time at which the clock that queues use began.
        at_ms = self.journal.to_wall(1) - 1
        at_ms = wall_of(stamp, at_ms) - at_ms if stamp else unknown_ms()
        if position + 1 < self.next_position:
            # A copy brings what others came after.
            return self.arrivals.insert(position, at_ms)
        self.marked_ms = at_ms
        self.stamp = stamp
        self.arrivals.forget_before(self.first_number * CHUNK_SLOTS)
        return self.arrivals.note(position, at_ms)

    cdef uint32_t stamp_at(self, uint64_t position) noexcept:
        """When the message there has come, for a record; 0: nobody knows."""
        cdef int64_t at_ms = self.arrivals.at(position)
        if at_ms == unknown_ms() or self.journal is None:
            return 0
        return stamp_of(self.journal.to_wall(1) - 1 + at_ms)

    cdef void cut_back(self, uint64_t position) noexcept:
        """There are no messages from there on; others will come.

        An empty chunk that was kept for the next ones goes, too: they come before it now.
        None of those that will come may be delivered yet: the other replicas know of no watermark
        beyond them.
        """
        cdef size_t i
        self.next_position = position
        self.opened = min(self.opened, position)
        while self.count and self.first_number + self.count - 1 > position // CHUNK_SLOTS:
            i = self.first + self.count - 1
            if self.chunks[i] is not NULL:
                self.free_chunk(i)
            self.count -= 1
        self.trim()
        self.arrivals.forget_from(position)
        self.marked_ms = unknown_ms()
        self.stamp = 0

    cdef int load_marks(self, bytes data) except -1:
        """As a checkpoint has them."""
        self.arrivals.load(data, self.journal.to_wall(1) - 1)
        self.marked_ms = self.arrivals.newest_ms()
        self.stamp = 0 if self.marked_ms == unknown_ms() else stamp_of(
            self.journal.to_wall(1) - 1 + self.marked_ms)
        return 0

    cdef int64_t first_live(self) noexcept:
        """The position of the oldest message that has not left, or -1."""
        cdef size_t i
        cdef int j
        cdef Chunk* chunk
        for i in range(self.count):
            chunk = self.chunks[self.first + i]
            if chunk is NULL or chunk.live == chunk.retained:
                continue
            for j in range(CHUNK_SLOTS):
                if chunk.retained_bits[j >> 6] >> (j & 63) & 1:
                    continue
                if (chunk.ready_bits[j >> 6] >> (j & 63) & 1
                        or (chunk.slots is not NULL and chunk.slots[j].content)):
                    return <int64_t>((self.first_number + i) * CHUNK_SLOTS + <uint64_t>j)
        return -1
