"""What queues ask for in the middle of an operation, noted until the operation is over."""

cimport cython
from libc.stdint cimport int64_t

from warren.model.message cimport Message
from warren.model.ports cimport QueueEffects, QueuePort

REASONS = ("rejected", "expired", "maxlen", "delivery_limit")


@cython.final
cdef class Effects(QueueEffects):
    """The engine empties the lists in `run_effects`, at the end of each turn."""

    def __init__(self):
        self.dead_letters = []
        self.expiries = []

    cdef int dead_letter(self, QueuePort queue, Message message, int reason,
                         int64_t slot) except -1:
        self.dead_letters.append((queue, message, reason, slot))
        self.pending = True
        return 0

    cdef int expiry_due(self, QueuePort queue, int64_t at_ms) except -1:
        self.expiries.append((queue, at_ms))
        self.pending = True
        return 0

    cdef int relieved(self, QueuePort queue) except -1:
        if self.on_relieved is not None:
            self.on_relieved(queue)
        return 0

    cdef bint postpone(self, QueuePort queue) except -1:
        if self.on_postponed is None:
            return False
        self.on_postponed(queue)
        return True

    def take_dead_letters(self):
        taken, self.dead_letters = self.dead_letters, []
        return taken

    def take_expiries(self):
        taken, self.expiries = self.expiries, []
        return taken
