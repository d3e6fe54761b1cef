"""The home's end of a link from a gateway: publishes and settlements come in, answers go back.

One for each accepted link. Consumers and deliveries live and die with it; how far publishes have
been taken is in the `GatewayRecord`, which outlives it.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from warren.gateway.frames cimport (
    CREDIT_BYTES, FRAME_CONFIRM, FRAME_CREDIT, FRAME_HEARD, FRAME_MORE, FRAME_PUBLISH,
    FRAME_REFUSED, FRAME_REPLY, FRAME_REQUEST, FRAME_SETTLE, FRAME_START, NUMBER_BYTES,
    PUBLISH_HEAD_BYTES, REPLY_HEAD_BYTES, REQUEST_HEAD_BYTES, SETTLE_ACK, SETTLE_RECORD_BYTES,
    SETTLE_REJECT, SETTLE_REQUEUE, SETTLE_RETURN, START_BYTES,
)
from warren.gateway.lending cimport Loan, RemoteConsumer
from warren.gateway.messages cimport Incoming, IncomingPayload, write_payload
from warren.gateway.numbered cimport Numbered
from warren.gateway.record cimport GatewayRecord
from warren.model.message cimport Message
from warren.model.ports cimport (
    ACCEPTED, REJECTED, FrameSink, JournalPort, PeerPort, QueuePort, TurnClock,
)
from warren.wire.octets cimport load16, load32, load64, store64

cdef enum:
    # Refusals told in one frame.
    REFUSALS_MAX = 65536

cdef uint64_t ALL_PERSISTED = ~<uint64_t>0
# More credit than this is not counted.
cdef int64_t CREDIT_MAX = <int64_t>1 << 40


@cython.final
cdef class HomeEnd(FrameSink):
    """See the module's text."""

    def __init__(self, PeerPort port not None, GatewayRecord record not None, dict queues not None,
                 TurnClock turn not None, JournalPort journal=None):
        self.port = port
        self.record = record
        self.queues = queues
        self.turn = turn
        self.journal = journal
        self.consumers = Numbered()
        self.loans = {}
        self.touched_consumers = []
        self.touched_loans = []
        self.incoming = Incoming()
        self.payload = IncomingPayload()
        port.sink = self

    # -- frames ------------------------------------------------------------------------------------

    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        if self.port is None:
            return 0
        if self.partial and kind != FRAME_MORE:
            raise ValueError(f"frame {kind} in the middle of frame {self.partial}")
        if kind == FRAME_START:
            return self.on_start(payload, n)
        if not self.started:
            raise ValueError(f"frame {kind} before the start")
        if self.record.current is not self:
            raise ValueError("the gateway has another link by now")
        if kind == FRAME_PUBLISH:
            return self.on_publish(payload, n)
        if kind == FRAME_SETTLE:
            return self.on_settle(payload, n)
        if kind == FRAME_CREDIT:
            return self.on_credit(payload, n)
        if kind == FRAME_MORE:
            return self.on_more(payload, n)
        if kind == FRAME_REQUEST:
            return self.on_ask(payload, n)
        if kind == FRAME_HEARD and n == 8:
            self.record.heard(load64(payload))
            return 0
        raise ValueError(f"no gateway sends frame {kind} with {n} bytes")

    cdef int end_turn(self) except -1:
        if self.port is None:
            return 0
        self.run_touched()
        self.forget_known()
        return self.answer()

    cdef int on_start(self, const uint8_t* p, size_t n) except -1:
        if n != START_BYTES or self.started:
            raise ValueError("a second start, or a malformed one")
        self.record.start(self, load64(p), load64(p + 8))
        self.started = True
        self.told = load64(p + 8)
        return 0

    cdef int on_more(self, const uint8_t* p, size_t n) except -1:
        cdef size_t used
        if self.partial == FRAME_PUBLISH:
            used = self.incoming.go_on(p, n)
            return self.publish_whole(p + used, n - used)
        if self.partial == FRAME_REQUEST:
            self.payload.go_on(p, n)
            return self.request_whole()
        raise ValueError("a piece of nothing")

    # -- publishes ---------------------------------------------------------------------------------

    cdef int on_publish(self, const uint8_t* p, size_t n) except -1:
        cdef size_t used
        if n < PUBLISH_HEAD_BYTES:
            raise ValueError("a publish is cut short")
        self.sequence = load64(p)
        if self.sequence > self.record.last + 1 or self.sequence == 0:
            raise ValueError(f"publish {self.sequence} after {self.record.last}")
        used = PUBLISH_HEAD_BYTES + self.incoming.begin(p + PUBLISH_HEAD_BYTES,
                                                        n - PUBLISH_HEAD_BYTES)
        return self.publish_whole(p + used, n - used)

    cdef int publish_whole(self, const uint8_t* numbers, size_t n) except -1:
        """Another piece is in; behind the last one stand the numbers of the queues."""
        cdef Message message
        if not self.incoming.whole:
            self.partial = FRAME_PUBLISH
            return 0
        self.partial = 0
        message = self.incoming.message
        self.incoming.message = None
        if n == 0 or n % NUMBER_BYTES:
            raise ValueError("a publish has a wrong length")
        if self.sequence <= self.record.last:
            # It came on an earlier link already.
            return 0
        return self.take_publish(message, numbers, n // NUMBER_BYTES)

    cdef int take_publish(self, Message message, const uint8_t* numbers, size_t n) except -1:
        """As a channel publishes; see `session.channel`."""
        cdef JournalPort journal = self.journal
        cdef uint64_t mark = 0
        cdef int refused = 0
        cdef size_t i
        cdef QueuePort queue
        if journal is not None:
            mark = journal.commit_mark
        for i in range(n):
            queue = self.find_queue(load32(numbers + i * NUMBER_BYTES))
            if queue is None:
                refused = REJECTED
            else:
                refused |= queue.publish(message, self.turn.now_ms)
        if journal is not None:
            if journal.staged:
                journal.commit(message)
            # Only what this publish has written is waited for.
            mark = journal.commit_mark if journal.commit_mark != mark else 0
        return self.record.note(mark, refused == ACCEPTED)

    cdef QueuePort find_queue(self, uint32_t number):
        cdef KnownQueue* known = &self.known[number % KNOWN_QUEUES]
        if known.queue is NULL or known.number != number:
            queue = self.queues.get(number)
            if queue is None:
                return None
            known.number = number
            known.queue = <PyObject*>queue
        return <QueuePort>known.queue

    cdef void forget_known(self) noexcept:
        memset(self.known, 0, sizeof(self.known))

    # -- answers -----------------------------------------------------------------------------------

    cdef int answer(self) except -1:
        """Tells the gateway how far everything is accepted and on the disk."""
        cdef GatewayRecord record = self.record
        cdef uint64_t persisted = ALL_PERSISTED
        cdef size_t first = 0, last, i
        cdef uint8_t* p
        if not self.started or record.current is not self:
            return 0
        if self.journal is not None:
            persisted = self.journal.persisted
        record.advance(persisted)
        if record.done > self.told:
            while first < record.refused_count and record.refused[first] <= self.told:
                first += 1
            while first < record.refused_count and record.refused[first] <= record.done:
                last = first
                while (last < record.refused_count and last - first < REFUSALS_MAX
                        and record.refused[last] <= record.done):
                    last += 1
                p = self.port.reserve(FRAME_REFUSED, (last - first) * 8)
                for i in range(first, last):
                    store64(p + (i - first) * 8, record.refused[i])
                self.port.commit((last - first) * 8)
                first = last
            store64(self.port.reserve(FRAME_CONFIRM, 8), record.done)
            self.port.commit(8)
            self.told = record.done
        if record.count and not self.waiting:
            self.waiting = True
            self.journal.confirming.append(self)
        return 0

    def moved_on(self):
        """The log has come further: some of what waits may be told."""
        self.waiting = False
        if self.port is not None:
            self.answer()

    def release_confirms(self):
        """What the journal calls those who wait for it by."""
        self.moved_on()

    # -- settlements and credit --------------------------------------------------------------------

    cdef int on_settle(self, const uint8_t* p, size_t n) except -1:
        cdef size_t at
        cdef uint32_t number
        if n == 0 or n % SETTLE_RECORD_BYTES:
            raise ValueError("settlements have a wrong length")
        for at in range(0, n, SETTLE_RECORD_BYTES):
            number = load32(p + at + 1)
            if self.last_loan is None or self.last_loan.number != number:
                self.last_loan = self.loans.get(number)
            if self.last_loan is not None:
                self.settle_run(p[at], self.last_loan, load64(p + at + 5), load32(p + at + 13))
            elif p[at] > SETTLE_RETURN:
                raise ValueError(f"an unknown settlement {p[at]}")
        return 0

    cdef int settle_run(self, int kind, Loan loan, uint64_t first, uint32_t count) except -1:
        cdef uint32_t i
        cdef uint64_t consumer
        cdef QueuePort queue = loan.queue
        if kind > SETTLE_RETURN or count > loan.slots.count:
            raise ValueError("an unknown settlement, or one of more than is out")
        for i in range(count):
            consumer = loan.slots.pop(first + i)
            if consumer == 0:
                raise ValueError(f"a settlement of slot {first + i}, which is not out")
            if kind == SETTLE_ACK:
                queue.ack(first + i)
            elif kind == SETTLE_REJECT:
                queue.reject(first + i)
            elif kind == SETTLE_REQUEUE:
                queue.requeue(first + i)
            else:
                queue.take_back(first + i)
            if consumer > 1:
                self.settled(<uint32_t>(consumer - 1))
        return self.touch_loan(loan)

    cdef int settled(self, uint32_t number) except -1:
        """A delivery of a consumer is over: it may have room again."""
        if self.last_consumer is None or self.last_consumer.number != number:
            self.last_consumer = <RemoteConsumer>self.consumers.at(number)
            if self.last_consumer is None:
                return 0
        self.last_consumer.inflight -= 1
        return self.touch_consumer(self.last_consumer)

    cdef int on_credit(self, const uint8_t* p, size_t n) except -1:
        cdef RemoteConsumer consumer
        if n != CREDIT_BYTES:
            raise ValueError("credit has a wrong length")
        consumer = <RemoteConsumer>self.consumers.at(load32(p))
        if consumer is None:
            return 0
        consumer.credit_messages = min(consumer.credit_messages + load32(p + 4), CREDIT_MAX)
        consumer.credit_bytes = min(consumer.credit_bytes + load32(p + 8), CREDIT_MAX)
        self.touch_loan(consumer.loan)
        return self.touch_consumer(consumer)

    cdef int touch_loan(self, Loan loan) except -1:
        if not loan.touched:
            loan.touched = True
            self.touched_loans.append(loan)
        return 0

    cdef int touch_consumer(self, RemoteConsumer consumer) except -1:
        if not consumer.touched and not consumer.available:
            consumer.touched = True
            self.touched_consumers.append(consumer)
        return 0

    cdef int run_touched(self) except -1:
        """Consumers with room stand in line again, and their queues deliver."""
        cdef RemoteConsumer consumer
        cdef Loan loan
        cdef list touched
        if self.touched_consumers:
            touched = self.touched_consumers
            self.touched_consumers = []
            for consumer in touched:
                consumer.touched = False
                if not consumer.cancelled:
                    consumer.loan.queue.consumer_ready(consumer)
        if self.touched_loans:
            touched = self.touched_loans
            self.touched_loans = []
            for loan in touched:
                loan.touched = False
                loan.queue.pump(self.turn.now_ms)
                if loan.consumers == 0:
                    self.forget_if_over(loan)
        return 0

    # -- requests ----------------------------------------------------------------------------------

    cdef int on_ask(self, const uint8_t* p, size_t n) except -1:
        if n < REQUEST_HEAD_BYTES:
            raise ValueError("a request is cut short")
        self.request_id = load64(p)
        self.verb = load16(p + 8)
        self.payload.begin(load32(p + 10), p + REQUEST_HEAD_BYTES, n - REQUEST_HEAD_BYTES)
        return self.request_whole()

    cdef int request_whole(self) except -1:
        cdef bytes payload = self.payload.take()
        if payload is None:
            self.partial = FRAME_REQUEST
            return 0
        self.partial = 0
        if self.on_request is None:
            raise ValueError("nobody takes requests here")
        self.run_touched()
        # Queues may come and go in it.
        self.forget_known()
        self.on_request(self, self.request_id, self.verb, payload)
        self.forget_known()
        return 0

    def reply(self, uint64_t request_id, bint ok, bytes payload not None):
        """Answer a request; nothing happens when its link is lost."""
        cdef uint8_t head[REPLY_HEAD_BYTES]
        if self.port is None:
            return
        store64(head, request_id)
        head[8] = ok
        write_payload(self.port, FRAME_REPLY, head, REPLY_HEAD_BYTES, payload)

    # -- consumers ---------------------------------------------------------------------------------

    cdef Loan loan_of(self, uint32_t number):
        loan = self.loans.get(number)
        if loan is None:
            loan = self.loans[number] = Loan(self.queues[number], number)
        return loan

    cdef int forget_if_over(self, Loan loan) except -1:
        """Queues come and go; what is over must not stay for as long as the link lasts."""
        if loan.consumers == 0 and loan.slots.count == 0 and self.loans.get(loan.number) is loan:
            del self.loans[loan.number]
            self.last_loan = None
        return 0

    def add_consumer(self, uint32_t queue_number, uint32_t number, bint no_ack=False,
                     bint exclusive=False, int priority=0, uint32_t prefetch=0,
                     dict arguments=None, str tag="", channel=None):
        """Attach a consumer of the gateway to a queue; it gets messages when it gives credit.

        Raises KeyError when there is no such queue, ValueError when the number is taken.
        """
        cdef Loan loan = self.loan_of(queue_number)
        cdef RemoteConsumer consumer
        if self.port is None:
            raise ValueError("the link is lost")
        consumer = RemoteConsumer(self, loan, self.port, number, no_ack, exclusive, priority,
                                  prefetch, arguments, tag, channel)
        self.consumers.put(number, consumer)
        loan.consumers += 1
        loan.queue.add_consumer(consumer, exclusive)
        return consumer

    def remove_consumer(self, uint32_t number):
        """Take a consumer off its queue; what it holds stays out. None when there is none."""
        cdef RemoteConsumer consumer = self.consumers.remove(number)
        cdef Loan loan
        if consumer is None:
            return None
        consumer.cancel()
        self.last_consumer = None
        loan = consumer.loan
        loan.consumers -= 1
        if consumer in loan.queue.consumers:
            loan.queue.remove_consumer(consumer)
        self.forget_if_over(loan)
        return consumer

    def lend(self, uint32_t queue_number, uint64_t slot):
        """A get of the gateway has been given this slot: it settles it, or it comes back."""
        self.loan_of(queue_number).slots.put(slot, 1)

    @property
    def loan_count(self):
        """Queues that have a consumer or a delivery over this link."""
        return len(self.loans)

    def all_consumers(self):
        return [consumer for _, consumer in self.consumers.all()]

    def link_lost(self):
        """Consumers go, and what they held goes back: their clients may have seen it."""
        cdef Loan loan
        cdef size_t i
        if self.port is None:
            return
        self.port = None
        self.partial = 0
        if self.record.current is self:
            self.record.current = None
        gone = [self.remove_consumer(number) for number, _ in self.consumers.all()]
        loans = list(self.loans.values())
        self.loans = {}
        self.last_loan = None
        for loan in loans:
            for i in range(loan.slots.capacity):
                if loan.slots.places[i].value:
                    loan.queue.requeue(loan.slots.places[i].key)
            loan.slots.clear()
        # Only now that all are back, so that whoever takes them gets them in their order.
        for loan in loans:
            loan.queue.pump(self.turn.now_ms)
        if self.on_consumer_gone is not None:
            for consumer in gone:
                self.on_consumer_gone(consumer)
