"""The home's end of a link from a gateway: publishes and settlements come in, answers go back.

One for each accepted link. Consumers and deliveries live and die with it; how far publishes have
been taken is in the `GatewayRecord`, which outlives it.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from warren.gateway.congestion cimport Congestion
from warren.gateway.frames cimport (
    CREDIT_BYTES, FRAME_BEGIN_ANEW, FRAME_CONFIRM, FRAME_CREDIT, FRAME_DROPPED, FRAME_ELSEWHERE,
    FRAME_HEARD, FRAME_MORE, FRAME_PUBLISH, FRAME_PUBLISH_TO, FRAME_REFUSED, FRAME_REPLY,
    FRAME_REQUEST, FRAME_SETTLE, FRAME_SKIP, FRAME_START, NUMBER_BYTES, PUBLISH_HEAD_BYTES,
    PUBLISH_TO_HEAD_BYTES, REPLY_HEAD_BYTES, REQUEST_HEAD_BYTES, SETTLE_ACK, SETTLE_RECORD_BYTES,
    SETTLE_REJECT, SETTLE_REQUEUE, SETTLE_RETURN, START_BYTES,
)
from warren.gateway.lending cimport Loan, RemoteConsumer
from warren.gateway.messages cimport Incoming, IncomingPayload, write_payload
from warren.gateway.numbered cimport Numbered
from warren.gateway.record cimport GatewayRecord
from warren.gateway.sequences cimport Sequences
from warren.model.message cimport Message
from warren.model.ports cimport (
    ACCEPTED, REJECTED, FrameSink, JournalPort, PeerPort, QueuePort, TurnClock,
)
from warren.wire.octets cimport load16, load32, load64, store32, store64

from warren.gateway.identity import gateway_id

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
        self.congestion = Congestion()
        self.consumers = Numbered()
        self.loans = {}
        self.dropped = {}
        self.touched_consumers = []
        self.touched_loans = []
        self.incoming = Incoming()
        self.payload = IncomingPayload()
        self.gateway_id = gateway_id(port.peer, port.incarnation)
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
        if kind == FRAME_PUBLISH_TO:
            return self.on_publish_to(payload, n)
        if kind == FRAME_CREDIT:
            return self.on_credit(payload, n)
        if kind == FRAME_MORE:
            return self.on_more(payload, n)
        if kind == FRAME_REQUEST:
            return self.on_ask(payload, n)
        if kind == FRAME_SKIP:
            return self.on_skip(payload, n)
        if kind == FRAME_BEGIN_ANEW:
            return self.on_begin_anew(payload, n)
        if kind == FRAME_HEARD and n == 8:
            self.record.heard(load64(payload))
            return 0
        raise ValueError(f"no gateway sends frame {kind} with {n} bytes")

    cdef int end_turn(self) except -1:
        if self.port is None:
            return 0
        self.run_touched()
        self.forget_known()
        if self.congestion.found:
            self.congestion.tell(self.port, self.turn.now_ms)
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
        self.attempt = 0
        self.check_sequence()
        used = PUBLISH_HEAD_BYTES + self.incoming.begin(p + PUBLISH_HEAD_BYTES,
                                                        n - PUBLISH_HEAD_BYTES)
        return self.publish_whole(p + used, n - used)

    cdef int on_publish_to(self, const uint8_t* p, size_t n) except -1:
        """To one queue that may move: also numbered among all publishes of the gateway to it."""
        cdef size_t used
        if n < PUBLISH_TO_HEAD_BYTES:
            raise ValueError("a publish is cut short")
        self.sequence = load64(p)
        self.order = load64(p + 8)
        self.attempt = load32(p + 16)
        self.check_sequence()
        if self.order == 0 or self.attempt == 0:
            raise ValueError("a publish without what belongs to it")
        used = PUBLISH_TO_HEAD_BYTES + self.incoming.begin(p + PUBLISH_TO_HEAD_BYTES,
                                                           n - PUBLISH_TO_HEAD_BYTES)
        return self.publish_whole(p + used, n - used)

    cdef int on_skip(self, const uint8_t* p, size_t n) except -1:
        """What had this number has gone to another home."""
        if n != 8:
            raise ValueError("a skip has a wrong length")
        self.sequence = load64(p)
        self.check_sequence()
        return self.record.note(0, True) if self.sequence > self.record.last else 0

    cdef int check_sequence(self) except -1:
        if self.sequence > self.record.last + 1 or self.sequence == 0:
            raise ValueError(f"publish {self.sequence} after {self.record.last}")
        return 0

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
        if self.attempt:
            if n != NUMBER_BYTES:
                raise ValueError("a publish to one queue has several")
            return self.take_publish_to(message, load32(numbers))
        return self.take_publish(message, numbers, n // NUMBER_BYTES)

    cdef int take_publish(self, Message message, const uint8_t* numbers, size_t n) except -1:
        """As a channel publishes; see `session.channel`."""
        cdef JournalPort journal = self.journal
        cdef uint64_t mark = 0
        cdef int refused = 0
        cdef size_t i
        cdef QueuePort queue
        cdef list later = None
        self.turn.heard_us = self.turn.now_us
        if journal is not None:
            mark = journal.commit_mark
        for i in range(n):
            queue = self.find_queue(load32(numbers + i * NUMBER_BYTES))
            if queue is None:
                refused = REJECTED
            elif queue.far:
                refused |= self.publish_far(queue, message)
                if self.turn.parts:
                    later = [] if later is None else later
                    later.append(load32(numbers + i * NUMBER_BYTES))
            else:
                refused |= queue.publish(message, self.turn.now_ms)
            if queue is not None and queue.congested:
                self.congestion.note(load32(numbers + i * NUMBER_BYTES), queue)
        if journal is not None:
            if journal.staged:
                journal.commit(message)
            # Only what this publish has written is waited for.
            mark = journal.commit_mark if journal.commit_mark != mark else 0
        self.record.note(mark, refused == ACCEPTED)
        if later is not None:
            for number in later:
                self.record.note_open(number, 0)
        return 0

    cdef int take_publish_to(self, Message message, uint32_t number) except -1:
        """For a mirrored queue, which answers later; not here: the gateway keeps it."""
        cdef JournalPort journal = self.journal
        cdef QueuePort queue = self.find_queue(number)
        cdef uint64_t mark = 0
        cdef int refused
        if queue is None or self.record.is_turned_away(number, self.attempt):
            return self.record.note_elsewhere(number, self.attempt)
        if journal is not None:
            mark = journal.commit_mark
        refused = self.publish_far(queue, message)
        if queue.congested:
            self.congestion.note(number, queue)
        if journal is not None:
            if journal.staged:
                journal.commit(message)
            mark = journal.commit_mark if journal.commit_mark != mark else 0
        self.record.note(mark, refused == ACCEPTED)
        return self.record.note_open(number, self.attempt) if self.turn.parts else 0

    cdef int publish_far(self, QueuePort queue, Message message) except -1:
        """The record is told later, under the sequence number, if `turn.parts` says so."""
        cdef int refused
        self.turn.publisher = self.record
        self.turn.publish_tag = self.sequence
        self.turn.parts = 0
        if self.attempt:
            refused = queue.publish_from(message, self.turn.now_ms, self.gateway_id, self.order)
        else:
            refused = queue.publish(message, self.turn.now_ms)
        self.turn.publisher = None
        return refused

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
        if not self.started or record.current is not self:
            return 0
        if self.journal is not None:
            persisted = self.journal.persisted
        record.advance(persisted)
        if record.done > self.told:
            if record.refused.count:
                self.write_sequences(FRAME_REFUSED, record.refused)
            if record.elsewhere.count:
                self.write_sequences(FRAME_ELSEWHERE, record.elsewhere)
            store64(self.port.reserve(FRAME_CONFIRM, 8), record.done)
            self.port.commit(8)
            self.told = record.done
        if record.count and not self.waiting:
            self.waiting = True
            self.journal.confirming.append(self)
        return 0

    cdef int write_sequences(self, int kind, Sequences sequences) except -1:
        """Those that the next confirm covers."""
        cdef size_t first = sequences.above(self.told), end = sequences.above(self.record.done), i
        cdef size_t last
        cdef uint8_t* p
        while first < end:
            last = end if end - first < REFUSALS_MAX else first + REFUSALS_MAX
            p = self.port.reserve(kind, (last - first) * 8)
            for i in range(first, last):
                store64(p + (i - first) * 8, sequences.numbers[i])
            self.port.commit((last - first) * 8)
            first = last
        return 0

    def answer_now(self):
        """Some queue has answered later."""
        if self.port is not None:
            self.answer()

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
        # What was out of a mirrored queue may be so no more, and its gateway learns it late.
        cdef uint64_t most = STALE_RUN_MAX if queue.far else loan.slots.count
        if kind > SETTLE_RETURN or count > most:
            raise ValueError("an unknown settlement, or one of more than is out")
        for i in range(count):
            consumer = loan.slots.pop(first + i)
            if consumer == 0:
                if queue.far:
                    continue
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
        consumer = self.consumers.occupant(number)
        if consumer is not None and consumer.loan.queue.far:
            # Its gateway has begun anew, since the queue was elsewhere for a while.
            self.remove_consumer(consumer.number)
            loan = self.loan_of(queue_number)
        consumer = RemoteConsumer(self, loan, self.port, number, no_ack, exclusive, priority,
                                  prefetch, arguments, tag, channel)
        self.consumers.put(number, consumer)
        consumer.inflight = loan.slots.count_of(<uint64_t>number + 1)
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

    def queue_left(self, uint32_t number):
        """The queue is on this node no more: its consumers go, and what is out is out no more.

        The gateway is told, and sees where it finds the queue.
        """
        cdef RemoteConsumer consumer
        cdef Loan loan = self.loans.pop(number, None)
        self.forget_known()
        self.last_loan = None
        if loan is not None:
            for _, consumer in self.consumers.all():
                if consumer.loan is loan:
                    self.remove_consumer(consumer.number)
            loan.slots.clear()
        if self.port is not None and self.started:
            store32(self.port.reserve(FRAME_DROPPED, NUMBER_BYTES), number)
            self.port.commit(NUMBER_BYTES)
            self.dropped[number] = self.dropped.get(number, 0) + 1

    cdef int on_begin_anew(self, const uint8_t* p, size_t n) except -1:
        """The gateway has heard that queues were dropped; what follows is of today."""
        cdef size_t i
        if n == 0 or n % NUMBER_BYTES:
            raise ValueError("a list of queues has a wrong length")
        for i in range(0, n, NUMBER_BYTES):
            left = self.dropped.pop(load32(p + i), 0) - 1
            if left < 0:
                raise ValueError("a queue begins anew that was not dropped")
            if left:
                self.dropped[load32(p + i)] = left
        return 0

    def is_dropped(self, uint32_t number):
        """Whether the gateway does not know yet that what was out of a queue is out no more.

        Until it does, nothing may be given out to it: it would be settled by what is on its way.
        """
        return number in self.dropped

    def adopt(self, uint32_t number, list slots not None, list owners not None):
        """The gateway holds these, which the home before has given out; those it does not any more.

        The queue says which it has, and keeps them for the gateway as if it had given them out.
        `owners` are the numbers of the consumers, still to be attached, that have them; 0: none.
        """
        cdef Loan loan = self.loan_of(number)
        held = set(loan.slots.keys())
        wanted = [slot for slot in slots if slot not in held]
        taken = set(loan.queue.adopt(wanted))
        for slot, owner in zip(slots, owners):
            if slot in taken:
                loan.slots.put(slot, <uint64_t>owner + 1)
        self.forget_if_over(loan)
        return [slot for slot in wanted if slot not in taken]

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
