"""A replica's log after a restart: what the node's own log and its checkpoint have kept of it.

Operations come back in order and wait to be applied, as they did when they came from another node:
which of them all replicas have is known only up to the newest commit that was noted. A copy that
was not complete is given up. One whose log is damaged serves only if there is no other.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.engine.replica_log cimport BATCH_BYTES, REFUSALS_MAX, ReplicaLog
from warren.engine.ring_operations cimport (
    OP_PUBLISH, Operation, bytes_of, make_operation, make_publish, write_operation, write_publish,
)
from warren.store.journal cimport (
    RING, RING_BEGIN, RING_COMMIT, RING_DROP, RING_EPOCH, RING_GAP, RING_OPERATION, RING_RESET,
    RING_TRUNCATE, TARGET_COPIED, TARGET_PROMISED,
)
from warren.wire.output cimport Output

from collections import deque

import msgspec

from warren.replication.lineage import Lineage
from warren.replication.types import Batch

cdef enum:
    # Batches made of what was found on the disk.
    FOUND_BATCH_BYTES = 262144

SNAPSHOT_VERSION = 2


cdef class RestoredLog(ReplicaLog):
    """See the module's text."""

    # -- coming back from the log ------------------------------------------------------------------

    cdef int note_replayed(self, Operation operation) except -1:
        if operation.index != self.last_index + 1:
            self.is_broken = True
        self.lineage.extend(max(operation.epoch, <uint64_t>self.lineage.last_epoch),
                            operation.index)
        self.last_index = self.queue.operations = operation.index
        self.tail.append(operation)
        return 0

    cdef int replay_publish(self, uint64_t epoch, uint64_t index, uint64_t slot, int64_t wall_ms,
                            uint32_t flags, uint64_t gateway, uint64_t sequence, uint64_t place,
                            uint32_t body_len) except -1:
        cdef Operation operation = make_publish(index, epoch, slot, wall_ms, flags, gateway,
                                                sequence, place, body_len)
        if self.is_dropped:
            return 0
        if flags & TARGET_COPIED:
            return self.fill_in(operation)
        self.note_replayed(operation)
        return 1

    cdef int replay(self, int kind, int how, uint64_t epoch, uint64_t index,
                    const uint8_t* data, size_t n) except -1:
        cdef bytes payload = PyBytes_FromStringAndSize(<const char*>data, <Py_ssize_t>n)
        if kind != RING:
            if not self.is_dropped:
                self.note_replayed(make_operation(index, epoch, kind, payload))
            return 0
        if how == RING_OPERATION and n:
            self.note_replayed(make_operation(index, epoch, payload[0], payload[1:]))
        elif how == RING_BEGIN:
            self.last_index = self.applied_index = self.commit_index = index
            self.queue.operations = index
        elif how == RING_DROP:
            self.begin_anew(0, Lineage(), b"")
            self.is_dropped = True
        elif how == RING_RESET:
            at, lineage, head = msgspec.msgpack.decode(payload)
            self.is_dropped = self.is_broken = False
            self.begin_anew(at, Lineage(tuple(entry) for entry in lineage), head)
        elif n == 8:
            self.replay_number(how, int.from_bytes(payload, "little"))
        return 0

    def replay_number(self, int how, uint64_t number):
        if how == RING_EPOCH:
            self.max_epoch = max(self.max_epoch, number)
            self.is_dropped = False
        elif how == RING_COMMIT:
            self.apply_to(min(number, self.last_index))
        elif how == RING_TRUNCATE:
            self.cut(number)
        elif how == RING_GAP:
            self.gap = (number, max(self.gap[1], number))

    cdef uint64_t relocate(self, uint64_t slot, uint64_t place) except? 0:
        cdef Operation operation
        cdef uint64_t before
        # The newest: one that was left out may have had the same slot.
        for operation in reversed(self.tail):
            if operation.kind == OP_PUBLISH and operation.slot == slot:
                before = operation.place
                operation.place = place
                return before
        return 0

    def replayed(self):
        """All that was in the log has come; what is not applied yet is needed by others, too."""
        if self.is_dropped:
            return
        if self.gap[0] < self.gap[1]:
            # A copy that was not complete is not worth more than none.
            self.must_reset = True
            self.begin_anew(0, Lineage(), b"")
        elif not self.make_batches():
            self.is_broken = True

    def can_read_tail(self):
        """Whether all operations that wait are there, and the messages of all of them."""
        cdef Operation operation
        cdef uint64_t expected = self.applied_index + 1
        for operation in self.tail:
            if operation.index != expected:
                return False
            expected += 1
            if operation.kind == OP_PUBLISH and operation.message is None:
                operation.message = self.journal.fetch(operation.place)
                if operation.message is None:
                    return False
        return True

    def make_batches(self):
        """Batches of the operations that were found; False when some are missing, or a message is.
        """
        cdef Operation operation
        cdef Output out = Output()
        cdef uint64_t first = 0, last = 0, epoch = 0
        self.batches.clear()
        self.batches_from = 0
        if not self.can_read_tail():
            # Nobody gets these from here: they count as applied, as far as they can be.
            self.apply_to(self.last_index)
            return False
        for operation in self.tail:
            if out.end and (operation.epoch != epoch or out.end > FOUND_BATCH_BYTES):
                self.batches.append(Batch(first, last, epoch, bytes_of(out)))
                out = Output()
            if out.end == 0:
                first, epoch = operation.index, operation.epoch
            last = operation.index
            if operation.kind != OP_PUBLISH:
                write_operation(out, operation.kind,
                                <const uint8_t*>PyBytes_AS_STRING(operation.data),
                                len(operation.data))
                continue
            write_publish(out, operation.message, operation.slot, operation.wall_ms,
                          operation.flags, operation.gateway, operation.sequence)
        if out.end:
            self.batches.append(Batch(first, last, epoch, bytes_of(out)))
        self.retained_bytes = sum(len(batch.data) + BATCH_BYTES for batch in self.batches)
        return True

    # -- checkpoints -------------------------------------------------------------------------------

    def snapshot(self):
        """What a checkpoint keeps: the queue as it is on all replicas, and what came after."""
        cdef Operation operation
        pending = []
        for operation in self.pending_operations():
            if operation.kind == OP_PUBLISH:
                pending.append((operation.index, operation.epoch, operation.kind, operation.slot,
                                operation.wall_ms, operation.flags, operation.gateway,
                                operation.sequence, operation.place, operation.body_len))
            else:
                pending.append((operation.index, operation.epoch, operation.kind, operation.data))
        refused = [(gateway, list(numbers)) for gateway, numbers in self.refused.items()]
        head = msgspec.msgpack.encode((
            SNAPSHOT_VERSION, self.applied_index, self.last_index, self.max_epoch, self.generation,
            self.gap, tuple(self.lineage), list(self.seen.items()), refused, pending,
            self.used_at if self.used_at <= self.applied_index else 0))
        return (b"\xff\xff" + len(head).to_bytes(4, "little") + head
                + self.queue.committed_levels() + self.queue.encode_kept())

    def load_snapshot(self, bytes snapshot not None):
        """The queue as a checkpoint kept it. ValueError when that cannot be."""
        size = int.from_bytes(snapshot[2:6], "little")
        try:
            (version, applied, last, max_epoch, generation, gap, lineage, seen, refused,
             pending, *rest) = msgspec.msgpack.decode(snapshot[6:6 + size])
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            self.is_broken = True
            raise ValueError(f"the ring of a queue in the checkpoint: {error}") from error
        if version not in (1, SNAPSHOT_VERSION):
            self.is_broken = True
            raise ValueError(f"the ring of a queue in the checkpoint has version {version}")
        self.applied_index = self.commit_index = self.said_commit = applied
        self.last_index = self.queue.operations = last
        self.max_epoch, self.generation, self.gap = max_epoch, generation, tuple(gap)
        self.lineage = Lineage(tuple(entry) for entry in lineage)
        self.seen = dict(seen)
        # The first version did not know of consumers.
        self.used_at = rest[0] if rest else 0
        self.refused = {gateway: deque(numbers, REFUSALS_MAX) for gateway, numbers in refused}
        for index, epoch, kind, *rest in pending:
            if kind == OP_PUBLISH:
                slot, wall_ms, flags, gateway, sequence, place, body_len = rest
                self.tail.append(make_publish(index, epoch, slot, wall_ms, flags, gateway,
                                              sequence, place, body_len))
            else:
                self.tail.append(make_operation(index, epoch, kind, rest[0]))
        self.queue.load_kept(snapshot, self.queue.load_levels(snapshot, 6 + size))

    # -- before something goes ---------------------------------------------------------------------

    def salvage(self, uint64_t after_index):
        """Put aside what is about to go: live messages, and the operations above an index."""
        if self.host is not None:
            self.host.salvage(after_index, self.cut_off(after_index))

    def salvage_promised(self, uint64_t after_index):
        """Put aside publishes above an index that publishers may count on, to bring them back."""
        if self.host is not None:
            self.host.salvage_promised(after_index, self.cut_off(after_index, TARGET_PROMISED))
