from libc.stdint cimport uint64_t

from warren.engine.made cimport Made
from warren.engine.ring_operations cimport Operation
from warren.model.ports cimport MirrorPort, TurnClock
from warren.queue.queue cimport Queue
from warren.queue.slots cimport SlotLog
from warren.store.journal cimport Journal


cdef enum:
    # What a batch in memory takes beyond its bytes.
    BATCH_BYTES = 200
    # Refusals that are remembered of a gateway.
    REFUSALS_MAX = 4096


cdef class ReplicaLog(MirrorPort):
    cdef public Queue queue
    cdef Journal journal
    cdef TurnClock turn                # None: nobody has said what time it is
    cdef public object host            # the `Mirror` that this belongs to
    cdef public object replica         # None until the node takes part in the cluster
    # as `replication.log_port.LogPort` says
    cdef readonly object lineage
    cdef readonly uint64_t last_index
    cdef readonly uint64_t applied_index
    cdef readonly uint64_t max_epoch
    cdef readonly tuple gap
    cdef readonly uint64_t generation
    # the operations that are kept in memory, in batches without gaps up to the last one
    cdef list batches
    cdef size_t batches_from           # the first one that counts
    cdef readonly uint64_t retained_bytes
    cdef public uint64_t retain_bytes  # how much is kept of what is applied already
    cdef readonly Made made            # when operations were made, or came here
    cdef object tail                   # operations that are not applied yet
    cdef readonly dict seen            # gateway -> its newest publish, of those applied
    cdef readonly dict refused         # gateway -> numbers of publishes that were refused
    cdef object written                # (record of the log, index, generation, full) on their way
    cdef bint ringing                  # `end_turn` will be called
    cdef bint fed                      # the core was given operations of the queue
    cdef bint waiting                  # the journal will say when it has moved on
    cdef bint copying                  # operations of another node are being written
    cdef uint64_t marked               # the newest record that `written` knows
    cdef uint64_t said_commit          # the newest commit that the log has
    cdef uint64_t unsaid_bytes         # operations since
    cdef public bint has_heard         # something of it is younger than this start of the node
    cdef public bint is_cold           # this node is master, and nobody has heard of another one
    cdef public bint is_broken         # the log may lack something: others are asked first
    cdef public bint is_verified       # what a start found in the log has been read over
    cdef readonly bint is_dropped      # this node has no replica any more
    cdef readonly bint must_reset      # the copy was given up at the start
    # the operation that says that the queue has had consumers; 0: there is none
    cdef readonly uint64_t used_at
    cdef list known_out                # what was with consumers when the master was handed over
    cdef dict image_positions          # index of an image -> where each level ended
    cdef object scans                  # learner's session -> (level, position), of priority queues

    cdef int ring(self) except -1
    cdef int keep(self, object batch) except -1
    cdef int write(self, Operation operation) except -1
    cdef int apply(self, Operation operation) except -1
    cdef int apply_gone(self, bytes runs) except -1
    cdef int apply_view(self, int how) except -1
    cdef int note_seen(self, uint64_t gateway, uint64_t sequence) except -1
    cdef int drop_tail(self, uint64_t after) except -1
    cdef list pending_operations(self)
    cdef list newest(self, uint64_t level, SlotLog log, uint64_t after_index)
    cdef int flush_operations(self) except -1
