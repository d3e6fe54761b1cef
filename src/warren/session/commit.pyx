"""A tx.commit: the publisher of its messages, which waits for the queues on other nodes."""

cimport cython
from libc.stdint cimport uint64_t

from warren.model.ports cimport PublisherPort, TurnClock

from warren.model.errand import Errand


@cython.final
cdef class Commit(PublisherPort):
    """Its errand is over when every message has been answered; `refused` says how."""

    def __init__(self, TurnClock turn not None):
        self.turn = turn
        self.errand = Errand(self)

    def begin(self):
        """What is published from now on belongs to it."""
        self.turn.publisher = self
        self.turn.publish_tag = 0
        self.turn.parts = 0

    def end(self):
        """All is published; whether answers are still to come."""
        self.turn.publisher = None
        self.waiting += self.turn.parts
        self.ended = True
        return self.waiting > 0

    cdef bint part_done(self, uint64_t tag, bint accepted) except -1:
        self.waiting -= 1
        if not accepted:
            self.refused = True
        if self.ended and self.waiting == 0:
            self.errand.finish()
        return False
