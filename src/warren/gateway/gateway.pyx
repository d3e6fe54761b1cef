"""The gateway's end of the link to one home: what comes back, and what happens when links change.

It outlives links. Publishes that the home has not answered are kept and sent again on the next link
to the same incarnation of the home, which drops those it has had; when the home is gone, or comes
back as another incarnation, they are refused, since nobody knows what became of them. Those for
queues that follow a master are kept for the next one instead, which knows what it has had.

With a stash (`gateway.stream`) a home that is gone is waited for: what it was never sent goes to it
even if it comes back as another incarnation, what it was sent only if it comes back as the same.
"""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from warren.gateway.attachment cimport Attachment
from warren.gateway.frames cimport (
    DELIVER_HEAD_BYTES, FRAME_BEGIN_ANEW, FRAME_CONFIRM, FRAME_CONGESTED, FRAME_DELIVER,
    FRAME_DROPPED,
    FRAME_ELSEWHERE, FRAME_HEARD, FRAME_MORE, FRAME_REFUSED, FRAME_REPLY, FRAME_REQUEST,
    FRAME_START, NUMBER_BYTES, REPLY_HEAD_BYTES, REQUEST_HEAD_BYTES, SETTLE_RETURN, START_BYTES,
)
from warren.gateway.messages cimport Incoming, IncomingPayload, write_payload
from warren.gateway.remote_queue cimport RemoteQueue
from warren.gateway.stream cimport Stream
from warren.gateway.unanswered cimport Sent, answer, forget
from warren.model.message cimport Message
from warren.model.ports cimport FrameSink, PeerPort, PublisherPort
from warren.wire.octets cimport load32, load64, store16, store64

from warren.gateway.errors import LinkLostError
from warren.model.errand import Errand


@cython.final
cdef class Deaf(FrameSink):
    """Takes the frames of a link that another has replaced."""

    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        return 0


@cython.final
cdef class Gateway(Stream):
    """One for each home; see the module's text."""

    def __init__(self, turn, effects, str home not None=""):
        Stream.__init__(self, turn, effects)
        self.home = home
        self.errands = {}
        self.told = []
        self.incoming = Incoming()
        self.payload = IncomingPayload()

    # -- links -------------------------------------------------------------------------------------

    def attach_link(self, PeerPort port not None):
        """There is a link to the home: what is unanswered goes out on it, in order."""
        cdef uint8_t* p
        if self.port is not None:
            self.port.sink = Deaf()
            self.link_lost()
        if self.incarnation and self.incarnation != port.incarnation:
            self.home_gone()
            self.lose_handed()
        self.incarnation = port.incarnation
        self.gone = False
        self.port = port
        port.sink = self
        self.written = self.unanswered.answered
        p = port.reserve(FRAME_START, START_BYTES)
        store64(p, self.session + 1)
        store64(p + 8, self.unanswered.answered)
        port.commit(START_BYTES)
        self.write_publishes()
        self.deleted.clear()
        self.relieve()
        if self.on_attached is not None:
            self.on_attached(self)

    def link_lost(self):
        """Deliveries of this link are the home's again; publishes wait for the next link."""
        if self.port is None:
            return
        self.port = None
        self.session += 1
        self.settled_len = self.run_count = 0
        self.slowed.clear()
        self.partial = 0
        self.incoming = Incoming()
        self.payload = IncomingPayload()
        self.written = self.unanswered.answered
        errands, self.errands = self.errands, {}
        for errand in errands.values():
            errand.fail(LinkLostError(f"the link to {self.home} is lost"))
        self.tell_publishers()
        self.relieve()

    def home_gone(self):
        """The home is down: nothing is waited for any longer."""
        cdef Attachment attachment
        if self.port is not None:
            # It may be there until it has heard so, and it may send; nobody waits for that.
            self.port.sink = Deaf()
        self.link_lost()
        self.gone = True
        if self.room is None:
            self.give_up()
        else:
            self.unanswered.hold_following(self.told)
            self.refuse_deleted()
            self.tell_publishers()
            self.relieve()
        for _, attachment in self.consumers.all():
            # A queue that follows its master takes its consumers along.
            if (self.on_consumer_lost is not None
                    and not (<RemoteQueue>attachment.queue).following):
                self.on_consumer_lost(attachment.queue, attachment.consumer)

    def home_back(self):
        """The home is there again, its link soon: what is published waits for that."""
        self.gone = False

    cdef int lose_handed(self) except -1:
        """The home has begun anew: nobody knows what became of what it was sent before."""
        while self.unanswered.count and self.unanswered.answered < self.handed:
            self.unanswered.lose_next(self.told)
        self.written = self.unanswered.answered
        return self.tell_publishers()

    def home_forgotten(self):
        """The home will never be back."""
        self.home_gone()
        self.give_up()

    def queue_deleted(self, uint32_t number):
        """A plain queue of the home is gone: what waits for the home is not for it any more."""
        if self.room is not None and (self.unanswered.count or self.stash.count):
            self.deleted.add(number)
            if self.port is None:
                self.refuse_deleted()

    cdef int refuse_deleted(self) except -1:
        """What is for queues that are deleted; publishes to several wait for the home's word."""
        cdef Sent entry
        cdef size_t left = self.stash.count
        if not self.deleted:
            return 0
        self.unanswered.refuse_plain(self.deleted, self.told)
        while left:
            left -= 1
            self.stash.take(&entry)
            if entry.count == 1 and entry.number in self.deleted:
                answer(&entry, False, self.told)
            else:
                self.stash.put_entry(&entry)
                forget(&entry)
        self.deleted.clear()
        return self.tell_publishers()

    cdef int give_up(self) except -1:
        """All that is unanswered is refused, unless it waits for another home."""
        cdef Sent entry
        while self.unanswered.count:
            self.unanswered.lose_next(self.told)
        while self.stash is not None and self.stash.count:
            self.stash.take(&entry)
            answer(&entry, False, self.told)
        self.written = self.unanswered.answered
        self.tell_publishers()
        return self.relieve()

    # -- frames ------------------------------------------------------------------------------------

    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        if self.port is None:
            return 0  # The rest of what came together with what has ended the link.
        if self.partial and kind != FRAME_MORE:
            raise ValueError(f"frame {kind} in the middle of frame {self.partial}")
        if kind == FRAME_DELIVER:
            return self.on_deliver(payload, n)
        if kind == FRAME_CONFIRM:
            return self.on_confirm(payload, n)
        if kind == FRAME_REFUSED or kind == FRAME_ELSEWHERE:
            return self.on_refused(payload, n, kind == FRAME_ELSEWHERE)
        if kind == FRAME_REPLY:
            return self.on_reply(payload, n)
        if kind == FRAME_MORE:
            return self.on_more(payload, n)
        if kind == FRAME_DROPPED:
            return self.on_dropped(payload, n)
        if kind == FRAME_CONGESTED:
            return self.on_congested(payload, n)
        raise ValueError(f"no home sends frame {kind}")

    cdef int end_turn(self) except -1:
        return self.tell_publishers()

    cdef int tell_publishers(self) except -1:
        cdef PublisherPort publisher
        cdef list told
        if self.told:
            told = self.told
            self.told = []
            for publisher in told:
                publisher.parts_over()
        return 0

    cdef int on_confirm(self, const uint8_t* p, size_t n) except -1:
        """Everything up to a sequence number is answered: accepted, unless refused before."""
        cdef uint64_t upto
        if n != 8:
            raise ValueError("a confirm has a wrong length")
        upto = load64(p)
        if upto > self.written:
            raise ValueError("a confirm of what was never sent")
        while self.unanswered.answered < upto:
            self.unanswered.answer_next(True, self.told)
        if self.refusals:
            self.refusals = False
            store64(self.port.reserve(FRAME_HEARD, 8), upto)
            self.port.commit(8)
        return self.relieve()

    cdef int on_refused(self, const uint8_t* p, size_t n, bint elsewhere) except -1:
        """Sequence numbers that some queue refused, or whose queue is `elsewhere`.

        The confirm that covers them follows.
        """
        cdef size_t i
        cdef Sent* entry
        if n == 0 or n % 8:
            raise ValueError("a list of refusals has a wrong length")
        for i in range(0, n, 8):
            if load64(p + i) > self.written:
                raise ValueError("a refusal of what was never sent")
            entry = self.unanswered.of(load64(p + i))
            if entry is NULL:
                continue
            if not elsewhere:
                entry.refused = True
            elif entry.queue is not NULL:
                entry.elsewhere = True
            elif entry.message is not NULL:
                raise ValueError("a plain queue is said to be elsewhere")
        self.refusals = True
        return 0

    cdef int on_dropped(self, const uint8_t* p, size_t n) except -1:
        """The home is no longer the home of these queues; what was out is out no more."""
        cdef size_t i
        cdef RemoteQueue queue
        if n == 0 or n % NUMBER_BYTES:
            raise ValueError("a list of queues has a wrong length")
        self.write_settlements()
        memcpy(self.port.reserve(FRAME_BEGIN_ANEW, n), p, n)
        self.port.commit(n)
        for i in range(0, n, NUMBER_BYTES):
            queue = self.followers.get(load32(p + i))
            if queue is not None and queue.holding and queue.adopting:
                continue  # It was handed over to this node, which takes over what is out.
            if queue is not None:
                if self.on_dropped_queue is None or not queue.all_out():
                    queue.forget_out()
                else:
                    # It may have been handed over, which we have not heard of yet: then what is
                    # out stays out. Whoever is told forgets it if that is not so.
                    queue.begin_adoption()
                if self.on_dropped_queue is not None:
                    self.on_dropped_queue(queue)
        return 0

    cdef int on_congested(self, const uint8_t* p, size_t n) except -1:
        """Whoever publishes to one of these next is held back for a moment."""
        cdef size_t i
        if n == 0 or n % NUMBER_BYTES:
            raise ValueError("a list of queues has a wrong length")
        for i in range(0, n, NUMBER_BYTES):
            self.slowed[load32(p + i)] = True
        return 0

    cdef int on_deliver(self, const uint8_t* p, size_t n) except -1:
        cdef size_t used
        if n < DELIVER_HEAD_BYTES:
            raise ValueError("a delivery is cut short")
        self.consumer = load32(p)
        self.queue_number = load32(p + 4)
        self.slot = load64(p + 8)
        if p[16] > 1:
            raise ValueError(f"a delivery has unknown flags {p[16]}")
        self.redelivered = p[16]
        used = DELIVER_HEAD_BYTES + self.incoming.begin(p + DELIVER_HEAD_BYTES,
                                                        n - DELIVER_HEAD_BYTES)
        if used != n:
            raise ValueError("a delivery is longer than its message")
        if self.incoming.whole:
            return self.delivery_whole()
        self.partial = FRAME_DELIVER
        return 0

    cdef int delivery_whole(self) except -1:
        cdef Attachment attachment = <Attachment>self.consumers.at(self.consumer)
        cdef Message message = self.incoming.message
        self.incoming.message = None
        if attachment is None or (<RemoteQueue>attachment.queue).number != self.queue_number:
            # Its consumer was cancelled while it was under way.
            return self.settle(SETTLE_RETURN, self.queue_number, self.slot)
        return (<RemoteQueue>attachment.queue).arrived(
            attachment, message, self.slot, self.redelivered)

    cdef int on_reply(self, const uint8_t* p, size_t n) except -1:
        if n < REPLY_HEAD_BYTES or p[8] > 1:
            raise ValueError("a reply is malformed")
        self.reply_id = load64(p)
        self.reply_ok = p[8]
        self.payload.begin(load32(p + 9), p + REPLY_HEAD_BYTES, n - REPLY_HEAD_BYTES)
        return self.reply_whole()

    cdef int reply_whole(self) except -1:
        cdef bytes payload = self.payload.take()
        if payload is None:
            self.partial = FRAME_REPLY
            return 0
        self.partial = 0
        errand = self.errands.pop(self.reply_id, None)
        if errand is None:
            raise ValueError("a reply to no request")
        errand.finish((bool(self.reply_ok), payload))
        return 0

    cdef int on_more(self, const uint8_t* p, size_t n) except -1:
        if self.partial == FRAME_DELIVER:
            if self.incoming.go_on(p, n) != n:
                raise ValueError("a delivery is longer than its message")
            if self.incoming.whole:
                self.partial = 0
                return self.delivery_whole()
            return 0
        if self.partial == FRAME_REPLY:
            self.payload.go_on(p, n)
            return self.reply_whole()
        raise ValueError("a piece of nothing")

    # -- requests ----------------------------------------------------------------------------------

    def request(self, int verb, bytes payload not None):
        """Ask the home for something, after all that was sent before.

        The errand's value is (whether it could be done, the answer); it fails with LinkLostError.
        """
        cdef uint8_t head[REQUEST_HEAD_BYTES]
        errand = Errand()
        if self.port is None:
            errand.fail(LinkLostError(f"there is no link to {self.home}"))
            return errand
        self.write_publishes()
        self.write_settlements()
        self.last_request += 1
        self.errands[self.last_request] = errand
        store64(head, self.last_request)
        store16(head + 8, <unsigned short>verb)
        write_payload(self.port, FRAME_REQUEST, head, REQUEST_HEAD_BYTES, payload)
        return errand

    # -- looking -----------------------------------------------------------------------------------

    def attached(self):
        """(queue, consumer, number) of all consumers that the home has, or is to have again."""
        return [(a.queue, a.consumer, number) for number, a in self.consumers.all()]

    @property
    def unanswered_count(self):
        """Publishes that the home has not answered."""
        return self.unanswered.count

    @property
    def unanswered_bytes(self):
        """The memory they take."""
        return self.unanswered.size

    @property
    def pending_bytes(self):
        """What the link has not sent yet."""
        return 0 if self.port is None else self.port.pending()

    @property
    def has_link(self):
        return self.port is not None
