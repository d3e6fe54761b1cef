"""The journal: what queues have the log remember, and get back from it.

A message is one record whatever the number of its queues: who keeps it, then its address, header
and body. What leaves a queue is one record of runs a turn. Each record about a queue carries the
queue's epoch and the index of the operation, one more than the last: a gap shows what damage took.

For every segment the journal counts how often something in it is needed; a segment that is not
needed may go once a checkpoint no longer speaks of it (`upkeep.py`). All layouts are in
docs/internals/wal-format.md.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from warren.model.message cimport Address, Message
from warren.model.ports cimport JournalPort, MirrorPort, QueuePort, Run
from warren.store.appender cimport (
    RECORD_HEADER_BYTES, Appender, pthread_mutex_lock, pthread_mutex_unlock,
)
from warren.store.batch_entry cimport add_entry
from warren.store.octets cimport load32, store32, store64
from warren.store.scanner cimport whole
from warren.wire.content cimport scan_content

from collections import deque

cdef enum:
    # How much is read to look at one record; most fit.
    LOOK_BYTES = 16384
    # Nobody waits for what leaves a queue: it is written with the next record that somebody waits
    # for, or when it has come to this, or by `finish_turn`. A sync of its own would only make the
    # next publish wait for two.
    LAZY_BYTES = 262144
    # More than this in memory on its way to the disk, and publishers should hold back.
    BEHIND_BYTES = 16777216
    # Addresses remembered for messages that come back.
    ADDRESSES_MAX = 4096


cdef bint content_fits(const uint8_t* payload, size_t n) noexcept:
    """Whether the lengths that a message record begins with can be true."""
    cdef uint64_t size
    if n < CONTENT_BYTES:
        return False
    size = <uint64_t>CONTENT_BYTES + <uint64_t>load32(payload) * TARGET_BYTES
    size += <uint64_t>load32(payload + 4) + load32(payload + 8) + load32(payload + 12)
    return size == n


@cython.final
cdef class Journal(JournalPort):
    """See the module's text."""

    def __init__(self, int64_t wall_offset_ms=0, uint32_t first_segment=1, uint32_t salt=0):
        """`first_segment` is the lowest number of a segment that there is, or will be."""
        self.salt = salt
        self.replaying = True
        self.queues = {}
        self.leaving = []
        self.opening = []
        self.ringing = []
        self.mirrored = []
        self.waiters = deque()
        self.addresses = {}
        self.wall_offset_ms = wall_offset_ms
        self.segments_from = first_segment
        self.last_segment = first_segment - 1

    def start(self, Appender log not None):
        """All that was in the log has come back: from now on it is written to."""
        self.log = log
        self.replaying = False
        self.advance()

    def __dealloc__(self):
        free(self.targets)
        free(self.segments)

    # -- segments ----------------------------------------------------------------------------------

    cdef Segment* segment(self, uint32_t number) noexcept:
        """The entry of a segment; NULL when none was made for it."""
        if number < self.segments_from or number - self.segments_from >= self.segments_room:
            return NULL
        return &self.segments[number - self.segments_from]

    cdef int make_segment(self, uint32_t number) except -1:
        cdef size_t room = self.segments_room if self.segments_room else 64
        cdef Segment* grown
        while number - self.segments_from >= room:
            room *= 2
        if room != self.segments_room:
            grown = <Segment*>realloc(self.segments, room * sizeof(Segment))
            if grown is NULL:
                raise MemoryError()
            memset(grown + self.segments_room, 0,
                   (room - self.segments_room) * sizeof(Segment))
            self.segments = grown
            self.segments_room = room
        self.segments[number - self.segments_from].exists = True
        if number > self.last_segment:
            self.last_segment = number
        return 0

    def add_segment(self, uint32_t number, uint64_t first_sequence, uint64_t size,
                    uint64_t kept=0, uint64_t live_bytes=0):
        """At the start: a segment that there is, and what a checkpoint knows of it."""
        cdef Segment* segment
        if number < self.segments_from:
            raise ValueError(f"segment {number} is older than any there should be")
        self.make_segment(number)
        segment = self.segment(number)
        segment.first_sequence = first_sequence
        segment.size = size
        segment.live = segment.kept = kept
        segment.live_bytes = live_bytes

    def list_segments(self):
        """(number, first sequence, size, needed, needed after a restart, body bytes) of each."""
        cdef uint32_t number
        cdef Segment* segment
        found = []
        for number in range(self.segments_from, self.last_segment + 1):
            segment = self.segment(number)
            if segment is not NULL and segment.exists:
                found.append((number, segment.first_sequence, segment.size, segment.live,
                              segment.kept, segment.live_bytes))
        return found

    def segment_first(self, uint32_t number):
        """The number of the first record of a segment; 0 when there is no such segment."""
        cdef Segment* segment = self.segment(number)
        return 0 if segment is NULL or not segment.exists else segment.first_sequence

    def forget_segment(self, uint32_t number):
        """The segment is deleted."""
        cdef Segment* segment = self.segment(number)
        if segment is not NULL:
            memset(segment, 0, sizeof(Segment))

    def cut_segment(self, uint32_t number, uint64_t size):
        """What a segment had behind its last record was cut off."""
        cdef Segment* segment = self.segment(number)
        if segment is not NULL:
            segment.size = size

    cdef void release(self, uint64_t place, uint32_t size, bint kept) noexcept:
        cdef Segment* segment = self.segment(<uint32_t>(place >> 32))
        if place == 0:
            self.unstaged += 1
            return
        if segment is NULL or segment.live == 0:
            return
        segment.live -= 1
        if kept:
            segment.kept -= segment.kept > 0
            segment.live_bytes -= min(segment.live_bytes, <uint64_t>size)

    cdef bint retain(self, uint64_t place, uint32_t size) noexcept:
        cdef Segment* segment = self.segment(<uint32_t>(place >> 32))
        if segment is NULL or not segment.exists:
            return False
        segment.live += 1
        return True

    def retain_kept(self, uint64_t place, uint32_t size):
        """What stands there is needed once more, also after a restart."""
        cdef Segment* segment = self.segment(<uint32_t>(place >> 32))
        if segment is not NULL and segment.exists:
            segment.live += 1
            segment.kept += 1
            segment.live_bytes += size

    # -- writing -----------------------------------------------------------------------------------

    cdef uint64_t seal(self, uint8_t* header, int kind, uint32_t queue_id, uint64_t epoch,
                       uint32_t length) except 0:
        """Ends a record begun with `log.reserve`; its place."""
        cdef Appender log = self.log
        cdef uint64_t sequence = log.finish(header, kind, 0, queue_id, epoch, length)
        cdef Segment* segment
        if log.segment != self.last_segment or self.segment(log.segment) is NULL:
            self.make_segment(log.segment)
            self.segment(log.segment).first_sequence = sequence
        segment = self.segment(log.segment)
        segment.size = log.segment_end
        self.appended_bytes += RECORD_HEADER_BYTES + length
        self.pending = True
        if kind != GONE and kind != REQUEUE:
            self.awaited = True
        return <uint64_t>log.segment << 32 | (log.segment_end - RECORD_HEADER_BYTES - length)

    cdef int stage(self, QueuePort queue, uint64_t slot, int64_t expires_ms,
                   int how) except -1:
        cdef Target* grown
        cdef Target* target
        cdef size_t room
        if self.target_count == self.target_room:
            room = self.target_room * 2 if self.target_room else 16
            grown = <Target*>realloc(self.targets, room * sizeof(Target))
            if grown is NULL:
                raise MemoryError()
            self.targets = grown
            self.target_room = room
        queue.operations += 1
        target = &self.targets[self.target_count]
        target.queue_id = queue.queue_id
        target.flags = <uint32_t>how & ~<uint32_t>TARGET_COPIED
        self.unstaged += 1 if how & TARGET_GONE else 0
        target.epoch = queue.epoch
        target.index = queue.operations
        target.slot = slot
        target.wall_ms = self.to_wall(expires_ms)
        target.gateway = target.sequence = 0
        if queue.mirror is not None:
            target.flags |= TARGET_PROMISED if queue.mirror.promises else 0
            target.gateway, target.sequence = queue.mirror.gateway, queue.mirror.sequence
            self.mirrored.append((self.target_count, queue))
            queue.mirror.staged()
        self.target_count += 1
        self.staged = True
        return 0

    cdef int commit(self, Message message) except -1:
        """Writes the message for the queues that have staged it."""
        cdef size_t count = self.target_count
        cdef Segment* segment
        if count == 0:
            return 0
        self.target_count = 0
        self.staged = False
        if self.batch is not None and message.place:
            add_entry(self.batch, message, count, <char*>self.targets, count * sizeof(Target))
        else:
            message.place = self.write_message(PUBLISH, message, self.targets, count)
            self.commit_mark = self.log.next_sequence - 1
        segment = self.segment(<uint32_t>(message.place >> 32))
        count -= min(count, self.unstaged)
        self.unstaged = 0
        segment.live += count
        segment.kept += count
        segment.live_bytes += <uint64_t>count * message.body_len
        if self.mirrored:
            self.tell_mirrors(message)
        return 0

    def tell_mirrors(self, Message message not None):
        """The message goes on to the other replicas of its mirrored queues."""
        cdef QueuePort queue
        cdef Target* target
        mirrored, self.mirrored = self.mirrored, []
        for i, queue in mirrored:
            target = &self.targets[<size_t>i]
            queue.mirror.gateway = target.gateway
            queue.mirror.sequence = target.sequence
            queue.mirror.published(message, target.slot, target.wall_ms, target.flags)

    cdef uint64_t write_copy(self, Message message, Target* target) except 0:
        """A message of another replica, for one queue; its place."""
        cdef Segment* segment
        cdef uint64_t place = self.write_message(PUBLISH, message, target, 1)
        segment = self.segment(<uint32_t>(place >> 32))
        segment.live += 1
        segment.kept += 1
        segment.live_bytes += message.body_len
        return place

    cdef uint64_t ring_record(self, QueuePort queue, int how, const uint8_t* data, size_t n,
                              bint lazy) except 0:
        """A record about the ring of a queue; the record's own number."""
        cdef uint8_t* header = self.log.reserve(RECORD_HEADER_BYTES + 9 + n)
        cdef bint awaited = self.awaited
        store64(header + RECORD_HEADER_BYTES, queue.operations)
        header[RECORD_HEADER_BYTES + 8] = <uint8_t>how
        memcpy(header + RECORD_HEADER_BYTES + 9, data, n)
        self.seal(header, RING, queue.queue_id, queue.epoch, <uint32_t>(9 + n))
        if lazy:
            self.awaited = awaited
        return self.log.next_sequence - 1

    def find_queue(self, uint32_t queue_id):
        """`queue_of` for Python."""
        return self.queue_of(queue_id)

    cdef QueuePort queue_of(self, uint32_t queue_id):
        """The queue with that number; a copy is made when the log speaks of it first."""
        queue = self.queues.get(queue_id)
        if queue is None and self.on_unknown is not None:
            queue = self.on_unknown(queue_id)
        return <QueuePort>queue

    cdef uint64_t write_message(self, int kind, Message message, Target* targets,
                                size_t count) except 0:
        """Appends a message record; its place."""
        cdef bytes address = message.address.wire
        cdef bytes hidden = b""
        cdef uint8_t* header
        cdef uint8_t* p
        cdef size_t n, address_len
        for key in message.address.hidden_keys:
            hidden += bytes([len(key)]) + key
        address_len = PyBytes_GET_SIZE(address) + PyBytes_GET_SIZE(hidden)
        n = (CONTENT_BYTES + count * TARGET_BYTES + address_len
             + <size_t>message.header_len + message.body_len)
        header = self.log.reserve(RECORD_HEADER_BYTES + n)
        p = header + RECORD_HEADER_BYTES
        store32(p, <uint32_t>count)
        store32(p + 4, <uint32_t>address_len)
        store32(p + 8, message.header_len)
        store32(p + 12, message.body_len)
        p += CONTENT_BYTES
        memcpy(p, targets, count * TARGET_BYTES)
        p += count * TARGET_BYTES
        memcpy(p, PyBytes_AS_STRING(address), PyBytes_GET_SIZE(address))
        p += PyBytes_GET_SIZE(address)
        memcpy(p, PyBytes_AS_STRING(hidden), PyBytes_GET_SIZE(hidden))
        p += PyBytes_GET_SIZE(hidden)
        memcpy(p, message.data, <size_t>message.header_len + message.body_len)
        self.messages_written += 1
        return self.seal(header, kind, targets[0].queue_id if count == 1 else 0,
                         targets[0].epoch if count == 1 else 0, <uint32_t>n)

    cdef int note_gone(self, QueuePort queue) except -1:
        self.leaving.append(queue)
        return 0

    cdef int gone(self, QueuePort queue, Run* runs, size_t count) except -1:
        self.operation(GONE, queue, runs, count * sizeof(Run))
        return 0 if queue.mirror is None else queue.mirror.gone(runs, count)

    cdef uint64_t short_record(self, int kind, QueuePort queue, uint64_t value) except 0:
        """A record that says one number of a queue; the record's own number."""
        cdef uint8_t* header = self.log.reserve(RECORD_HEADER_BYTES + 16)
        queue.operations += 1
        store64(header + RECORD_HEADER_BYTES, queue.operations)
        store64(header + RECORD_HEADER_BYTES + 8, value)
        self.seal(header, kind, queue.queue_id, queue.epoch, 16)
        if queue.mirror is not None:
            queue.mirror.said(kind, value)
        return self.log.next_sequence - 1

    cdef int returned(self, QueuePort queue, uint64_t slot) except -1:
        self.short_record(REQUEUE, queue, slot)
        return 0

    cdef uint64_t open_up(self, QueuePort queue, uint64_t slot) except 0:
        if queue.mirror is not None:
            # It counts when all replicas have it, and then the mirror has the queue deliver.
            self.short_record(WATERMARK, queue, slot)
            return queue.operations
        self.opening.append(queue)
        return self.short_record(WATERMARK, queue, slot)

    cdef uint64_t operation(self, int kind, QueuePort queue, const void* data, size_t n) except 0:
        """A record of one operation of a queue; the record's own number."""
        cdef uint8_t* header = self.log.reserve(RECORD_HEADER_BYTES + 8 + n)
        queue.operations += 1
        store64(header + RECORD_HEADER_BYTES, queue.operations)
        memcpy(header + RECORD_HEADER_BYTES + 8, data, n)
        self.seal(header, kind, queue.queue_id, queue.epoch, <uint32_t>(8 + n))
        return self.log.next_sequence - 1

    cdef uint64_t cursor(self, QueuePort queue, bytes operation) except 0:
        return self.operation(CURSOR, queue, <char*>operation, len(operation))

    cdef int place_aside(self, QueuePort queue, Message message) except -1:
        message.place = self.write_message(PLACED, message, self.targets, 0)
        return 0

    cdef uint64_t write_index(self, QueuePort queue, const uint8_t* data, size_t n) except 0:
        cdef uint8_t* header = self.log.reserve(RECORD_HEADER_BYTES + n)
        cdef uint64_t place
        cdef Segment* segment
        memcpy(header + RECORD_HEADER_BYTES, data, n)
        place = self.seal(header, INDEX, queue.queue_id, queue.epoch, <uint32_t>n)
        segment = self.segment(<uint32_t>(place >> 32))
        segment.live += 1
        segment.kept += queue.durable
        return place

    def put(self, int kind, bytes payload not None):
        """A record about no queue; its number."""
        cdef size_t n = PyBytes_GET_SIZE(payload)
        cdef uint8_t* header = self.log.reserve(RECORD_HEADER_BYTES + n)
        memcpy(header + RECORD_HEADER_BYTES, PyBytes_AS_STRING(payload), n)
        self.seal(header, kind, 0, 0, <uint32_t>n)
        return self.log.next_sequence - 1

    def move_message(self, Message message not None, list targets not None, uint64_t place):
        """Write a message once more for those of its queues that still need it there.

        `targets` are (queue, slot, index, epoch, flags, expiry by the wall clock).
        """
        cdef Target moved
        cdef uint64_t new_place
        cdef QueuePort queue
        cdef Segment* segment
        cdef bytearray packed = bytearray()
        for queue, slot, index, epoch, flags, wall_ms in targets:
            moved.gateway = moved.sequence = 0
            moved.queue_id = queue.queue_id
            moved.flags = flags
            moved.epoch = epoch
            moved.index = index
            moved.slot = slot
            moved.wall_ms = wall_ms
            packed += (<char*>&moved)[:sizeof(Target)]
        new_place = self.write_message(MOVED, message, <Target*><char*>packed, len(targets))
        message.place = new_place
        for queue, slot, *_ in targets:
            if queue.move(slot, place, message):
                self.release(place, message.body_len, True)
                segment = self.segment(<uint32_t>(new_place >> 32))
                segment.live += 1
                segment.kept += 1
                segment.live_bytes += message.body_len

    # -- reading back ------------------------------------------------------------------------------

    cdef bytes read_ahead(self, uint64_t place, size_t n):
        try:
            return self.read_at(place >> 32, place & 0xFFFFFFFF, n)
        except OSError:
            return None

    cdef Message message_in(self, bytes window, uint64_t start, uint64_t place):
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(window)
        cdef size_t at = <size_t>(place - start)
        cdef size_t n = whole(data, PyBytes_GET_SIZE(window), at, self.salt)
        if n == 0:
            return None
        if data[at + 16] != PUBLISH and data[at + 16] != MOVED and data[at + 16] != PLACED:
            return None
        cdef Message message = self.parse(data + at + RECORD_HEADER_BYTES, n - RECORD_HEADER_BYTES)
        if message is not None:
            message.place = place
        return message

    cdef Message fetch(self, uint64_t place):
        cdef bytes window = self.read_ahead(place, LOOK_BYTES)
        cdef size_t n
        if window is None or PyBytes_GET_SIZE(window) < RECORD_HEADER_BYTES:
            return None
        n = RECORD_HEADER_BYTES + <size_t>load32(<const uint8_t*>PyBytes_AS_STRING(window) + 4)
        if n > LOOK_BYTES:
            window = self.read_ahead(place, n)
            if window is None:
                return None
        return self.message_in(window, place, place)

    cdef bytes read_index(self, uint64_t place):
        cdef bytes window = self.read_ahead(place, LOOK_BYTES)
        cdef const uint8_t* data
        cdef size_t n
        if window is None:
            return None
        data = <const uint8_t*>PyBytes_AS_STRING(window)
        n = whole(data, PyBytes_GET_SIZE(window), 0, self.salt)
        if n == 0 or data[16] != INDEX:
            return None
        return window[RECORD_HEADER_BYTES:n]

    cdef Message parse(self, const uint8_t* payload, size_t n):
        """The message of a record; None when the record is none."""
        cdef Message message
        cdef const uint8_t* p
        cdef uint32_t address_len, header_len, body_len
        cdef bytes wire
        if not content_fits(payload, n):
            return None
        address_len = load32(payload + 4)
        header_len = load32(payload + 8)
        body_len = load32(payload + 12)
        p = payload + CONTENT_BYTES + <size_t>load32(payload) * TARGET_BYTES
        wire = PyBytes_FromStringAndSize(<const char*>p, address_len)
        address = self.addresses.get(wire)
        if address is None:
            address = decode_address(wire)
            if address is None:
                return None
            if len(self.addresses) >= ADDRESSES_MAX:
                self.addresses.clear()
            self.addresses[wire] = address
        message = Message.__new__(Message)
        message.allocate(header_len, body_len)
        memcpy(message.data, p + address_len, <size_t>header_len + body_len)
        message.address = <Address>address
        return message if scan_content(message) == 0 else None

    def read_message(self, bytes payload not None):
        """The message of a record's payload; None when it is none."""
        return self.parse(<const uint8_t*><char*>payload, len(payload))

    def fetch_message(self, uint64_t place):
        """The message at a place; None when it cannot be read."""
        return self.fetch(place)

    cdef int unreadable(self, QueuePort queue, uint64_t slot, uint64_t place,
                        uint64_t count) except -1:
        for told in (self.on_lost, self.on_unreadable):
            if told is not None:
                told(queue, slot, place, count)
        return 0

    # -- time --------------------------------------------------------------------------------------

    cdef int64_t to_wall(self, int64_t expires_ms) noexcept:
        return expires_ms + self.wall_offset_ms if expires_ms else 0

    cdef int64_t from_wall(self, int64_t wall_ms) noexcept:
        # Long past is as good as now; 0 would say "never".
        return max(wall_ms - self.wall_offset_ms, <int64_t>1) if wall_ms else 0

    cdef int end_turn(self) except -1:
        cdef QueuePort queue
        cdef MirrorPort mirror
        cdef list leaving
        while self.leaving or self.ringing:
            leaving = self.leaving
            self.leaving = []
            for queue in leaving:
                queue.tell_gone()
            leaving = self.ringing
            self.ringing = []
            for mirror in leaving:
                mirror.end_turn()
        if self.awaited or (self.pending and self.log.filling.length > LAZY_BYTES):
            self.push()
        return 0

    cdef int rings(self, MirrorPort mirror) except -1:
        self.ringing.append(mirror)
        return 0

    cdef int push(self) except -1:
        self.pending = self.awaited = False
        self.behind = self.log.filling.length > BEHIND_BYTES
        self.log.wake()
        return 0

    def finish_turn(self):
        """What the turn has brought is appended and on its way to the disk, all of it."""
        self.end_turn()
        if self.pending:
            self.push()

    def finish_publish(self, Message message not None):
        """`commit` for Python callers: all queues have been offered the message."""
        self.commit(message)

    def advance(self):
        """Take over how far the log has come. Raises OSError when it has failed."""
        self.log.check()
        pthread_mutex_lock(&self.log.mutex)
        self.persisted = self.log.persisted_sequence
        self.persisted_end = self.log.persisted_end
        self.behind = self.log.filling.length > BEHIND_BYTES
        pthread_mutex_unlock(&self.log.mutex)

    def when_persisted(self, uint64_t mark, action):
        """Do something once a record is on the disk; marks come in order."""
        self.waiters.append((mark, action))

    def moved_on(self, int64_t now_ms):
        """The log has come further: confirms, deliveries and answers that waited for it go on."""
        self.advance()
        confirming, self.confirming = self.confirming, []
        for channel in confirming:
            channel.release_confirms()
        opening, self.opening = self.opening, []
        for queue in opening:
            queue.watermark_kept(now_ms)
            if queue.is_opening:
                self.opening.append(queue)
        while self.waiters and self.waiters[0][0] <= self.persisted:
            self.waiters.popleft()[1]()

    @property
    def appended(self):
        """The number of the newest record."""
        return self.log.next_sequence - 1


cdef object decode_address(bytes wire):
    """The address of a message record: exchange, routing key, then hidden keys, as short strings.
    """
    cdef list parts = []
    cdef Py_ssize_t at = 0, n = PyBytes_GET_SIZE(wire), length
    while at < n:
        length = <uint8_t>PyBytes_AS_STRING(wire)[at]
        if at + 1 + length > n:
            return None
        parts.append(wire[at + 1:at + 1 + length])
        at += 1 + length
    if len(parts) < 2:
        return None
    return Address(parts[0], parts[1], tuple(parts[2:]))
