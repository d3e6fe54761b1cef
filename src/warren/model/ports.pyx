"""The seams of the data plane: abstract bases that let its parts meet without importing each other."""


cdef class ConsumerPort:
    """Where a queue puts messages: implemented by the session."""

    cdef bint can_take(self):
        return False

    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot, bint redelivered) except -1:
        raise NotImplementedError


cdef class QueuePort:
    """Where a session puts publishes and settlements: implemented by the queue."""

    cdef int publish(self, Message message, int64_t now_ms) except -1:
        raise NotImplementedError

    cdef int ack(self, uint64_t slot) except -1:
        raise NotImplementedError

    cdef int reject(self, uint64_t slot) except -1:
        raise NotImplementedError

    cdef int requeue(self, uint64_t slot) except -1:
        raise NotImplementedError

    cdef int pump(self, int64_t now_ms) except -1:
        raise NotImplementedError

    cdef int consumer_ready(self, ConsumerPort consumer) except -1:
        raise NotImplementedError


cdef class Route:
    """The queues of one (exchange, routing key), remembered until a binding changes.

    `valid` is cleared by the exchange when it forgets the route. `plain` says that the queues may be
    given the message as it stands; otherwise the engine's full publish decides message by message.
    """

    def __init__(self, Address address not None, exchange, tuple queues not None, bint plain):
        self.address = address
        self.exchange = exchange
        self.queues = queues
        self.plain = plain
        self.valid = True
