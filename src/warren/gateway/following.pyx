"""The publishes to a queue that goes where its master goes.

They are numbered one by one, and what a home has not answered goes to the next one in order, which
drops what has reached it by another way. The oldest are held here, those behind them are with the
home, and the newest, if its home cannot be reached and is waited for, are put aside on the disk.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t

from warren.gateway.stash cimport Stash
from warren.gateway.stream cimport (
    REFILL_BYTES, UNANSWERED_BYTES_MAX, UNANSWERED_BYTES_RELIEVED, Stream,
)
from warren.gateway.unanswered cimport Following, Sent, Unanswered, answer
from warren.model.message cimport Message
from warren.model.ports cimport (
    ACCEPTED, REJECTED, JournalPort, PublisherPort, QueuePort, TurnClock,
)

from functools import partial

from warren.wire.content import make_message


cdef class FollowingQueue(Following):
    """See the module's text. `RemoteQueue` adds deliveries, and plain queues."""

    cdef int publish_following(self, Message message) except -1:
        cdef TurnClock turn = self.gateway.turn
        if (self.over or (self.absent and self.gateway.room is None)
                or not self.gateway.fits(message)):
            return REJECTED
        self.order += 1
        if self.is_out_of_reach():
            return self.put_aside(message)
        # While older ones are with the home the new ones go behind them, whatever comes of it.
        if self.sent or not (self.held.count or self.holding or self.absent or self.gateway.gone):
            return self.gateway.publish_following(self, self.number, self.order, message)
        self.held.push(message, self.number, turn.publisher, turn.publish_tag)
        self.held.follow(self, self.order)
        if turn.publisher is not None:
            turn.parts += 1
        if self.held.count == 1 and not (self.holding or self.absent):
            self.now_holding()
        if self.held.size > UNANSWERED_BYTES_MAX and self.is_backed_up():
            self.congested = True
        return ACCEPTED

    cdef bint is_out_of_reach(self) noexcept:
        """Whether the next publish goes to the disk: none overtakes those that are there."""
        if self.gateway.room is None:
            return False
        if self.stash is not None and self.stash.count:
            return True
        if self.gateway.port is None and self.gateway.unanswered.size > self.gateway.room.window:
            return True
        return ((self.absent or self.gateway.port is None)
                and self.held.size > self.gateway.room.window)

    cdef int put_aside(self, Message message) except -1:
        cdef TurnClock turn = self.gateway.turn
        if self.stash is None:
            self.stash = Stash(self.gateway.room)
        self.stash.put(message, self.number, turn.publisher, turn.publish_tag, self.order)
        self.gateway.stashing[self.number] = self
        if turn.publisher is not None:
            turn.parts += 1
        if self.is_backed_up():
            self.congested = True
        return ACCEPTED

    cdef bint is_backed_up(self) except -1:
        """Whether publishers have to wait."""
        cdef bint some = self.stash is not None and self.stash.count
        if self.gateway.room is not None and (some or self.absent or self.gateway.port is None):
            if some:
                self.stash.try_again()
            # What comes in while the disk is read again would keep that from ending.
            return some and (self.stash.is_full()
                             or not (self.absent or self.gateway.port is None))
        return self.held.size > UNANSWERED_BYTES_RELIEVED

    cdef int refill(self) except -1:
        cdef Stream gateway = self.gateway
        cdef Sent entry
        # What is held goes first; it is sent again in a moment.
        if self.absent or self.holding or self.held.count or gateway.port is None:
            return 0
        while self.stash.count and gateway.unanswered.size < REFILL_BYTES:
            self.stash.take(&entry)
            Py_INCREF(self)
            entry.queue = <PyObject*>self
            gateway.unanswered.append(&entry)
            self.sent += 1
        if self.stash.count == 0:
            gateway.stashing.pop(self.number, None)
            self.relieve_if_room()
        return gateway.note()

    @property
    def held_count(self):
        """Publishes that wait for a home in memory."""
        return self.held.count

    @property
    def stashed_count(self):
        """Publishes that are put aside on the disk."""
        return 0 if self.stash is None else self.stash.count

    cdef int collect(self) except -1:
        """All that is unanswered is held, in order; the stream keeps only the numbers."""
        cdef Unanswered ring = self.gateway.unanswered
        cdef Sent entry
        cdef size_t i = 0
        while self.sent and i < ring.count:
            if ring.at(i).queue is <PyObject*>self:
                ring.strip(i, &entry)
                self.held.append(&entry)
                self.sent -= 1
            i += 1
        return 0

    def follow(self, Stream gateway not None, bint holding=False):
        """The queue may move from now on, and this leads to its home: all goes there, in order.

        `holding`: nothing is to be sent yet.
        """
        cdef Stream before = self.gateway
        self.collect()
        self.following = True
        self.absent = False
        self.holding = holding
        if gateway is not before:
            before.followers.pop(self.number, None)
            if before.stashing.pop(self.number, None) is not None:
                gateway.stashing[self.number] = self
            if self.congested and self in before.congested_queues:
                before.congested_queues.remove(self)
            self.gateway = gateway
            self.session = gateway.session
        if self.number:
            gateway.followers[self.number] = self
        self.attempt += 1
        if self.held.count and not holding:
            if gateway.gone:
                self.now_holding()
            else:
                gateway.take_over(self)
        if gateway is not before:
            before.relieve()
        if self.number in gateway.stashing:
            self.refill()
        self.relieve_if_room()

    def follow_again(self):
        """What is held is sent to the home once more; without one it waits for the next."""
        if self.following and self.held.count and not (self.over or self.absent):
            self.follow(self.gateway, self.holding)

    cdef int relieve_if_room(self) except -1:
        """Publishers that were held back by what is held go on."""
        if self.congested and self not in self.gateway.congested_queues:
            if self.gateway.is_congested():
                self.gateway.congested_queues.append(self)
            elif not self.is_backed_up():
                self.congested = False
                self.gateway.effects.relieved(self)
        return 0

    def continue_from(self, uint64_t order, uint32_t attempt):
        """Numbers up to here were used by others before it in this process."""
        self.order = order
        self.attempt = attempt

    def hold_again(self, Message message, PublisherPort publisher not None, uint64_t tag,
                   uint64_t order):
        """A publish that this node has taken while it was the home, and not answered.

        None for the message: there is nothing to send again, so nobody knows what became of it.
        """
        if message is None:
            if publisher.part_done(tag, False):
                publisher.parts_over()
            return
        if message.place:
            message = make_message(message.address, message.header, message.body)
        self.held.push(message, self.number, publisher, tag)
        self.held.follow(self, order)

    def refuse_all(self, bint over=False):
        """No master is in sight, or it is deleted (`over`): nothing is waited for any longer.

        With a stash a master is waited for; only what is deleted is given up.
        """
        self.collect()
        self.following = self.absent = True
        self.over = over
        if over:
            self.gateway.followers.pop(self.number, None)
        if over or self.gateway.room is None:
            self.refuse_held()
        self.gateway.relieve()
        self.relieve_if_room()

    cdef int refuse_held(self) except -1:
        cdef Sent entry
        cdef PublisherPort publisher
        cdef list told = []
        while self.held.count:
            self.held.take_first(&entry)
            answer(&entry, False, told)
        while self.stash is not None and self.stash.count:
            self.stash.take(&entry)
            answer(&entry, False, told)
        self.gateway.stashing.pop(self.number, None)
        for publisher in told:
            publisher.parts_over()
        return 0

    def publish_to(self, QueuePort target not None, uint64_t gateway, int64_t now_ms,
                   JournalPort journal=None):
        """The queue is on this node now: all that is unanswered is published to it, in order."""
        cdef TurnClock turn = self.gateway.turn
        cdef Sent entry
        cdef PublisherPort publisher, before = turn.publisher
        cdef uint64_t tag_before = turn.publish_tag, parts_before = turn.parts
        cdef Message message
        cdef bint accepted
        cdef list told = [], late = []
        self.collect()
        self.over = True
        self.gateway.followers.pop(self.number, None)
        self.gateway.stashing.pop(self.number, None)
        while self.held.count or (self.stash is not None and self.stash.count):
            if self.held.count:
                self.held.take_first(&entry)
            else:
                self.stash.take(&entry)
            turn.publisher = None if entry.publisher is NULL else <PublisherPort>entry.publisher
            turn.publish_tag = entry.tag
            turn.parts = 0
            message = <Message>entry.message
            if message.place:
                # Another queue may hold it under that place in the log.
                message = make_message(message.address, message.header, message.body)
            accepted = target.publish_from(message, now_ms, gateway, entry.order) == ACCEPTED
            if journal is not None and journal.staged:
                journal.commit(message)
            if turn.parts:
                # The queue answers later, in place of the home.
                Py_XDECREF(entry.publisher)
                entry.publisher = NULL
            elif accepted and journal is not None and entry.publisher is not NULL:
                # One that does not: its node's disk is to have it first.
                late.append((<PublisherPort>entry.publisher, entry.tag))
                Py_XDECREF(entry.publisher)
                entry.publisher = NULL
            answer(&entry, accepted, told)
        turn.publisher = before
        turn.publish_tag = tag_before
        turn.parts = parts_before
        for publisher in told:
            publisher.parts_over()
        if late and (<object>journal).appended > (<object>journal).persisted:
            (<object>journal).when_persisted((<object>journal).appended, partial(tell_late, late))
        elif late:
            # All of it has come before, and is there: nothing may be written that would tell.
            tell_late(late)
        self.gateway.relieve()
        if self.congested:
            self.congested = False
            self.gateway.effects.relieved(self)


def tell_late(list late not None):
    """What was published here is on the disk."""
    cdef PublisherPort publisher
    cdef list told = []
    for publisher, tag in late:
        if publisher.part_done(<uint64_t>tag, True):
            told.append(publisher)
    for publisher in told:
        publisher.parts_over()
