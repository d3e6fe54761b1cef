"""A queue whose home is another node, as the sessions of this one see it.

Deliveries have numbers of our own here: those of an earlier link mean nothing to the home any more,
and a number that is never used again cannot be mistaken for one of today's.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from warren.gateway.attachment cimport Attachment
from warren.gateway.frames cimport (
    CREDIT_MESSAGE_BYTES, CREDIT_MESSAGES, SETTLE_ACK, SETTLE_REJECT, SETTLE_REQUEUE,
    SETTLE_RETURN,
)
from warren.gateway.slot_map cimport SlotMap
from warren.gateway.stream cimport Stream
from warren.model.message cimport Message
from warren.model.ports cimport ACCEPTED, ConsumerPort, QueuePort

cdef enum:
    # Credit goes back when half of it is used up.
    OWED_MESSAGES_MAX = CREDIT_MESSAGES // 2
    OWED_BYTES_MAX = CREDIT_MESSAGE_BYTES // 2
    PUMP_DELIVERIES = 16384


cdef class RemoteQueue(QueuePort):
    """See the module's text. The engine's queue adds what is not about messages."""

    def __init__(self, Stream gateway not None, uint32_t number):
        self.far = True
        self.gateway = gateway
        self.number = number
        self.attachments = []
        self.out = SlotMap()
        self.session = gateway.session

    cdef int renew(self) except -1:
        """The link is another one than last time: the home has put back what was out."""
        cdef Attachment attachment
        if self.session != self.gateway.session:
            self.session = self.gateway.session
            self.out.clear()
            self.parked = 0
            for attachment in self.attachments:
                attachment.forget()
                attachment.owed_messages = attachment.owed_bytes = 0
                attachment.consumer.available = False
        return 0

    # -- publishing --------------------------------------------------------------------------------

    cdef int publish(self, Message message, int64_t now_ms) except -1:
        self.published += 1
        return self.gateway.publish(self, self.number, message)

    def offer(self, Message message not None, int64_t now_ms):
        """Publish from Python; True unless it is refused at once."""
        return self.publish(message, now_ms) == ACCEPTED

    def pause_ended(self, uint64_t _delivered_before, int64_t _now_ms):
        """A publisher's pause is over; True when it must go on."""
        if self.congested:
            self.gateway.relieve()
        return bool(self.congested)

    @property
    def deliveries(self):
        """All deliveries to consumers so far."""
        return self.delivered

    # -- settling ----------------------------------------------------------------------------------

    cdef uint64_t adopt(self, uint64_t slot) except 0:
        """Our number for a delivery of the home that is out now."""
        if self.session != self.gateway.session:
            self.renew()
        self.last_delivery += 1
        self.out.put(self.last_delivery, slot + 1)
        return self.last_delivery

    cdef int settle_one(self, int kind, uint64_t delivery) except -1:
        cdef uint64_t slot
        if self.session != self.gateway.session:
            self.renew()
        slot = self.out.pop(delivery)
        # 0: of an earlier link, whose deliveries the home has put back.
        return self.gateway.settle(kind, self.number, slot - 1) if slot else 0

    cdef int ack(self, uint64_t slot) except -1:
        return self.settle_one(SETTLE_ACK, slot)

    cdef int reject(self, uint64_t slot) except -1:
        return self.settle_one(SETTLE_REJECT, slot)

    cdef int requeue(self, uint64_t slot) except -1:
        return self.settle_one(SETTLE_REQUEUE, slot)

    cdef int take_back(self, uint64_t slot) except -1:
        return self.settle_one(SETTLE_RETURN, slot)

    def note_got(self, uint64_t slot):
        """A get was answered with a message of this slot; what a channel settles it by."""
        return self.adopt(slot)

    def give_back(self, uint64_t delivery):
        """Nobody was there to take it: it goes back as if it had not been delivered."""
        self.take_back(delivery)

    # -- consumers ---------------------------------------------------------------------------------

    def next_number(self):
        """The number for a consumer that the home is asked to attach."""
        return self.gateway.consumers.next_number()

    def give_up_number(self, uint32_t number):
        """The home has refused that consumer."""
        self.gateway.consumers.give_up(number)

    def add_consumer(self, ConsumerPort consumer not None, bint exclusive=False,
                     uint32_t number=0):
        """The home has attached it: deliveries may begin. Its number."""
        if number == 0:
            number = self.next_number()
        attachment = Attachment(self, consumer, number)
        self.gateway.consumers.put(number, attachment)
        self.renew()
        self.attachments.append(attachment)
        self.grant(consumer)
        return number

    def grant(self, ConsumerPort consumer not None):
        """The home has attached it anew, after a link was lost: deliveries may go on."""
        cdef Attachment attachment = self.find(consumer)
        self.renew()
        attachment.owed_messages = attachment.owed_bytes = 0
        self.gateway.write_credit(attachment.number, CREDIT_MESSAGES, CREDIT_MESSAGE_BYTES)

    def number_of(self, ConsumerPort consumer not None):
        """What the home calls it."""
        return self.find(consumer).number

    def remove_consumer(self, ConsumerPort consumer not None):
        """No more deliveries to it; what its client has not seen goes back. Its number."""
        cdef Attachment attachment = self.find(consumer)
        self.renew()
        self.give_back_parked(attachment)
        self.attachments.remove(attachment)
        self.gateway.consumers.give_up(attachment.number)
        consumer.available = False
        return attachment.number

    cdef Attachment find(self, consumer):
        cdef Attachment attachment
        for attachment in self.attachments:
            if attachment.consumer is consumer:
                return attachment
        raise ValueError("no consumer of this queue")

    @property
    def consumers(self):
        """The consumers of this node's clients."""
        return [attachment.consumer for attachment in self.attachments]

    cdef int give_back_parked(self, Attachment attachment) except -1:
        cdef uint64_t slot = 0
        cdef bint redelivered = False
        while attachment.count:
            attachment.take(&slot, &redelivered)
            self.parked -= 1
            self.gateway.settle(SETTLE_RETURN, self.number, slot)
        return 0

    # -- delivering --------------------------------------------------------------------------------

    cdef int arrived(self, Attachment attachment, Message message, uint64_t slot,
                     bint redelivered) except -1:
        """The home has sent a message for one of the consumers."""
        if self.session != self.gateway.session:
            self.renew()
        if attachment.count == 0 and attachment.consumer.can_take():
            return self.pass_on(attachment, message, slot, redelivered)
        attachment.park(message, slot, redelivered)
        self.parked += 1
        return 0

    cdef int pass_on(self, Attachment attachment, Message message, uint64_t slot,
                     bint redelivered) except -1:
        """Into the client's buffer; only now the home may send another."""
        cdef ConsumerPort consumer = attachment.consumer
        self.delivered += 1
        if consumer.no_ack:
            consumer.deliver(self, message, 0, redelivered)
            self.gateway.settle(SETTLE_ACK, self.number, slot)
        else:
            consumer.deliver(self, message, self.adopt(slot), redelivered)
        attachment.owed_messages += 1
        attachment.owed_bytes += message.header_len + message.body_len
        if (attachment.owed_messages >= OWED_MESSAGES_MAX
                or attachment.owed_bytes >= OWED_BYTES_MAX):
            self.gateway.write_credit(attachment.number, attachment.owed_messages,
                                      attachment.owed_bytes)
            attachment.owed_messages = attachment.owed_bytes = 0
        return 0

    cdef int pump(self, int64_t now_ms) except -1:
        if self.parked:
            while self.pump_some(now_ms, PUMP_DELIVERIES) == PUMP_DELIVERIES:
                pass
        return 0

    cdef int pump_some(self, int64_t now_ms, int limit) except -1:
        """Parked deliveries go on, up to a number; how many that were."""
        cdef Attachment attachment
        cdef Message message
        cdef uint64_t slot = 0
        cdef bint redelivered = False
        cdef int count = 0
        cdef size_t i, n = len(self.attachments)
        if self.parked == 0 or self.pumping or n == 0:
            return 0
        if self.session != self.gateway.session:
            self.renew()
        self.pumping = True
        self.first = (self.first + 1) % n
        try:
            for i in range(n):
                attachment = <Attachment>self.attachments[(self.first + i) % n]
                while attachment.count and count < limit and attachment.consumer.can_take():
                    message = attachment.take(&slot, &redelivered)
                    self.parked -= 1
                    count += 1
                    self.pass_on(attachment, message, slot, redelivered)
                attachment.consumer.available = (
                    attachment.count > 0 and attachment.consumer.can_take())
        finally:
            self.pumping = False
        return count

    cdef int consumer_ready(self, ConsumerPort consumer) except -1:
        """It stands in line only while something is parked for it that it can take."""
        cdef Attachment attachment
        consumer.available = False
        if self.parked:
            if self.session != self.gateway.session:
                self.renew()
            for attachment in self.attachments:
                if attachment.consumer is consumer:
                    consumer.available = attachment.count > 0 and consumer.can_take()
        return 0

    def run(self, int64_t now_ms):
        """Deliver what is parked and can be delivered."""
        self.pump(now_ms)
