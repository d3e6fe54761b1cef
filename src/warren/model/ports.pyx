"""The seams of the data plane: abstract bases that let parts meet without importing each other."""


cdef class TurnClock:
    """The time of the turn that is going on, shared by all who need it: set once, read often."""


cdef class ConsumerPort:
    """Where a queue puts messages: implemented by the session."""

    cdef bint can_take(self):
        return False

    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot,
                     bint redelivered) except -1:
        raise NotImplementedError

    cdef int activity_changed(self, bint active) except -1:
        """Told to the consumers of a single-active-consumer queue."""
        return 0


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

    cdef int pump_some(self, int64_t now_ms, int limit) except -1:
        raise NotImplementedError

    cdef int consumer_ready(self, ConsumerPort consumer) except -1:
        raise NotImplementedError


cdef class QueueEffects:
    """What a queue asks of its surroundings: implemented by the engine.

    Calls come in the middle of a queue operation: the engine notes them and acts when it is over.
    """

    cdef int dead_letter(self, QueuePort queue, Message message, int reason) except -1:
        return 0

    cdef int expiry_due(self, QueuePort queue, int64_t at_ms) except -1:
        return 0

    cdef int relieved(self, QueuePort queue) except -1:
        return 0

    cdef bint postpone(self, QueuePort queue) except -1:
        """Much has been delivered in this turn: go on in the next one? False when there is none."""
        return False


cdef class LinkPort:
    """The way out to one client: implemented by the network shell."""

    cdef int want_flush(self) except -1:
        """Write the output buffer soon, at the end of the current turn."""
        return 0

    cdef int flush_now(self) except -1:
        """Write what the peer takes of the output buffer now."""
        return 0

    cdef int hold_back(self, QueuePort queue) except -1:
        """Read no more publishes from this client for a moment: its queue is congested."""
        return 0

    cdef int block_reading(self, bint blocked) except -1:
        """An alarm is in force: read nothing from this client until it is over."""
        return 0

    def hold(self, QueuePort queue not None):
        """`hold_back` for Python callers."""
        self.hold_back(queue)

    def set_blocked(self, bint blocked):
        self.block_reading(blocked)


cdef class Route:
    """The queues of one (exchange, routing key), remembered until a binding changes.

    `valid` is cleared when the route is forgotten. `plain` says that the queues may be given the
    message as it stands; otherwise the engine's full publish decides message by message.
    """

    def __init__(self, Address address not None, exchange, tuple queues not None, bint plain):
        self.address = address
        self.exchange = exchange
        self.queues = queues
        self.plain = plain
        self.valid = True


cdef class RouteBook:
    """The routes of one exchange by routing key; channels that may publish there look them up."""

    def __init__(self):
        self.routes = {}

    def forget(self):
        """A binding changed: no route may be used any more."""
        for route in self.routes.values():
            (<Route>route).valid = False
        self.routes.clear()

    def forget_key(self, bytes routing_key not None):
        route = self.routes.pop(routing_key, None)
        if route is not None:
            (<Route>route).valid = False
