"""A queue whose verbs are Python's, for tests: it can answer later, and be wrong on purpose."""

from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport (
    ACCEPTED, REJECTED, ConsumerPort, PublisherPort, QueuePort, TurnClock,
)


cdef class OpenQueue(QueuePort):
    """Subclasses say what `on_publish`, `on_settle`, `on_pump` and `on_ready` do."""

    def __init__(self):
        self.far = True

    cdef int publish(self, Message message, int64_t now_ms) except -1:
        return ACCEPTED if self.on_publish(message, 0, 0) else REJECTED

    cdef int publish_from(self, Message message, int64_t now_ms, uint64_t gateway,
                          uint64_t sequence) except -1:
        return ACCEPTED if self.on_publish(message, gateway, sequence) else REJECTED

    cdef int ack(self, uint64_t slot) except -1:
        self.on_settle("ack", slot)
        return 0

    cdef int reject(self, uint64_t slot) except -1:
        self.on_settle("reject", slot)
        return 0

    cdef int requeue(self, uint64_t slot) except -1:
        self.on_settle("requeue", slot)
        return 0

    cdef int take_back(self, uint64_t slot) except -1:
        self.on_settle("return", slot)
        return 0

    cdef int pump(self, int64_t now_ms) except -1:
        self.on_pump()
        return 0

    cdef int pump_some(self, int64_t now_ms, int limit) except -1:
        return self.on_pump()

    cdef int consumer_ready(self, ConsumerPort consumer) except -1:
        self.on_ready(consumer)
        return 0


def answer_later(TurnClock turn not None):
    """(publisher, tag) of the publish that goes on, which is to be answered; None: by nobody."""
    if turn.publisher is None:
        return None
    turn.parts += 1
    return turn.publisher, turn.publish_tag


def answer(PublisherPort publisher not None, uint64_t tag, bint accepted):
    """One answer that comes alone."""
    if publisher.part_done(tag, accepted):
        publisher.parts_over()


def can_take(ConsumerPort consumer not None):
    return bool(consumer.can_take())


def deliver(ConsumerPort consumer not None, QueuePort queue not None, Message message not None,
            uint64_t slot, bint redelivered):
    consumer.deliver(queue, message, slot, redelivered)


def set_available(ConsumerPort consumer not None, bint available):
    consumer.available = available
