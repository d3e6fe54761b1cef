"""What a gateway sends to one home: a numbered stream of publishes, and settlements between them.

The newest publish is written when something follows it or the turn ends, so that the next queue of
the same message can join it. Settlements gather into runs. Both keep their order among each other.

With a `StashRoom` a home that cannot be reached is waited for, however long it takes: what does not
fit into a small window of memory is put aside on the disk, and follows when there is a link again.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.gateway.frames cimport (
    ADDRESS_BYTES_MAX, CREDIT_BYTES, FRAME_CREDIT, FRAME_PUBLISH, FRAME_PUBLISH_TO, FRAME_SETTLE,
    FRAME_SKIP, PUBLISH_HEAD_BYTES, PUBLISH_TO_HEAD_BYTES, QUEUES_MAX, SETTLE_RECORD_BYTES,
    SETTLE_REQUEUE,
)
from warren.gateway.messages cimport whole_address, write_message
from warren.gateway.numbered cimport Numbered
from warren.gateway.stash cimport Stash, StashRoom
from warren.gateway.unanswered cimport Following, Sent, Unanswered
from warren.model.message cimport Message
from warren.model.ports cimport (
    ACCEPTED, REJECTED, FrameSink, PublisherPort, QueueEffects, QueuePort, TurnClock,
)
from warren.wire.octets cimport store32, store64

from cpython.object cimport PyObject


cdef class Stream(FrameSink):
    """The way out of a gateway; `Gateway` adds what comes back."""

    def __init__(self, TurnClock turn not None, QueueEffects effects not None):
        self.turn = turn
        self.effects = effects
        self.unanswered = Unanswered()
        self.consumers = Numbered()
        self.followers = {}
        self.congested_queues = []
        self.slowed = {}
        self.stashing = {}
        self.deleted = set()

    def use_stash(self, StashRoom room not None):
        """A home that is down, or cannot be reached, is waited for."""
        self.room = room
        self.stash = Stash(room)

    cdef int note(self) except -1:
        """There is something to send when the turn ends."""
        if not self.noted:
            self.noted = True
            self.turn.ending.append(self)
        return 0

    cdef int send_gathered(self) except -1:
        self.noted = False
        if self.port is not None:
            # Whichever of the two has gathered something: never both.
            self.write_publishes()
            self.write_settlements()
        return 0

    # -- publishes ---------------------------------------------------------------------------------

    cdef int publish(self, QueuePort queue, uint32_t number, Message message) except -1:
        cdef Unanswered unanswered = self.unanswered
        cdef PublisherPort publisher = self.turn.publisher
        cdef uint64_t last = unanswered.answered + unanswered.count
        cdef Sent* newest
        if (self.gone and self.room is None) or not self.fits(message):
            return REJECTED
        if self.room is not None and self.puts_aside():
            return self.put_aside(queue, number, message)
        if last > self.written and unanswered.count:
            newest = unanswered.at(unanswered.count - 1)
            if (newest.message is <PyObject*>message and newest.count < QUEUES_MAX
                    and newest.tag == self.turn.publish_tag and newest.queue is NULL
                    and newest.publisher is (NULL if publisher is None else <PyObject*>publisher)):
                unanswered.add_number(newest, number)
                return ACCEPTED
            if self.port is not None:
                self.write_publishes()
        if self.run_count or self.settled_len:
            self.write_settlements()
        unanswered.push(message, number, publisher, self.turn.publish_tag)
        if publisher is not None:
            self.turn.parts += 1
        if not self.noted:
            self.note()
        if not queue.congested and self.is_congested():
            queue.congested = True
            self.congested_queues.append(queue)
        return ACCEPTED

    cdef bint fits(self, Message message) except -1:
        """Whether its address is short enough for a frame."""
        return (not message.address.hidden_keys
                or len(whole_address(message.address)) <= ADDRESS_BYTES_MAX)

    cdef int publish_following(self, Following queue, uint32_t number, uint64_t order,
                               Message message) except -1:
        """For a queue that may move: under a sequence number of its own."""
        if self.port is not None:
            self.write_publishes()
            self.write_settlements()
        self.unanswered.push(message, number, self.turn.publisher, self.turn.publish_tag)
        self.unanswered.follow(queue, order)
        queue.sent += 1
        if self.turn.publisher is not None:
            self.turn.parts += 1
        if not self.noted:
            self.note()
        if not queue.congested and self.is_congested():
            queue.congested = True
            self.congested_queues.append(queue)
        return ACCEPTED

    # -- publishes that are put aside --------------------------------------------------------------

    cdef bint puts_aside(self) noexcept:
        """Whether the next publish goes to the disk: none overtakes those that are there."""
        return self.stash.count or (
            self.port is None and self.unanswered.size > self.room.window)

    cdef int put_aside(self, QueuePort queue, uint32_t number, Message message) except -1:
        if (self.stash.put(message, number, self.turn.publisher, self.turn.publish_tag, 0)
                and self.turn.publisher is not None):
            self.turn.parts += 1
        if not queue.congested and self.is_congested():
            queue.congested = True
            self.congested_queues.append(queue)
        return ACCEPTED

    cdef int refill(self) except -1:
        """There is a link, and room in memory: what is on the disk follows."""
        cdef Sent entry
        cdef Following queue
        if self.port is None or self.unanswered.size >= REFILL_BYTES:
            return 0
        self.write_publishes()
        self.write_settlements()
        while self.stash.count and self.unanswered.size < REFILL_BYTES:
            self.stash.take(&entry)
            self.unanswered.append(&entry)
        for queue in list(self.stashing.values()):
            queue.refill()
        self.write_publishes()
        return 0

    cdef int take_over(self, Following queue) except -1:
        """All that the queue holds is for this home now."""
        cdef Sent entry
        if self.port is not None:
            self.write_publishes()
            self.write_settlements()
        while queue.held.count:
            queue.held.take_first(&entry)
            self.unanswered.append(&entry)
            queue.sent += 1
        return self.note()

    cdef int write_publishes(self) except -1:
        """Gives the link all publishes that it has not had."""
        cdef uint64_t last = self.unanswered.answered + self.unanswered.count
        while self.written < last:
            self.write_publish(self.written + 1, self.unanswered.of(self.written + 1))
            self.written += 1
        if self.written > self.handed:
            self.handed = self.written
        return 0

    cdef int write_publish(self, uint64_t sequence, Sent* entry) except -1:
        cdef uint8_t head[PUBLISH_TO_HEAD_BYTES]
        cdef Message message
        if entry.message is NULL:
            store64(self.port.reserve(FRAME_SKIP, 8), sequence)
            return self.port.commit(8)
        message = <Message>entry.message
        store64(head, sequence)
        if entry.queue is not NULL:
            store64(head + 8, entry.order)
            store32(head + 16, (<Following>entry.queue).attempt)
            return write_message(self.port, FRAME_PUBLISH_TO, head, PUBLISH_TO_HEAD_BYTES, message,
                                 whole_address(message.address), &entry.number, 1)
        return write_message(
            self.port, FRAME_PUBLISH, head, PUBLISH_HEAD_BYTES, message,
            whole_address(message.address),
            &entry.number if entry.numbers is NULL else entry.numbers, entry.count)

    # -- settlements and credit --------------------------------------------------------------------

    cdef int settle(self, int kind, uint32_t queue, uint64_t slot) except -1:
        """A delivery of the current session is over."""
        if self.port is None:
            return 0
        if (self.run_count and kind == self.run_kind and queue == self.run_queue
                and slot == self.run_first + self.run_count and self.run_count < 0xFFFFFFFF):
            self.run_count += 1
            return 0
        if self.run_count:
            self.end_run()
        elif not self.settled_len:
            self.write_publishes()
        self.run_kind = kind
        self.run_queue = queue
        self.run_first = slot
        self.run_count = 1
        return self.note()

    cdef int end_run(self) except -1:
        cdef uint8_t* p
        if self.settled_len + SETTLE_RECORD_BYTES > SETTLE_BYTES_MAX:
            self.write_gathered()
        p = self.settled + self.settled_len
        p[0] = <uint8_t>self.run_kind
        store32(p + 1, self.run_queue)
        store64(p + 5, self.run_first)
        store32(p + 13, self.run_count)
        self.settled_len += SETTLE_RECORD_BYTES
        self.run_count = 0
        return 0

    cdef int write_gathered(self) except -1:
        memcpy(self.port.reserve(FRAME_SETTLE, self.settled_len), self.settled, self.settled_len)
        self.port.commit(self.settled_len)
        self.settled_len = 0
        return 0

    cdef int write_settlements(self) except -1:
        if self.run_count:
            self.end_run()
        if self.settled_len:
            self.write_gathered()
        return 0

    cdef int write_credit(self, uint32_t consumer, uint32_t messages, uint32_t size) except -1:
        cdef uint8_t* p
        if self.port is None:
            return 0
        p = self.port.reserve(FRAME_CREDIT, CREDIT_BYTES)
        store32(p, consumer)
        store32(p + 4, messages)
        store32(p + 8, size)
        return self.port.commit(CREDIT_BYTES)

    def give_back_slots(self, uint64_t session, uint32_t queue, slots):
        """The home has given these out on this link, and nobody is there to hold them."""
        if session == self.session:
            for slot in slots:
                self.settle(SETTLE_REQUEUE, queue, slot)

    def give_up_number(self, uint32_t number):
        """Nobody will have the consumer number that was reserved."""
        self.consumers.give_up(number)

    @property
    def stashed_count(self):
        """Publishes to plain queues that are put aside."""
        return 0 if self.stash is None else self.stash.count

    # -- back-pressure -----------------------------------------------------------------------------

    cdef bint is_congested(self) noexcept:
        if self.room is not None and (self.port is None or self.stash.count):
            # What comes in while the disk is read again would keep that from ending.
            return self.port is not None or self.stash.is_full()
        return (self.unanswered.size > UNANSWERED_BYTES_MAX
                or (self.port is not None and self.port.pending() > PENDING_BYTES_MAX))

    cdef bint is_relieved(self) except -1:
        if self.room is not None and (self.port is None or self.stash.count):
            self.stash.try_again()
            return self.port is None and not self.stash.is_full()
        return (self.unanswered.size <= UNANSWERED_BYTES_RELIEVED
                and (self.port is None or self.port.pending() <= PENDING_BYTES_RELIEVED))

    cdef int relieve(self) except -1:
        """Publishers that were held back go on, if there is room again."""
        cdef QueuePort queue
        cdef list queues
        if self.room is not None and (self.stash.count or self.stashing):
            self.refill()
        if self.congested_queues and self.is_relieved():
            queues = self.congested_queues
            self.congested_queues = []
            for queue in queues:
                queue.congested = False
                self.effects.relieved(queue)
        return 0
