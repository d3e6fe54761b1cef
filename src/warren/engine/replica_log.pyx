"""One queue's log of operations on one node, with the copy of the queue that it leads to.

Implements `replication.log_port.LogPort` over a queue and the node's journal. What other replicas
send is written at once and applied when all have it. The newest operations stay in memory, for
those that lack only them. How the master's own operations get here is in `mirror_log.pyx`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.engine.made cimport Made
from warren.engine.ring_operations cimport (
    OP_CURSOR, OP_GONE, OP_OUT, OP_PUBLISH, OP_REFUSED, OP_REQUEUE, OP_USED, OP_VIEW,
    OP_WATERMARK, VIEW_COLD, VIEW_PROMOTED, Operation, bytes_of, parse_operations, slots_of,
    write_operation, write_publish,
)
from warren.model.message cimport Message
from warren.model.ports cimport MirrorPort, Run
from warren.queue.backlog cimport LEVEL_SHIFT, position_of
from warren.queue.queue cimport Queue
from warren.queue.slots cimport CHUNK_SLOTS, TRANSIENT, Slot, SlotLog
from warren.store.journal cimport (
    RING_BEGIN, RING_COMMIT, RING_DROP, RING_EPOCH, RING_GAP, RING_OPERATION, RING_RESET,
    RING_TRUNCATE, TARGET_COPIED, TARGET_OPENED, TARGET_TRANSIENT, Journal, Target,
)
from warren.wire.output cimport Output

from collections import deque
from struct import unpack_from

import msgspec

from warren.engine.ring_operations import split_batch
from warren.engine.salvaging import index_of
from warren.replication.lineage import Lineage
from warren.replication.types import Batch

cdef enum:
    # A commit is noted in the log after so many bytes of operations.
    COMMIT_BYTES = 131072
    # Gateways whose newest publish is known; the one that was silent longest is forgotten.
    GATEWAYS_MAX = 1024
    IMAGES_MAX = 16

NO_HEAD = 1 << 53


cdef class ReplicaLog(MirrorPort):
    """See the module's text."""

    def __init__(self, Queue queue not None, Journal journal not None,
                 uint64_t retain_bytes=64 << 20):
        self.queue = queue
        self.journal = journal
        self.retain_bytes = retain_bytes
        self.lineage = Lineage()
        self.last_index = self.applied_index = self.commit_index = queue.operations
        self.gap = (0, 0)
        self.batches = []
        self.tail = deque()
        self.seen = {}
        self.refused = {}
        self.written = deque()
        self.made = Made()
        self.is_verified = True
        self.image_positions = {}
        self.scans = {}

    # -- looking -----------------------------------------------------------------------------------

    @property
    def first_retained(self):
        if self.batches_from < <size_t>len(self.batches):
            return self.batches[self.batches_from].first
        return self.last_index + 1

    @property
    def head_index(self):
        """Beyond the newest image of which all messages have gone."""
        cdef uint64_t beyond = 0
        heads = {level: first for level, _, first, _, _ in self.queue.level_heads()}
        if self.queue.ready + self.queue.unacked + self.queue.leaving + self.queue.retained == 0:
            return NO_HEAD
        for at, ends in self.image_positions.items():
            if all(heads.get(level, end) >= end for level, end in ends.items()):
                beyond = max(beyond, at)
        return beyond + 1

    # -- operations --------------------------------------------------------------------------------

    cdef int ring(self) except -1:
        """`end_turn` must be called in this turn."""
        if not self.ringing:
            self.ringing = True
            self.journal.rings(self)
        return 0

    cdef int keep(self, object batch) except -1:
        """A batch is written and in its place."""
        self.batches.append(batch)
        self.made.note(batch.first, <uint64_t>PyBytes_GET_SIZE(batch.data), self.turn)
        self.retained_bytes += <uint64_t>(PyBytes_GET_SIZE(batch.data) + BATCH_BYTES)
        self.unsaid_bytes += <uint64_t>PyBytes_GET_SIZE(batch.data)
        self.lineage.extend(batch.epoch, batch.first)
        self.last_index = batch.last
        return self.ring()

    def append(self, batch not None):
        """Operations that follow the last one. They are not applied yet."""
        cdef Operation operation
        cdef list operations = parse_operations(batch.data, batch.first, batch.epoch)
        if <uint64_t>len(operations) != batch.last - batch.first + 1:
            raise ValueError(f"a batch of {len(operations)} operations says {batch.last}")
        self.copying = self.has_heard = True
        self.queue.epoch = batch.epoch
        try:
            for operation in operations:
                self.write(operation)
                self.tail.append(operation)
        finally:
            self.copying = False
        self.keep(batch)

    cdef int write(self, Operation operation) except -1:
        """Into the node's log, as the master has it in its own."""
        cdef Target target
        cdef Queue queue = self.queue
        cdef uint64_t slot
        cdef const uint8_t* data
        if operation.kind == OP_PUBLISH:
            queue.operations += 1
            target.queue_id = queue.queue_id
            target.flags = operation.flags
            target.epoch = operation.epoch
            target.index = operation.index
            target.slot = operation.slot
            target.wall_ms = operation.wall_ms
            target.gateway = operation.gateway
            target.sequence = operation.sequence
            operation.message.place = self.journal.write_copy(operation.message, &target)
            operation.place = operation.message.place
            return 0
        data = <const uint8_t*>PyBytes_AS_STRING(operation.data)
        if operation.kind == OP_GONE:
            return self.journal.gone(queue, <Run*>data, <size_t>len(operation.data) // 16)
        if operation.kind == OP_REQUEUE or operation.kind == OP_WATERMARK:
            memcpy(&slot, data, 8)
            self.journal.short_record(operation.kind, queue, slot)
            return 0
        queue.operations += 1
        record = bytes([operation.kind]) + operation.data
        self.journal.ring_record(queue, RING_OPERATION, <const uint8_t*>PyBytes_AS_STRING(record),
                                 len(record), False)
        return 0

    def read(self, uint64_t first, size_t bytes_max):
        """Operations from `first` on, about `bytes_max` of them, at least one."""
        cdef size_t low = self.batches_from, high = <size_t>len(self.batches), middle, size = 0
        found = []
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last < first:
                low = middle + 1
            else:
                high = middle
        while low < <size_t>len(self.batches) and (size == 0 or size < bytes_max):
            batch = self.batches[low]
            if batch.first < first:
                start, end, count = split_batch(batch.data, first - batch.first, len(batch.data))
                batch = Batch(first, first + count - 1, batch.epoch, batch.data[start:end])
            found.append(batch)
            size += <size_t>len(batch.data)
            low += 1
        return found

    # -- applying ----------------------------------------------------------------------------------

    def apply_to(self, uint64_t index):
        """All replicas in sync have the operations up to here."""
        cdef Operation operation
        while self.tail:
            operation = <Operation>self.tail[0]
            if operation.index > index:
                break
            self.tail.popleft()
            self.apply(operation)
        self.commit_index = self.applied_index = index
        self.forget_old()

    cdef int apply(self, Operation operation) except -1:
        cdef Queue queue = self.queue
        cdef uint64_t slot, gateway, sequence
        cdef const uint8_t* data
        if operation.kind == OP_PUBLISH:
            if not queue.follow_message(operation.slot, operation.message, operation.place,
                                        operation.body_len,
                                        self.journal.from_wall(operation.wall_ms),
                                        operation.flags & TARGET_OPENED,
                                        operation.flags & TARGET_TRANSIENT):
                self.journal.release(operation.place, operation.body_len, True)
            queue.note_arrival(operation.slot, operation.flags)
            operation.message = None
            return self.note_seen(operation.gateway, operation.sequence)
        data = <const uint8_t*>PyBytes_AS_STRING(operation.data)
        if operation.kind == OP_GONE:
            return self.apply_gone(operation.data)
        if operation.kind == OP_REQUEUE:
            memcpy(&slot, data, 8)
            return queue.restore_returned(slot)
        if operation.kind == OP_WATERMARK:
            memcpy(&slot, data, 8)
            return queue.restore_opened(slot)
        if operation.kind == OP_OUT:
            self.known_out = slots_of(operation.data)
            return 0
        if operation.kind == OP_VIEW:
            return self.apply_view(data[8] if len(operation.data) == 9 else 0)
        if operation.kind == OP_USED:
            self.used_at = operation.index
            return 0
        if operation.kind == OP_CURSOR:
            return queue.restore_cursor(operation.data)
        if operation.kind == OP_REFUSED and len(operation.data) == 16:
            memcpy(&gateway, data, 8)
            memcpy(&sequence, data + 8, 8)
            self.note_refused(gateway, sequence)
        return 0

    cdef int apply_view(self, int how) except -1:
        """Another has served: what may have been delivered is flagged, if it is not known."""
        known, self.known_out = self.known_out, None
        if how & VIEW_COLD:
            self.queue.forget_transient()
            self.used_at = 0
        if not how & VIEW_PROMOTED:
            return 0
        if known is None:
            return self.queue.flag_opened()
        self.queue.flag(known)
        return 0

    cdef int apply_gone(self, bytes runs) except -1:
        cdef const Run* run = <const Run*>PyBytes_AS_STRING(runs)
        cdef size_t i
        for i in range(<size_t>len(runs) // sizeof(Run)):
            self.queue.follow_gone(run[i].first, run[i].count)
        return 0

    cdef int note_seen(self, uint64_t gateway, uint64_t sequence) except -1:
        if gateway:
            # The one that spoke last stands last.
            self.seen.pop(gateway, None)
            self.seen[gateway] = sequence
            if len(self.seen) > GATEWAYS_MAX:
                oldest = next(iter(self.seen))
                del self.seen[oldest]
                self.refused.pop(oldest, None)
        return 0

    def note_refused(self, gateway, sequence):
        numbers = self.refused.setdefault(gateway, deque(maxlen=REFUSALS_MAX))
        numbers.append(sequence)

    def forget_old(self):
        """Operations that everybody has are kept only as long as there is room for them."""
        cdef size_t count = <size_t>len(self.batches)
        while self.batches_from < count and self.retained_bytes > self.retain_bytes:
            batch = self.batches[self.batches_from]
            if batch.last > self.applied_index:
                break
            self.retained_bytes -= <uint64_t>(len(batch.data) + BATCH_BYTES)
            self.batches[self.batches_from] = None
            self.batches_from += 1
        if self.batches_from > 1024 and self.batches_from * 2 > count:
            del self.batches[:self.batches_from]
            self.batches_from = 0
        # While a log comes back, what is not applied yet is in no batch: its epochs are needed.
        self.lineage.forget_before(min(self.first_retained, self.applied_index + 1))

    # -- cutting off -------------------------------------------------------------------------------

    def truncate(self, uint64_t after_index):
        """Forget the operations above an index, none of which was applied."""
        if after_index < self.applied_index:
            raise ValueError(f"{self.applied_index} operations are applied, not {after_index}")
        self.say(RING_TRUNCATE, after_index.to_bytes(8, "little"), False)
        self.cut(after_index)
        self.ring()

    def cut(self, after_index):
        """In memory."""
        self.drop_tail(after_index)
        while len(self.batches) > <Py_ssize_t>self.batches_from:
            batch = self.batches[len(self.batches) - 1]
            if batch.last <= after_index:
                break
            self.batches.pop()
            self.retained_bytes -= <uint64_t>(len(batch.data) + BATCH_BYTES)
            if batch.first <= after_index:
                start = split_batch(batch.data, after_index - batch.first + 1, 0)[0]
                batch = Batch(batch.first, after_index, batch.epoch, batch.data[:start])
                self.batches.append(batch)
                self.retained_bytes += <uint64_t>(len(batch.data) + BATCH_BYTES)
        self.made.cut(after_index, self.last_index)
        self.lineage.truncate(after_index)
        self.last_index = self.queue.operations = after_index
        self.generation += 1

    cdef int drop_tail(self, uint64_t after) except -1:
        cdef Operation operation
        while self.tail:
            operation = <Operation>self.tail[len(self.tail) - 1]
            if operation.index <= after:
                break
            self.tail.pop()
            if operation.kind == OP_PUBLISH:
                self.journal.release(operation.place, operation.body_len, True)
        return 0

    def reset(self, uint64_t at, lineage not None, bytes head not None):
        """Begin anew as a copy that lacks all messages up to `at`, and knows the rest by `head`."""
        self.has_heard = True
        told = msgspec.msgpack.encode((at, tuple(lineage), head))
        self.say(RING_RESET, told, False)
        self.begin_anew(at, lineage, head)
        self.ring()

    def begin_anew(self, uint64_t at, lineage, bytes head):
        self.drop_tail(0)
        self.batches.clear()
        self.made.clear()
        self.batches_from = self.retained_bytes = 0
        heads, seen, refused, *rest = msgspec.msgpack.decode(head) if head else ([], {}, {})
        self.queue.begin_anew(heads)
        self.queue.load_cursors(rest[0] if rest else b"")
        self.used_at = max(at, <uint64_t>1) if len(rest) > 1 and rest[1] else 0
        self.known_out = None
        self.seen = dict(seen)
        self.refused = {gateway: deque(numbers, REFUSALS_MAX) for gateway, numbers in refused}
        self.lineage = lineage
        self.last_index = self.applied_index = self.commit_index = self.queue.operations = at
        self.gap = (0, at)
        # What was found there is gone.
        self.is_verified = True
        self.generation += 1

    def say(self, int how, bytes data not None, bint lazy):
        """A record about the ring."""
        self.journal.ring_record(self.queue, how, <const uint8_t*>PyBytes_AS_STRING(data),
                                 len(data), lazy)

    def adopt_epoch(self, uint64_t epoch):
        """It is written before anything that is done in it."""
        self.max_epoch = epoch
        self.queue.epoch = epoch
        self.say(RING_EPOCH, epoch.to_bytes(8, "little"), False)
        self.ring()

    def begin(self):
        """The queue has a ring from here on: its log begins behind all positions ever given."""
        self.queue.operations = max(self.queue.operations, self.queue.positions_used)
        self.last_index = self.applied_index = self.commit_index = self.queue.operations
        self.has_heard = True
        self.say(RING_BEGIN, b"", False)
        self.ring()

    def drop(self):
        """This node has no replica any more."""
        self.say(RING_DROP, b"", True)

    # -- images and copies -------------------------------------------------------------------------

    def image_head(self):
        """Everything about the queue as of `applied_index`, but its messages."""
        heads = self.queue.level_heads()
        self.image_positions[self.applied_index] = {level: end for level, end, *_ in heads}
        if len(self.image_positions) > IMAGES_MAX:
            del self.image_positions[next(iter(self.image_positions))]
        refused = [(gateway, list(numbers)) for gateway, numbers in self.refused.items()]
        return msgspec.msgpack.encode((heads, list(self.seen.items()), refused,
                                       self.queue.encode_cursors(),
                                       0 < self.used_at <= self.applied_index))

    def view_operation(self, uint64_t epoch, bint promoted):
        """The operation that a master begins its epoch with."""
        cdef Output out = Output()
        # Restarted members are the last in line. If one of them is master and has heard of nobody,
        # nobody is left who went on.
        # That stays so until it serves, also if its epoch ends before.
        if not self.has_heard:
            self.is_cold = True
        self.has_heard = True
        how = (VIEW_PROMOTED if promoted else 0) | (VIEW_COLD if self.is_cold else 0)
        data = epoch.to_bytes(8, "little") + bytes([how])
        write_operation(out, OP_VIEW, <const uint8_t*>PyBytes_AS_STRING(data), len(data))
        return bytes_of(out)

    def read_chunk(self, session, uint64_t after, uint64_t upto, size_t bytes_max,
                   uint64_t messages_max=4096):
        """Live messages of a copy: (cursor, data, whether it is the last). No data, and not the
        last: another replica is asked for the next one."""
        cdef Output out = Output()
        cdef uint64_t position, end, count = 0
        cdef int level = 0, copied
        cdef list levels = []
        self.queue.all_levels(levels)
        if self.queue.levels is None:
            position = after
        else:
            level, position = self.scans.get(session, (0, 0))
        ends = self.image_positions.get(upto, {})
        for i, log in levels:
            if i < level:
                continue
            if i > level:
                level, position = i, 0
            end = (<SlotLog>log).committed if self.acts else (<SlotLog>log).next_position
            end = min(end, ends.get(i, upto))
            while position < end:
                copied = -1
                if out.end < bytes_max and count < messages_max:
                    copied = self.copy_message(out, <uint64_t>i << LEVEL_SHIFT | position)
                if copied < 0:
                    self.scans[session] = (level, position)
                    cursor = position if self.queue.levels is None else min(after + count, upto - 1)
                    return cursor, bytes_of(out), False
                count += <uint64_t>copied
                position += 1
        self.scans.pop(session, None)
        return upto, bytes_of(out), True

    def copy_message(self, Output out not None, uint64_t slot):
        """Writes one message for a copy; how many that were. A skipped one costs nothing.

        -1: it cannot be read, and another replica is asked for it.
        """
        cdef Slot* entry = self.queue.entry_at(slot)
        cdef Message message
        cdef uint32_t returns
        cdef int state
        if entry is NULL:
            return 0
        message = self.queue.look_at(entry)
        if message is None:
            return -1 if self.asks_for(slot) else 0
        returns = entry.returns
        state = self.queue.copy_state(slot, entry)
        write_publish(out, message, slot, self.journal.to_wall(entry.expires_ms),
                      TARGET_COPIED | (TARGET_TRANSIENT if entry.flags & TRANSIENT else 0)
                      | self.queue.level(slot).stamp_at(position_of(slot)),
                      returns, state)
        return 1

    def write_chunk(self, uint64_t cursor, bytes data not None, bint is_last):
        """Messages of the gap up to `cursor`; it begins there from now on, or is closed."""
        cdef Operation operation
        cdef Target target
        cdef Queue queue = self.queue
        for operation in parse_operations(data, 0, 0):
            if operation.kind != OP_PUBLISH:
                raise ValueError("a copy holds what is no message")
            if queue.restored_level(operation.slot) is not None and (
                    queue.entry_at(operation.slot) is not NULL):
                continue
            target.queue_id = queue.queue_id
            target.flags = TARGET_COPIED | operation.flags & ~<uint32_t>TARGET_OPENED
            target.epoch = queue.epoch
            target.index = 0
            target.slot = operation.slot
            target.wall_ms = operation.wall_ms
            target.gateway = operation.gateway
            target.sequence = operation.sequence
            operation.message.place = self.journal.write_copy(operation.message, &target)
            self.fill_in(operation)
        upto = self.gap[1]
        self.gap = (upto, upto) if is_last else (cursor, upto)
        self.say(RING_GAP, self.gap[0].to_bytes(8, "little"), False)
        self.ring()

    def fill_in(self, Operation operation not None):
        """A message of a copy is in its place; its gateway and number say how often it came back,
        and what else there is to say of it."""
        cdef bint is_new = self.queue.follow_message(
            operation.slot, operation.message, operation.place, operation.body_len,
            self.journal.from_wall(operation.wall_ms), False,
            operation.flags & TARGET_TRANSIENT)
        if is_new:
            self.queue.note_arrival(operation.slot, operation.flags)
            self.queue.mark_copied(operation.slot, <int>operation.gateway, <int>operation.sequence)
        return is_new

    def close_gap(self):
        """The messages that are missing will never come."""
        upto = self.gap[1]
        self.gap = (upto, upto)
        self.say(RING_GAP, upto.to_bytes(8, "little"), False)
        self.ring()

    def cut_off(self, uint64_t after_index, uint32_t marked_so=0):
        """(slot, message) of what is live and was published after an index, in order.

        `marked_so`: only publishes with these flags, of those that are not applied.
        """
        cdef Operation operation
        cdef list levels = []
        cdef dict found = {}
        self.queue.all_levels(levels)
        if after_index < self.applied_index and not marked_so:
            for level, log in levels:
                found.update(reversed(self.newest(level, <SlotLog>log, after_index)))
        for operation in self.pending_operations():
            if operation.index <= after_index:
                continue
            if operation.kind == OP_PUBLISH:
                if operation.flags & marked_so != marked_so:
                    continue
                message = operation.message or self.journal.fetch(operation.place)
                if message is not None:
                    found[operation.slot] = message
            elif operation.kind == OP_GONE:
                # Somebody has had it, or it has expired: nobody misses it.
                for at in range(0, len(operation.data), 16):
                    first, count = unpack_from("<QQ", operation.data, at)
                    for slot in [it for it in found if first <= it < first + count]:
                        del found[slot]
        return list(found.items())

    cdef list newest(self, uint64_t level, SlotLog log, uint64_t after_index):
        """Of what is applied: positions rise with operations, so it is the end of the level."""
        cdef uint64_t position = log.next_position, slot
        cdef Slot* entry
        cdef Message message
        cdef list found = []
        while position > log.first_number * CHUNK_SLOTS:
            position -= 1
            slot = level << LEVEL_SHIFT | position
            entry = self.queue.entry_at(slot)
            message = None if entry is NULL else self.queue.look_at(entry)
            if message is None:
                continue
            index = index_of(self.journal, message.place, self.queue.queue_id)
            if index == 0:
                # It came with a copy, and is no younger than that.
                index = self.gap[1]
            if index is not None and <uint64_t>index <= after_index:
                break
            found.append((slot, message))
        return found

    cdef list pending_operations(self):
        """Those that are not applied, each with the place of its message."""
        return list(self.tail)

    # -- the end of a turn -------------------------------------------------------------------------

    cdef int flush_operations(self) except -1:
        return 0

    cdef int end_turn(self) except -1:
        cdef uint64_t mark
        self.flush_operations()
        self.ringing = False
        if self.unsaid_bytes > COMMIT_BYTES and self.applied_index > self.said_commit:
            self.say_commit()
        mark = self.journal.log.next_sequence - 1
        if mark > self.marked and self.replica is not None:
            self.marked = mark
            self.written.append((mark, self.last_index, self.generation,
                                 self.gap[0] >= self.gap[1]))
            if not self.waiting:
                self.waiting = True
                self.journal.confirming.append(self)
        if self.host is not None and (self.fed or self.replica is None
                                      or self.replica.wants_something):
            self.fed = False
            self.host.carry_out()
        return 0

    def say_commit(self):
        """What is applied now need not wait after a restart."""
        self.said_commit = self.applied_index
        self.unsaid_bytes = 0
        self.say(RING_COMMIT, self.applied_index.to_bytes(8, "little"), True)

    def release_confirms(self):
        """The journal has come further."""
        newest = None
        self.waiting = False
        while self.written and self.written[0][0] <= self.journal.persisted:
            newest = self.written.popleft()
        if newest is not None and self.replica is not None:
            self.replica.persisted(newest[2], newest[1], newest[3],
                                   0 if self.turn is None else self.turn.now_ms)
            self.host.carry_out()
        if self.written and not self.waiting:
            self.waiting = True
            self.journal.confirming.append(self)
