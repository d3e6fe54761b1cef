"""The master's side of a mirrored queue's log: its operations go out, and count when all have them.

The queue acts at once. The journal has written an operation when it tells of it here; at the end of
the turn those of a queue leave as one batch. What is committed is told to publishers, may be
delivered, and leaves the queue for good if it was to leave. When another node becomes the master,
everything that was not committed is taken back: `stand_down`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.engine.ring_operations cimport (
    OP_BATCH, OP_CURSOR, OP_GONE, OP_OUT, OP_PUBLISH, OP_REFUSED, OP_USED, VIEW_COLD, Operation,
    bytes_of, parse_operations, write_operation, write_publish,
)
from warren.engine.whole_batches cimport WholeBatches
from warren.model.message cimport PERSISTENT, Message
from warren.model.ports cimport PublisherPort, Run, TurnClock
from warren.queue.backlog cimport LEVEL_SHIFT, position_of
from warren.queue.marks cimport stamp_in
from warren.queue.queue cimport Queue
from warren.queue.slots cimport Slot, SlotLog, message_of
from warren.store.journal cimport (
    RING_OPERATION, TARGET_COPIED, TARGET_OPENED, TARGET_PROMISED, TARGET_TRANSIENT, Journal,
)
from warren.telemetry.event_buffer cimport EVENT_CONFIRM
from warren.wire.output cimport Output

from collections import deque

from warren.engine.whole_batches import BATCH_BEGINS, BATCH_ENDS
from warren.replication.types import Batch

cdef enum:
    # A batch of one turn is not longer, unless one operation is.
    SEAL_BYTES = 262144
    # A longer list of what consumers have is not worth its bytes.
    SEEN_MAX = 262144


cdef class MirrorLog(WholeBatches):
    """See the module's text."""

    def __init__(self, Queue queue not None, Journal journal not None, TurnClock turn not None,
                 uint64_t own_gateway, uint64_t retain_bytes=64 << 20):
        WholeBatches.__init__(self, queue, journal, retain_bytes)
        self.turn = turn
        self.own_gateway = own_gateway
        self.out = Output()
        self.sealed = []
        self.touched = {}
        self.senders = {}
        self.marks = deque()
        self.limbo = deque()
        self.waiters = deque()
        self.wakers = deque()
        self.taken = {}
        self.forgotten = {}
        self.promised = {}

    # -- what the journal has written --------------------------------------------------------------

    cdef int note_operation(self) except -1:
        if self.out_count == 0:
            self.out_first = self.queue.operations
        self.out_count += 1
        if self.out.end > SEAL_BYTES:
            self.seal()
        return self.ring()

    cdef int published(self, Message message, uint64_t slot, int64_t wall_ms,
                       uint32_t flags) except -1:
        cdef uint64_t gateway = self.gateway, sequence = self.sequence
        if self.copying:
            return 0
        if sequence == 0:
            self.own_sequence += 1
            gateway, sequence = self.own_gateway, self.own_sequence
        self.gateway = self.sequence = 0
        write_publish(self.out, message, slot, wall_ms,
                      flags & TARGET_OPENED | stamp_in(flags)
                      | (0 if message.delivery_mode == PERSISTENT else TARGET_TRANSIENT)
                      | (TARGET_PROMISED if self.promises else 0),
                      gateway, sequence)
        self.senders[gateway] = self.taken[gateway] = sequence
        self.note_position(slot)
        if self.awaiting is not None:
            publisher, tag = self.awaiting
            self.awaiting = None
            self.waiters.append((self.queue.operations, publisher, tag, message, sequence))
        return self.note_operation()

    def staged(self):
        """A publish is about to be written: whoever publishes is told later.

        Now, and not when it is written: by then nobody may know any more who it was.
        """
        cdef TurnClock turn = self.turn
        self.awaiting = None
        if turn.publisher is not None and not self.copying:
            turn.parts += 1
            self.awaiting = (turn.publisher, turn.publish_tag)

    cdef int note_position(self, uint64_t slot) except -1:
        self.touched[<int>(slot >> LEVEL_SHIFT)] = position_of(slot) + 1
        return 0

    cdef bint await_commit(self, uint64_t index, Message message, uint64_t sequence) except -1:
        """Whoever publishes wants to know when all replicas have it."""
        cdef TurnClock turn = self.turn
        if turn.publisher is None:
            return False
        turn.parts += 1
        self.waiters.append((index, turn.publisher, turn.publish_tag, message, sequence))
        return True

    cdef int gone(self, Run* runs, size_t count) except -1:
        if self.copying:
            return 0
        write_operation(self.out, OP_GONE, <const uint8_t*>runs, count * sizeof(Run))
        self.limbo.append((self.queue.operations, PyBytes_FromStringAndSize(
            <const char*>runs, <Py_ssize_t>(count * sizeof(Run))), False))
        return self.note_operation()

    cdef int said(self, int kind, uint64_t slot) except -1:
        if self.copying:
            return 0
        write_operation(self.out, kind, <const uint8_t*>&slot, 8)
        return self.note_operation()

    def operate(self, int kind, bytes data not None):
        """An operation that the log has no record of its own for; its index."""
        self.queue.operations += 1
        self.say(RING_OPERATION, bytes([kind]) + data, False)
        write_operation(self.out, kind, <const uint8_t*><char*>data, len(data))
        self.note_operation()
        return self.queue.operations

    def change_cursors(self, bytes operation not None):
        """It is done when all replicas have it; its index."""
        index = self.operate(OP_CURSOR, operation)
        self.limbo.append((index, operation, True))
        return index

    def begin_batch(self):
        """What is published from now on is seen when `end_batch` is committed, or never."""
        # What stands before it counts by itself.
        self.seal()
        self.batch_promises, self.promises = self.promises, False
        self.note_kind(self.operate(OP_BATCH, BATCH_BEGINS), OP_BATCH, 0)

    def end_batch(self, bytes operation not None):
        """The batch, with what it says of its producer, is there; the index of its end."""
        self.queue.tell_gone()
        self.change_cursors(operation)
        index = self.operate(OP_BATCH, BATCH_ENDS)
        self.note_kind(index, OP_BATCH, 1)
        self.promises = self.batch_promises
        self.seal()
        return index

    def note_used(self):
        """The queue, which goes with its last consumer, has one: whoever is next must know."""
        if self.acts and self.used_at == 0:
            self.used_at = self.operate(OP_USED, b"\x01")

    cdef int seal(self) except -1:
        cdef uint64_t last = self.out_first + self.out_count - 1
        if self.out_count == 0:
            return 0
        self.sealed.append(Batch(
            self.out_first, last, self.queue.epoch,
            PyBytes_FromStringAndSize(<const char*>self.out.buffer, <Py_ssize_t>self.out.end)))
        self.out.sent(self.out.end)
        self.out_count = 0
        self.marks.append((last, self.touched, self.senders))
        self.touched, self.senders = {}, {}
        return 0

    cdef int flush_operations(self) except -1:
        cdef list sealed
        self.seal()
        if self.sealed:
            sealed, self.sealed = self.sealed, []
            self.fed = True
            for batch in sealed:
                self.keep(batch)
                self.replica.appended(batch, self.turn.now_ms)
            # `keep` has asked for what is going on.
            self.congested = self.replica.is_congested
            if self.made.is_full():
                self.made.all_have(min(self.replica.positions().values()))
        return 0

    def flush(self):
        """The operations so far are complete: the epoch is about to change."""
        self.flush_operations()

    def append(self, batch not None):
        """As a mirror does; a master that goes on in a new epoch has only its `view` to add."""
        if not self.acts:
            WholeBatches.append(self, batch)
            return
        cdef Operation operation
        self.copying = True
        try:
            for operation in parse_operations(batch.data, batch.first, batch.epoch):
                self.write(operation)
        finally:
            self.copying = False
        self.keep(batch)

    def pause(self):
        """Deliver nothing more: who takes over is told what consumers have or had, to flag it."""
        self.paused = True
        leaving = set()
        self.flush_operations()
        for _, runs, is_cursors in self.limbo:
            for at in range(0, 0 if is_cursors else len(runs), 16):
                first = int.from_bytes(runs[at:at + 8], "little")
                leaving.update(range(first, first + int.from_bytes(runs[at + 8:at + 16], "little")))
        seen = self.queue.maybe_seen()
        if seen is None or len(seen) > SEEN_MAX:
            # It flags all that may have been delivered, by the watermark.
            return
        slots = [slot for slot in seen if slot not in leaving]
        self.known_out = slots
        self.operate(OP_OUT, b"".join(slot.to_bytes(8, "little") for slot in slots))
        self.flush_operations()

    def go_on(self):
        """Another did not take over."""
        self.paused = False
        self.known_out = None
        self.wake(self.commit_index)

    # -- publishes of other gateways ---------------------------------------------------------------

    def has_taken(self, uint64_t gateway, uint64_t sequence, Message message not None):
        """Whether a publish has come before; None when it was refused then, or is forgotten.

        What is transient and came before all replicas were down may have been taken then, and is
        gone since. Nobody was told that it is safe, and nobody must be now.
        """
        if sequence > self.taken.get(gateway, 0):
            return False
        if message.delivery_mode != PERSISTENT and sequence <= self.forgotten.get(gateway, 0):
            return None
        return None if sequence in self.refused.get(gateway, ()) else True

    cdef int apply_view(self, int how) except -1:
        if how & VIEW_COLD:
            self.forgotten = dict(self.seen)
        return WholeBatches.apply_view(self, how)

    def await_all(self, Message message not None, uint64_t sequence):
        """A publish that came before is answered when all that is here is committed.

        When all is, nothing may come that would tell it later: it is answered now.
        """
        if self.queue.operations > self.commit_index:
            self.await_commit(self.queue.operations, message, sequence)

    def refuse(self, uint64_t gateway, uint64_t sequence):
        """The queue does not take a publish: no later master must take it for one that was."""
        self.taken[gateway] = sequence
        self.senders[gateway] = sequence
        self.note_refused(gateway, sequence)
        self.operate(OP_REFUSED, gateway.to_bytes(8, "little") + sequence.to_bytes(8, "little"))

    # -- what all replicas have --------------------------------------------------------------------

    def apply_to(self, uint64_t index):
        """All replicas in sync have the operations up to here."""
        cdef SlotLog log
        cdef uint64_t before
        if not self.acts:
            WholeBatches.apply_to(self, index)
            return
        index = self.whole_to(index)
        self.commit_index = self.applied_index = index
        while self.marks and self.marks[0][0] <= index:
            _, touched, senders = self.marks.popleft()
            for level, position in touched.items():
                log = self.queue.level(<uint64_t>level << LEVEL_SHIFT)
                before = max(log.committed, <uint64_t>self.promised.get(level, 0))
                log.committed = max(log.committed, <uint64_t>position)
                if self.queue.events is not None and log.committed > before:
                    self.queue.note_event(EVENT_CONFIRM, 0, <uint64_t>level << LEVEL_SHIFT | before,
                                          log.committed - before, 0)
            for gateway, sequence in senders.items():
                self.note_seen(gateway, sequence)
        self.end_limbo(index)
        self.tell_publishers(index)
        self.forget_old()
        if self.congested and not self.replica.is_congested:
            self.congested = False
            self.queue.check_relief()
        self.queue.watermark_moved()
        self.queue.pump(self.turn.now_ms)
        self.wake(index)

    cdef int end_limbo(self, uint64_t index) except -1:
        """What waited for all replicas to know, in order: it decides what is kept for cursors."""
        cdef const Run* run
        cdef size_t i
        while self.limbo and self.limbo[0][0] <= index:
            _, runs, is_cursors = self.limbo.popleft()
            if is_cursors:
                self.queue.restore_cursor(runs)
                continue
            run = <const Run*><char*>runs
            for i in range(<size_t>len(runs) // sizeof(Run)):
                self.queue.remove_left(run[i].first, run[i].count)
        return 0

    cdef int tell_publishers(self, uint64_t index) except -1:
        cdef PublisherPort publisher
        cdef list told = []
        while self.waiters and self.waiters[0][0] <= index:
            _, publisher, tag, _, _ = self.waiters.popleft()
            if publisher.part_done(tag, True):
                told.append(publisher)
        for publisher in told:
            publisher.parts_over()
        return 0

    def promise(self, uint64_t index):
        """Publishers are told before all replicas have it: a failover may take it back.

        Only they are. What is delivered, and what leaves, waits for all replicas as ever: nobody is
        given what might be gone a moment later.
        """
        if not self.acts:
            return
        if self.queue.events is not None:
            self.note_promised(index)
        self.tell_publishers(index)

    cdef int note_promised(self, uint64_t index) except -1:
        """In the journal of events a message is confirmed when its publisher is told, once."""
        cdef uint64_t first, end
        for last, touched, _ in self.marks:
            if last > index:
                break
            for level, position in touched.items():
                first = max(<uint64_t>self.promised.get(level, 0),
                            self.queue.level(<uint64_t>level << LEVEL_SHIFT).committed)
                end = <uint64_t>position
                if end > first:
                    self.promised[level] = end
                    self.queue.note_event(EVENT_CONFIRM, 0, <uint64_t>level << LEVEL_SHIFT | first,
                                          end - first, 0)
        return 0

    def when_committed(self, uint64_t index, action):
        """Call when all replicas have an operation and the queue delivers; at once if so.

        Whoever comes in the middle of a handover would otherwise come again at once, for ever.
        """
        if index <= self.commit_index and self.acts and not (self.paused or self.queue.mending):
            action()
        else:
            self.wakers.append((index, action))

    def wake(self, uint64_t index):
        while (self.wakers and not (self.paused or self.queue.mending)
               and self.wakers[0][0] <= index):
            self.wakers.popleft()[1]()

    # -- what cannot be read here ------------------------------------------------------------------

    cdef bint has_others(self) except -1:
        return self.host is not None and self.host.healing.has_others

    cdef bint asks_for(self, uint64_t slot) except -1:
        return self.has_others() and self.host.healing.ask(slot)

    def copy_of(self, uint64_t slot):
        """The message of a slot for another replica; empty when it is not here."""
        cdef Output out = Output()
        cdef Operation operation
        if self.queue.restored_level(slot) is not None and self.copy_message(out, slot) > 0:
            return bytes_of(out)
        for operation in self.tail:
            if operation.kind == OP_PUBLISH and operation.slot == slot:
                message = operation.message or self.journal.fetch(operation.place)
                if message is not None:
                    write_publish(out, message, slot, operation.wall_ms, operation.flags, 0, 0)
                    break
        return bytes_of(out)

    def missing_at(self, uint64_t slot):
        """Where the message of a slot stands in the log, and there only; 0: nowhere."""
        return self.queue.missing_at(slot)

    def mend(self, uint64_t slot, bytes data not None):
        """Another replica has sent a message that cannot be read here: it is written once more.

        False: it is not missing any more. ValueError for what is no message of that slot.
        """
        cdef Queue queue = self.queue
        cdef Operation operation
        cdef uint64_t place
        cdef list found = parse_operations(data, 0, 0)
        if len(found) != 1 or found[0].kind != OP_PUBLISH or found[0].slot != slot:
            raise ValueError(f"what came for slot {slot} is no message of it")
        operation = <Operation>found[0]
        place = queue.missing_at(slot)
        if place == 0:
            return False
        queue.refit(slot, operation.body_len, self.journal.from_wall(operation.wall_ms),
                    <int>operation.gateway, <int>operation.sequence,
                    operation.flags & TARGET_TRANSIENT)
        self.journal.move_message(
            operation.message,
            [(queue, slot, 0, queue.epoch, TARGET_COPIED, operation.wall_ms)], place)
        return True

    # -- being the master --------------------------------------------------------------------------

    def begin_acting(self):
        """All that came before is applied: the queue may be served here."""
        if self.acts:
            return
        assert not self.tail
        self.queue.commit_all()
        self.taken = dict(self.seen)
        self.acts = True
        self.wake(self.commit_index)

    def stand_down(self):
        """Another node is the master. What was not committed waits again, as a mirror has it."""
        if not self.acts:
            return
        pending = self.pending_operations()
        self.acts = self.paused = False
        if self.used_at > self.applied_index:
            self.used_at = 0
        for operation in pending:
            if (<Operation>operation).kind == OP_OUT:
                # It counts when all have it; it may as well be cut off.
                self.known_out = None
            if (<Operation>operation).kind == OP_PUBLISH:
                # The slot lets go of it, the operation holds it.
                self.journal.retain_kept((<Operation>operation).place,
                                         (<Operation>operation).body_len)
        self.queue.stop_acting()
        self.tail.extend(pending)
        self.marks.clear()
        self.limbo.clear()
        self.touched, self.senders = {}, {}
        self.taken = {}
        self.promised = {}
        self.congested = False
        wakers, self.wakers = self.wakers, deque()
        for _, action in wakers:
            action()

    cdef list pending_operations(self):
        cdef list found = []
        cdef Operation operation
        cdef Slot* entry
        if not self.acts:
            return list(self.tail)
        for batch in self.read(self.applied_index + 1, ~<size_t>0):
            for operation in parse_operations(batch.data, batch.first, batch.epoch):
                if operation.kind == OP_PUBLISH:
                    entry = self.queue.entry_at(operation.slot)
                    if entry is NULL:
                        continue
                    if entry.content & 1:
                        operation.place = entry.content >> 1
                    else:
                        operation.message = message_of(entry)
                        operation.place = operation.message.place
                found.append(operation)
        return found

    def take_unanswered(self):
        """(message, publisher, tag, number) of publishes by this node's clients, in order.

        They are answered by whoever takes them over.
        """
        waiters, self.waiters = self.waiters, deque()
        return [(message, publisher, tag, sequence)
                for _, publisher, tag, message, sequence in waiters]

    def refuse_unanswered(self):
        """The queue is deleted: nobody will answer what it has not."""
        cdef PublisherPort publisher
        cdef list told = []
        waiters, self.waiters = self.waiters, deque()
        for _, publisher, tag, _, _ in waiters:
            if publisher.part_done(tag, False):
                told.append(publisher)
        for publisher in told:
            publisher.parts_over()
