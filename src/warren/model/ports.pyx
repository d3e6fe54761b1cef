"""The seams of the data plane: abstract bases that let parts meet without importing each other."""

from libc.string cimport memcpy


cdef class PublisherPort:
    """Who publishes, for queues on other nodes, which cannot answer at once.

    Such a queue raises `TurnClock.parts` while it is given the message and later calls `part_done`
    once for each, with the `publish_tag` of that moment.
    """

    cdef bint part_done(self, uint64_t tag, bint accepted) except -1:
        """True: call `parts_over` when all answers that came together have been told."""
        return False

    cdef int parts_over(self) except -1:
        return 0


cdef int64_t[TIME_BUCKETS] BOUNDS_US = [
    50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000,
    1000000, 2000000, 5000000, 10000000,
]
TIME_BOUNDS_US = tuple(BOUNDS_US)


cdef class Times:
    """A histogram: noted once for all that took equally long."""

    cdef void note(self, int64_t took_us, uint64_t count) noexcept:
        cdef int i = 0
        if took_us < 0:
            took_us = 0
        while i < TIME_BUCKETS and took_us > BOUNDS_US[i]:
            i += 1
        self.counts[i] += count
        self.total_us += <uint64_t>took_us * count

    def buckets(self):
        """How many took no longer than each of `TIME_BOUNDS_US`, and last how many there are."""
        found = []
        so_far = 0
        for i in range(TIME_BUCKETS + 1):
            so_far += self.counts[i]
            found.append(so_far)
        return found


cdef class TurnClock:
    """The time of the turn that is going on, shared by all who need it: set once, read often."""

    def __cinit__(self):
        self.ending = []
        self.confirm_times = Times()

    cdef int64_t present_us(self) noexcept:
        """The time now, not when the turn began."""
        return self.now_us if self.read_us is NULL else self.read_us()

    cdef int end_all(self) except -1:
        cdef FrameSink sink
        cdef list ending
        while self.ending:
            ending = self.ending
            self.ending = []
            for sink in ending:
                sink.send_gathered()
        return 0

    def end(self):
        """The turn is over: what was gathered for other nodes goes out."""
        self.end_all()


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


cdef class MirrorPort:
    """Where a mirrored queue's operations go on to its other replicas.

    The journal tells it what it has written, right after.
    """

    cdef int published(self, Message message, uint64_t slot, int64_t wall_ms,
                       uint32_t flags) except -1:
        return 0

    cdef int gone(self, Run* runs, size_t count) except -1:
        return 0

    cdef int said(self, int kind, uint64_t slot) except -1:
        return 0

    cdef int end_turn(self) except -1:
        """The operations of the turn are complete."""
        return 0

    cdef int replay(self, int kind, int how, uint64_t epoch, uint64_t index,
                    const uint8_t* data, size_t n) except -1:
        """At the start: a record of the log about the queue."""
        return 0

    cdef int replay_publish(self, uint64_t epoch, uint64_t index, uint64_t slot, int64_t wall_ms,
                            uint32_t flags, uint64_t gateway, uint64_t sequence, uint64_t place,
                            uint32_t body_len) except -1:
        """... and a message; 0 when it is not needed."""
        return 0

    cdef uint64_t relocate(self, uint64_t slot, uint64_t place) except? 0:
        """... and that one was moved; where it stood before, 0 when it is not held."""
        return 0

    cdef bint has_others(self) except -1:
        """Whether others may have what cannot be read here."""
        return False

    cdef bint asks_for(self, uint64_t slot) except -1:
        """A message cannot be read here: whether another replica is asked for it."""
        return False

    def change_cursors(self, bytes operation not None):
        """An operation of the queue's cursors, done when all replicas have it; its index."""
        raise NotImplementedError

    def when_committed(self, uint64_t index, action):
        """Call when all replicas have an operation, or this one is the master no more."""
        raise NotImplementedError


cdef class QueuePort:
    """Where a session puts publishes and settlements: implemented by the queue."""

    cdef int publish(self, Message message, int64_t now_ms) except -1:
        raise NotImplementedError

    cdef int publish_from(self, Message message, int64_t now_ms, uint64_t gateway,
                          uint64_t sequence) except -1:
        """The publish of that number by a gateway; one that a mirrored queue has had is dropped."""
        return self.publish(message, now_ms)

    cdef int ack(self, uint64_t slot) except -1:
        raise NotImplementedError

    cdef int reject(self, uint64_t slot) except -1:
        raise NotImplementedError

    cdef int requeue(self, uint64_t slot) except -1:
        raise NotImplementedError

    cdef int take_back(self, uint64_t slot) except -1:
        """Put a message back that its consumer never saw: as if it had not been delivered."""
        raise NotImplementedError

    cdef int pump(self, int64_t now_ms) except -1:
        raise NotImplementedError

    cdef int pump_some(self, int64_t now_ms, int limit) except -1:
        raise NotImplementedError

    cdef int consumer_ready(self, ConsumerPort consumer) except -1:
        raise NotImplementedError

    cdef int tell_gone(self) except -1:
        """The turn is over: tell the journal which messages have left."""
        return 0

    cdef int restore(self, uint64_t slot, uint64_t place, uint32_t body_len, int64_t expires_ms,
                     uint32_t flags) except -1:
        """At the start: a message of the log is in this queue; its flags as `stage` wrote them."""
        return 0

    cdef int restore_gone(self, uint64_t first, uint64_t count) except -1:
        """... and these have left it."""
        return 0

    cdef int restore_returned(self, uint64_t slot) except -1:
        """... and this one was put back once more."""
        return 0

    cdef int restore_opened(self, uint64_t slot) except -1:
        """... and all before this one may have been delivered."""
        return 0

    cdef int restore_cursor(self, bytes operation) except -1:
        """... and an operation of its cursors."""
        return 0

    def check_drained(self):
        """Raises AccessRefused when a cursor is the queue's consumer, and there may be no other."""

    cdef bint move(self, uint64_t slot, uint64_t from_place, Message message) except -1:
        """The message has a new place in the log; False when the queue does not hold it."""
        return False

    cdef bint holds(self, uint64_t slot, uint64_t place) except -1:
        """Whether the queue needs what stands there for that slot."""
        return False

    cdef uint64_t relocate(self, uint64_t slot, uint64_t place) except? 0:
        """At the start: the message was moved; where it stood before, 0 when it is not held."""
        return 0


cdef class JournalPort:
    """Where queues note what must survive, and where they get paged messages back from.

    A publish is staged by each queue that keeps it and then committed once, so that its body is
    written once. What leaves a queue is told at the end of the turn, in runs.
    """

    def __cinit__(self, *_arguments, **_options):
        self.confirming = []

    cdef int stage(self, QueuePort queue, uint64_t slot, int64_t expires_ms,
                   int how) except -1:
        return 0

    cdef int commit(self, Message message) except -1:
        return 0

    cdef int note_gone(self, QueuePort queue) except -1:
        """The queue has something to tell at the end of the turn."""
        return 0

    cdef int gone(self, QueuePort queue, Run* runs, size_t count) except -1:
        return 0

    cdef int returned(self, QueuePort queue, uint64_t slot) except -1:
        return 0

    cdef uint64_t open_up(self, QueuePort queue, uint64_t slot) except 0:
        """All before the slot may be delivered once the record returned is on the disk."""
        raise NotImplementedError

    cdef uint64_t cursor(self, QueuePort queue, bytes operation) except 0:
        """An operation of the queue's cursors; its record."""
        raise NotImplementedError

    cdef void release(self, uint64_t place, uint32_t size, bint kept) noexcept:
        """What stands there is needed once less; `kept`: after a restart it would have been."""

    cdef bint retain(self, uint64_t place, uint32_t size) noexcept:
        """What stands there is needed once more; False when it is gone already."""
        return False

    cdef int place_aside(self, QueuePort queue, Message message) except -1:
        """Gives a place to a message that is in memory only, so that it can be paged out."""
        return 0

    cdef uint64_t write_index(self, QueuePort queue, const uint8_t* data, size_t n) except 0:
        raise NotImplementedError

    cdef bytes read_index(self, uint64_t place):
        return None

    cdef bytes read_ahead(self, uint64_t place, size_t n):
        """Up to `n` bytes of the log from a place on, for `message_in`."""
        return None

    cdef Message message_in(self, bytes window, uint64_t start, uint64_t place):
        """The message at a place, if it stands whole and sound in those bytes; else None."""
        return None

    cdef Message fetch(self, uint64_t place):
        """The message at a place; None when it cannot be read."""
        return None

    cdef int unreadable(self, QueuePort queue, uint64_t slot, uint64_t place,
                        uint64_t count) except -1:
        return 0

    cdef int64_t to_wall(self, int64_t expires_ms) noexcept:
        return expires_ms

    cdef int64_t from_wall(self, int64_t wall_ms) noexcept:
        return wall_ms

    cdef int end_turn(self) except -1:
        return 0

    cdef int rings(self, MirrorPort mirror) except -1:
        """Call its `end_turn` at the end of this turn."""
        return 0


cdef class QueueEffects:
    """What a queue asks of its surroundings: implemented by the engine.

    Calls come in the middle of a queue operation: the engine notes them and acts when it is over.
    """

    cdef int dead_letter(self, QueuePort queue, Message message, int reason,
                         int64_t slot) except -1:
        """A message is dead. It stays in its slot until its queue hears that it is safe elsewhere.

        `NO_SLOT`: it has never been in the queue.
        """
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

    cdef int go_on(self) except -1:
        """What the connection waited for has come: give it what it left unread."""
        return 0

    def hold(self, QueuePort queue not None):
        """`hold_back` for Python callers."""
        self.hold_back(queue)

    def set_blocked(self, bint blocked):
        self.block_reading(blocked)


cdef class FrameSink:
    """Who takes the frames of a link between nodes: the gateway on either side of it."""

    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        """A whole frame has come; the memory is only lent. ValueError: the peer is broken."""
        raise NotImplementedError

    cdef int end_turn(self) except -1:
        """All frames that came together have been taken."""
        return 0

    cdef int send_gathered(self) except -1:
        """The turn is over; called once for each time it stood in `TurnClock.ending`."""
        return 0

    def link_lost(self):
        """The link is over, and with it everything that was said on it."""


cdef class PeerPort:
    """The way out to another node: implemented by the network shell.

    A frame is written in place: `reserve` room for its payload, fill it, `commit` what it came to.
    It leaves at the end of the turn.
    """

    cdef uint8_t* reserve(self, int kind, size_t n) except NULL:
        raise NotImplementedError

    cdef int commit(self, size_t n) except -1:
        return 0

    cdef size_t pending(self) noexcept:
        """Bytes that the other node has not taken yet."""
        return 0

    def send(self, int kind, bytes payload not None):
        """One frame from Python."""
        cdef uint8_t* room = self.reserve(kind, len(payload))
        memcpy(room, <const uint8_t*><char*>payload, len(payload))
        self.commit(len(payload))


cdef class PublishCounts:
    """How much has gone through an exchange; each of its routes counts here."""


cdef class Route:
    """The queues of one (exchange, routing key), remembered until a binding changes.

    `valid` is cleared when the route is forgotten. `plain` says that the queues may be given the
    message as it stands; otherwise the engine's full publish decides message by message.
    """

    def __init__(self, Address address not None, exchange, tuple queues not None, bint plain):
        self.address = address
        self.exchange = exchange
        self.counts = getattr(exchange, "counts", None) or PublishCounts()
        self.queues = queues
        self.plain = plain
        for queue in queues:
            if isinstance(queue, QueuePort) and (<QueuePort>queue).far:
                self.far = True
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
