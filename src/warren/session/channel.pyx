"""A channel's hot half: publishes coming in, deliveries going out, settlements coming back.

All other methods of a channel are in the `handle_*` modules. A publish is three or more frames;
`on_publish`, `on_header` and `on_body` gather them and `finish` hands the message to its queues.
Most publishers repeat themselves, so the arguments of the last basic.publish are kept with the
route they led to, and a repetition costs one comparison.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from warren.model.message cimport (
    BAD_EXPIRATION, HAS_CARBON_COPY, HAS_REPLY_TO, HAS_USER_ID, Message,
)
from warren.model.ports cimport (
    ConsumerPort, JournalPort, PublisherPort, QueuePort, Route, RouteBook, TurnClock,
)
from warren.session.confirms cimport Confirms
from warren.session.deliveries cimport Deliveries, Delivery
from warren.session.outlet cimport Outlet
from warren.wire.content cimport scan_content
from warren.wire.octets cimport load16, load64, store32, store64

from warren.model.errors import (
    FrameError, NotImplemented_, PreconditionFailed, UnexpectedFrame, WireSyntaxError,
)

cdef enum:
    # Properties that need the engine's full publish.
    SPECIAL = HAS_CARBON_COPY | HAS_REPLY_TO | HAS_USER_ID | BAD_EXPIRATION
    # How many messages in a row one of several consumers gets of shared room.
    PORTION = 16
    # No message is longer, whatever the configuration says: sizes are kept in 32 bits.
    MESSAGE_BYTES_MAX = 536870912
    # A body is given memory as it arrives, not as it was announced; this much to start with.
    BODY_ROOM_BYTES = 131072


cdef uint64_t ALL_PERSISTED = ~<uint64_t>0

SETTLEMENTS = {"ack": SETTLE_ACK, "reject": SETTLE_REJECT, "requeue": SETTLE_REQUEUE}


@cython.final
cdef class Consumer(ConsumerPort):
    """One basic.consume of a channel."""

    def __init__(self, Channel channel not None, str tag not None, QueuePort queue, bint no_ack,
                 bint exclusive=False, int priority=0, dict arguments=None, uint32_t prefetch=0):
        self.channel = channel
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.arguments = arguments or {}
        self.prefetch = prefetch
        encoded = tag.encode("utf-8", "surrogateescape")
        self.prefix = (b"\x01" + channel.number.to_bytes(2, "big") + b"\0\0\0\0" + b"\0\x3c\0\x3c"
                       + bytes([len(encoded)]) + encoded)

    cdef bint can_take(self):
        cdef Channel channel = self.channel
        if self.cancelled or not channel.outlet.writable:
            return False
        if self.no_ack:
            return True
        return ((self.prefetch == 0 or self.inflight < self.prefetch)
                and (channel.global_prefetch == 0 or channel.inflight < channel.global_prefetch))

    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot,
                     bint redelivered) except -1:
        cdef Channel channel = self.channel
        channel.deliveries.last_tag += 1
        if not self.no_ack:
            channel.deliveries.push(slot, queue, self, channel.outlet.turn.now_ms)
            self.inflight += 1
            channel.inflight += 1
            if channel.global_prefetch and channel.inflight >= channel.global_prefetch:
                channel.stand_aside()
        return self.encode(message, redelivered)

    cdef int encode(self, Message message, bint redelivered) except -1:
        cdef Channel channel = self.channel
        cdef Outlet outlet = channel.outlet
        cdef bytes address = message.address.wire
        cdef Py_ssize_t prefix_len = PyBytes_GET_SIZE(self.prefix)
        cdef Py_ssize_t address_len = PyBytes_GET_SIZE(address)
        cdef Py_ssize_t size = prefix_len + 9 + address_len + 1
        cdef uint8_t* p = outlet.output.reserve(size + outlet.content_size(message))
        memcpy(p, PyBytes_AS_STRING(self.prefix), prefix_len)
        store32(p + 3, <uint32_t>(size - 8))
        p += prefix_len
        store64(p, channel.deliveries.last_tag)
        p[8] = redelivered
        memcpy(p + 9, PyBytes_AS_STRING(address), address_len)
        p[9 + address_len] = 0xCE
        outlet.output.end += size
        outlet.frames_out += 1
        outlet.write_content(channel.number, message)
        self.delivered += 1
        channel.redelivered += redelivered
        if channel.traced:
            channel.engine.trace_delivery(channel, self.queue, message, redelivered)
        return outlet.wrote()

    cdef int activity_changed(self, bint active) except -1:
        return 0

    def push(self, Message message not None):
        """Deliver a message that stands in no queue: a direct reply."""
        self.channel.deliveries.last_tag += 1
        self.encode(message, False)

    def cancel(self):
        """No more deliveries; what is out stays out."""
        self.cancelled = True

    def move_to(self, QueuePort queue not None):
        """Its queue has another place; what is out stays the old one's."""
        self.queue = queue
        self.available = False


cdef int share_out(list consumers, size_t first, int64_t now_ms) except -1:
    """Room that several consumers share goes to them in small portions, each time from another on.

    Otherwise the first one with a backlog would have it all, for as long as the backlog lasts.
    """
    cdef Consumer consumer
    cdef size_t n, i
    cdef bint more = True
    consumers = [c for c in consumers if (<Consumer>c).queue is not None]
    n = len(consumers)
    for consumer in consumers:
        if not consumer.available:
            consumer.queue.consumer_ready(consumer)
    while more:
        more = False
        for i in range(n):
            consumer = <Consumer>consumers[(first + i) % n]
            if consumer.available and consumer.queue.pump_some(now_ms, PORTION) == PORTION:
                more = True
    return 0


def share_room(list consumers not None, size_t first, int64_t now_ms):
    """`share_out` for the connection, whose channels share what the peer has room for."""
    share_out(consumers, first, now_ms)


@cython.final
cdef class Channel(PublisherPort):
    """See the module's text."""

    def __init__(self, connection, engine, Outlet outlet not None, int number,
                 uint64_t max_message_bytes):
        self.connection = connection
        self.engine = engine
        self.outlet = outlet
        self.number = number
        self.journal = None if engine is None else engine.journal
        self.max_message_bytes = min(max_message_bytes, <uint64_t>MESSAGE_BYTES_MAX)
        self.books = {}
        self.deliveries = Deliveries()
        self.consumers = {}

    # -- publishing --------------------------------------------------------------------------------

    cdef int on_publish(self, const uint8_t* p, uint32_t n) except -1:
        if self.state != WANT_METHOD:
            self.unexpected()
        if (self.last_publish is None or PyBytes_GET_SIZE(self.last_publish) != n
                or memcmp(PyBytes_AS_STRING(self.last_publish), p, n) != 0):
            self.remember(p, n)
        self.state = WANT_HEADER
        return 0

    cdef int remember(self, const uint8_t* p, uint32_t n) except -1:
        """Parses the arguments of basic.publish: reserved, exchange, routing key, bits."""
        cdef uint32_t exchange_len, key_len
        cdef bytes arguments
        if n < 5:
            raise FrameError("basic.publish is cut short")
        exchange_len = p[2]
        if n < 5 + exchange_len:
            raise FrameError("basic.publish is cut short")
        key_len = p[3 + exchange_len]
        if n != 5 + exchange_len + key_len:
            raise FrameError("basic.publish has a wrong length")
        if p[n - 1] & 2:
            raise NotImplemented_("immediate=true")
        arguments = PyBytes_FromStringAndSize(<char*>p, n)
        self.exchange = PyBytes_FromStringAndSize(<char*>p + 3, exchange_len)
        self.routing_key = PyBytes_FromStringAndSize(<char*>p + 4 + exchange_len, key_len)
        self.mandatory = p[n - 1] & 1
        book = self.books.get(self.exchange)
        if book is None:
            self.route = None
        else:
            self.route = <Route>(<RouteBook>book).routes.get(self.routing_key)
        self.last_publish = arguments
        return 0

    cdef int on_header(self, const uint8_t* p, uint32_t n) except -1:
        cdef uint64_t size
        cdef Message message
        if self.state != WANT_HEADER:
            self.unexpected()
        if n < 14:
            raise FrameError("content header is cut short")
        if load16(p) != 60:
            raise UnexpectedFrame(
                f"expected content header for class 60, got one for class {load16(p)} instead")
        size = load64(p + 4)
        if size > self.max_message_bytes:
            self.state = WANT_METHOD
            raise PreconditionFailed(
                f"message size {size} is larger than configured max size {self.max_message_bytes}")
        message = Message.__new__(Message)
        self.room = <uint32_t>size if size < BODY_ROOM_BYTES else BODY_ROOM_BYTES
        message.allocate(n, self.room)
        message.body_len = <uint32_t>size
        memcpy(message.data, p, n)
        if scan_content(message) != 0:
            raise WireSyntaxError("content header does not parse")
        self.message = message
        self.filled = 0
        if size == 0:
            return self.finish()
        self.state = WANT_BODY
        return 0

    cdef int on_body(self, const uint8_t* p, uint32_t n) except -1:
        cdef Message message = self.message
        cdef uint8_t* grown
        if self.state != WANT_BODY:
            self.unexpected()
        if n > message.body_len - self.filled:
            raise FrameError("content body is longer than its header announced")
        if self.filled + n > self.room:
            self.room = self.room * 2 if self.room * 2 >= self.filled + n else self.filled + n
            if self.room > message.body_len:
                self.room = message.body_len
            grown = <uint8_t*>PyMem_Realloc(
                message.data, <size_t>message.header_len + self.room + 1)
            if grown is NULL:
                raise MemoryError()
            message.data = grown
        memcpy(message.data + message.header_len + self.filled, p, n)
        self.filled += n
        if self.filled == message.body_len:
            return self.finish()
        return 0

    def unexpected(self):
        """A frame came that the state does not allow; the texts are those clients know."""
        raise UnexpectedFrame((
            "expected method frame, got non method frame instead",
            "expected content header for class 60, got non content header frame instead",
            "expected content body, got non content body frame instead",
        )[self.state])

    cdef int finish(self) except -1:
        """All frames of a publish are in: find its queues, give it to them, note the verdict."""
        cdef Message message = self.message
        cdef Route route = self.route
        cdef QueuePort queue = None
        cdef JournalPort journal = self.journal
        cdef uint64_t mark = 0, parts = 0
        cdef int refused = 0
        cdef Py_ssize_t i, n
        self.message = None
        self.state = WANT_METHOD
        if route is None or not route.valid:
            route = self.find_route()
        message.address = route.address
        route.counts.received += 1
        self.published += 1
        if self.transaction is not None:
            if message.marks & SPECIAL:
                self.engine.check_properties(self, message)
            self.transaction.append((message, route, self.mandatory))
            return 0
        if journal is not None:
            mark = journal.commit_mark
        n = len(route.queues)
        if route.plain and n and not message.marks & SPECIAL and not self.traced:
            route.counts.routed += <uint64_t>n
            if route.far and self.confirms is not None:
                self.name_publisher()
            for i in range(n):
                queue = <QueuePort>route.queues[i]
                refused |= queue.publish(message, self.outlet.turn.now_ms)
                if queue.congested:
                    self.outlet.link.hold_back(queue)
            if journal is not None:
                if journal.staged:
                    journal.commit(message)
                if journal.behind:
                    self.outlet.link.hold_back(queue)
            if route.far:
                self.outlet.turn.publisher = None
                parts = self.outlet.turn.parts
        else:
            refused = self.publish_in_full(message, route, &parts)
        if self.confirms is not None:
            if journal is not None:
                # Only what this publish has written is waited for.
                mark = journal.commit_mark if journal.commit_mark != mark else 0
            self.confirms.note(refused == 0, mark, parts, self.outlet.turn.now_us)
            if not self.confirms_due:
                self.confirms_due = True
                self.outlet.confirming.append(self)
        return 0

    cdef int publish_in_full(self, Message message, Route route, uint64_t* parts) except -1:
        """What the straight path cannot take; also counts the answers that are still to come."""
        if self.confirms is None:
            return self.engine.publish(self, message, route, self.mandatory)
        self.name_publisher()
        try:
            return self.engine.publish(self, message, route, self.mandatory)
        finally:
            parts[0] = self.outlet.turn.parts
            self.outlet.turn.publisher = None

    cdef int name_publisher(self) except -1:
        """Queues on other nodes take note of who publishes."""
        cdef TurnClock turn = self.outlet.turn
        turn.publisher = self
        turn.publish_tag = self.confirms.last + 1
        turn.parts = 0
        return 0

    cdef int flush_confirms(self) except -1:
        """The turn is over: acks that have gathered go out as one."""
        self.confirms_due = False
        if self.confirms is not None and not self.closing:
            self.confirms.flush(self.outlet, self.number,
                                ALL_PERSISTED if self.journal is None else self.journal.persisted)
            if (self.confirms.count and not self.confirms_waiting and self.journal is not None
                    and self.confirms.at(0).mark > self.journal.persisted):
                self.confirms_waiting = True
                self.journal.confirming.append(self)
        return 0

    cdef bint part_done(self, uint64_t tag, bint accepted) except -1:
        if self.confirms is None or not self.confirms.part_done(tag, accepted):
            return False
        if self.confirms_due:
            return False
        self.confirms_due = True
        return True

    cdef int parts_over(self) except -1:
        return self.flush_confirms()

    def release_confirms(self):
        """The log has come further: some of what waits may be told."""
        self.confirms_waiting = False
        self.flush_confirms()

    def find_route(self):
        self.route = self.engine.route_for(self, self.exchange, self.routing_key)
        return self.route

    def forget_routes(self):
        """Permissions may have changed: ask the engine again at the next publish."""
        self.books.clear()
        self.last_publish = None
        self.route = None

    def select_confirms(self):
        if self.confirms is None:
            self.confirms = Confirms()

    def tell_confirms(self):
        """Send the acks that have gathered so far."""
        self.flush_confirms()

    @property
    def content_pending(self):
        """A publish has begun and its content is not complete."""
        return self.state != WANT_METHOD

    # -- settling ----------------------------------------------------------------------------------

    cdef int settle(self, uint64_t tag, bint multiple, int how) except -1:
        """basic.ack, basic.nack and basic.reject."""
        cdef int64_t i
        cdef QueuePort queue
        if tag == 0 and multiple:
            return self.settle_range(self.deliveries.last_tag, how)
        i = self.deliveries.find(tag)
        if i < 0:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if multiple:
            return self.settle_range(tag, how)
        queue = self.settle_at(<size_t>i, how)
        return self.wake(queue)

    cdef QueuePort settle_at(self, size_t i, int how):
        cdef Delivery* entry = self.deliveries.at(i)
        cdef QueuePort queue = <QueuePort>entry.queue
        cdef uint64_t slot = entry.slot
        cdef Consumer consumer
        if entry.consumer is not NULL:
            consumer = <Consumer>entry.consumer
            consumer.inflight -= 1
            self.inflight -= 1
            if self.touched is not consumer:
                self.touched_several = self.touched is not None
                self.touched = consumer
        self.deliveries.settle(i)
        if how == SETTLE_ACK:
            self.acked += 1
            queue.ack(slot)
        elif how == SETTLE_REJECT:
            queue.reject(slot)
        else:
            queue.requeue(slot)
        return queue

    cdef int settle_range(self, uint64_t last_tag, int how) except -1:
        """Settles everything outstanding up to a tag."""
        cdef QueuePort queue = None, other
        cdef list others = None
        while self.deliveries.count and self.deliveries.at(0).tag <= last_tag:
            other = self.settle_at(0, how)
            if other is not queue:
                if queue is not None:
                    if others is None:
                        others = []
                    if queue not in others:
                        others.append(queue)
                queue = other
        if queue is not None:
            self.wake(queue)
        if others is not None:
            for other in others:
                self.wake(other)
        return 0

    cdef int wake(self, QueuePort queue) except -1:
        """Room has come free: consumers that waited for it stand in line again."""
        cdef Consumer consumer = self.touched
        self.touched = None
        if self.global_prefetch or self.touched_several:
            self.touched_several = False
            self.wake_all()
        elif consumer is not None and not consumer.available:
            consumer.queue.consumer_ready(consumer)
            if consumer.queue is not queue:
                # It was settled with the place that its queue had before.
                consumer.queue.pump(self.outlet.turn.now_ms)
        return queue.pump(self.outlet.turn.now_ms)

    def settle_tag(self, uint64_t tag, bint multiple, str how not None):
        """Settle from Python: "ack", "reject" or "requeue"."""
        self.settle(tag, multiple, SETTLEMENTS[how])

    def is_outstanding(self, uint64_t tag):
        return self.deliveries.find(tag) >= 0

    def note_get(self, QueuePort queue, uint64_t slot, bint no_ack):
        """basic.get hands out a message: the delivery tag for it."""
        self.deliveries.last_tag += 1
        if not no_ack:
            self.deliveries.push(slot, queue, None, self.outlet.turn.now_ms)
        return self.deliveries.last_tag

    def disown(self, QueuePort queue not None):
        """What is out of a queue is out no more: no limit counts it, and settling it does nothing.

        The client does not know, and settles it some time; until then it keeps its tags.
        """
        cdef size_t i
        cdef Delivery* entry
        cdef Consumer consumer
        for i in range(self.deliveries.count):
            entry = self.deliveries.at(i)
            if entry.queue is <PyObject*>queue and entry.consumer is not NULL:
                consumer = <Consumer>entry.consumer
                consumer.inflight -= 1
                self.inflight -= 1
                entry.consumer = NULL
                Py_XDECREF(<PyObject*>consumer)
        if self.global_prefetch:
            self.wake_all()

    def set_global_prefetch(self, uint32_t limit):
        self.global_prefetch = limit
        self.stand_aside()
        self.wake_all()

    def stand_aside(self):
        """The shared limit is used up: no consumer of the channel waits in line any longer."""
        cdef Consumer consumer
        for consumer in self.consumers.values():
            if consumer.available and consumer.queue is not None:
                consumer.queue.consumer_ready(consumer)

    def wake_all(self):
        """The limit that all share has room again, or was raised."""
        self.wake_from += 1
        share_out(list(self.consumers.values()), self.wake_from, self.outlet.turn.now_ms)

    def requeue_all(self):
        """The channel recovers: what is out goes back to its queues and out again."""
        self.settle_range(self.deliveries.last_tag, SETTLE_REQUEUE)

    def give_back_all(self):
        """The channel ends: what is out goes back; the queues concerned, for the caller to run."""
        queues = {}
        while self.deliveries.count:
            queues[self.settle_at(0, SETTLE_REQUEUE)] = None
        self.touched = None
        return list(queues)
