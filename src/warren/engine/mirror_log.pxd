from libc.stdint cimport uint64_t

from warren.engine.whole_batches cimport WholeBatches
from warren.model.message cimport Message
from warren.wire.output cimport Output


cdef class MirrorLog(WholeBatches):
    cdef public uint64_t own_gateway    # this node, as the gateway of its own clients
    cdef public uint64_t own_sequence     # ... and its newest publish
    cdef bint batch_promises              # `promises`, while a batch is being made
    cdef Output out                       # operations of this turn
    cdef uint64_t out_first
    cdef uint64_t out_count
    cdef list sealed                      # batches of this turn that are complete
    cdef dict touched                     # level -> position behind its newest publish
    cdef dict senders                     # gateway -> its newest publish, of this turn
    cdef object marks                     # (last index, touched, senders) until committed
    # until committed: (index, runs of what has left or an operation of cursors, which it is)
    cdef object limbo
    cdef object waiters                   # (index, publisher, tag, message, sequence)
    cdef dict taken                       # gateway -> its newest publish, committed or not
    cdef dict forgotten                   # the same, when transient messages were forgotten
    cdef tuple awaiting                   # (publisher, tag) of the publish that is staged
    cdef dict promised                    # level -> position behind what publishers were told of
    cdef object wakers                    # (index, action)

    cdef int note_promised(self, uint64_t index) except -1
    cdef int note_position(self, uint64_t slot) except -1
    cdef int note_operation(self) except -1
    cdef int seal(self) except -1
    cdef bint await_commit(self, uint64_t index, Message message, uint64_t sequence) except -1
    cdef int tell_publishers(self, uint64_t index) except -1
    cdef int end_limbo(self, uint64_t index) except -1
