"""The publisher of dead letters: gives one to one queue, and gathers what queues answer later."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport ACCEPTED, PublisherPort, QueuePort, TurnClock

TAKEN = 0
REFUSED = -1


@cython.final
cdef class BurialAnswers(PublisherPort):
    """Calls `on_answers` when there are some to be taken, once for all that came together."""

    def __init__(self, TurnClock turn not None, on_answers):
        self.turn = turn
        self.on_answers = on_answers
        self.waiting = {}
        self.refused = set()
        self.given = []

    def offer(self, QueuePort queue not None, Message message not None, int64_t now_ms):
        """TAKEN, REFUSED, or the tag under which the queue will answer."""
        cdef TurnClock turn = self.turn
        cdef PublisherPort publisher = turn.publisher
        cdef uint64_t tag = turn.publish_tag, parts = turn.parts
        cdef int outcome
        self.last_tag += 1
        turn.publisher = self
        turn.publish_tag = self.last_tag
        turn.parts = 0
        try:
            outcome = queue.publish(message, now_ms)
            if turn.parts:
                self.waiting[self.last_tag] = turn.parts
                if outcome != ACCEPTED:
                    self.refused.add(self.last_tag)
                return self.last_tag
        finally:
            turn.publisher = publisher
            turn.publish_tag = tag
            turn.parts = parts
        return TAKEN if outcome == ACCEPTED else REFUSED

    cdef bint part_done(self, uint64_t tag, bint accepted) except -1:
        cdef object left = self.waiting.get(tag)
        if left is None:
            return False
        if not accepted:
            self.refused.add(tag)
        if left > 1:
            self.waiting[tag] = left - 1
            return False
        del self.waiting[tag]
        self.given.append((tag, tag not in self.refused))
        self.refused.discard(tag)
        if self.due:
            return False
        self.due = True
        return True

    cdef int parts_over(self) except -1:
        self.due = False
        self.on_answers()
        return 0

    def take(self):
        """[(tag, whether the queue has the message for good)]"""
        given, self.given = self.given, []
        return given
