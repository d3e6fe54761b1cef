"""A queue whose home is another node, as the sessions of this one see it.

Deliveries have numbers of our own here: those of an earlier link mean nothing to the home any more,
and a number that is never used again cannot be mistaken for one of today's.

A mirrored queue follows its master: `gateway.following` has its publishes.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from warren.gateway.attachment cimport Attachment
from warren.gateway.following cimport FollowingQueue
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


cdef class RemoteQueue(FollowingQueue):
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
        # What an heir has taken over is no matter of links.
        if self.session != self.gateway.session and self.heir is None:
            self.session = self.gateway.session
            self.give_back_lent()
            self.adopting = False
            self.late = None
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
        if self.gateway.slowed and self.gateway.slowed.pop(self.number, False):
            # The home has said so; until it says it again this is one pause.
            self.slowed = self.congested = True
        if self.following:
            return self.publish_following(message)
        return self.gateway.publish(self, self.number, message)

    def offer(self, Message message not None, int64_t now_ms):
        """Publish from Python; True unless it is refused at once."""
        return self.publish(message, now_ms) == ACCEPTED

    def pause_ended(self, uint64_t _delivered_before, int64_t _now_ms):
        """A publisher's pause is over; True when it must go on."""
        if self.slowed:
            self.slowed = False
            self.congested = (self in self.gateway.congested_queues
                              or (self.following and self.is_backed_up()))
        if self.congested:
            if self.following:
                self.relieve_if_room()
            self.gateway.relieve()
        return bool(self.congested)

    @property
    def is_stash_full(self):
        """Publishers wait because nothing more can be put aside on the disk."""
        if self.gateway.room is None or not self.congested:
            return False
        return bool(self.gateway.stash.is_full()
                    or (self.stash is not None and self.stash.is_full()))

    @property
    def deliveries(self):
        """All deliveries to consumers so far."""
        return self.delivered

    # -- another home ------------------------------------------------------------------------------

    cdef int forget_out(self) except -1:
        """The home is another one, or begins anew: settlements of what is out mean nothing."""
        cdef Attachment attachment
        self.generation += 1
        self.adopting = False
        self.late = self.lender = None
        self.out.clear()
        self.parked = 0
        for attachment in self.attachments:
            attachment.forget()
            attachment.owed_messages = attachment.owed_bytes = 0
            attachment.consumer.available = False
        return 0

    cdef int give_back_out(self) except -1:
        """The home may be it still, or again by now: nothing may stay out there for ever."""
        cdef Attachment attachment
        cdef size_t i
        if self.adopting:
            self.gateway.give_back_slots(self.session, self.number, self.take_given_since())
            return self.give_back_lent()
        if self.gateway.port is None:
            return 0
        for attachment in self.attachments:
            self.give_back_parked(attachment)
        for slot in sorted([self.out.places[i].value - 1 for i in range(self.out.capacity)
                            if self.out.places[i].value]):
            self.gateway.settle(SETTLE_REQUEUE, self.number, slot)
        return 0

    cdef int give_back_lent(self) except -1:
        """Nobody takes over what is out: the home before may be it still, or again.

        Who hears late of a queue that went and came back is given something by a home that is not
        about to let go of it, as the views that are heard of next would have it.
        """
        cdef Stream lender = self.lender
        cdef uint64_t slot
        self.lender = None
        if lender is None or lender.port is None or lender.session != self.lent_in:
            return 0
        late, self.late = self.late, []
        lender.give_back_slots(self.lent_in, self.number, self.all_out())
        for kind, slot in late:
            lender.settle(kind, self.number, slot)
        return 0

    # -- deliveries that stay out when a master is handed over -------------------------------------

    cdef list all_out(self):
        """The slots of all that clients hold, or that is parked for them."""
        cdef Attachment attachment
        cdef size_t i
        slots = [self.out.places[i].value - 1 for i in range(self.out.capacity)
                 if self.out.places[i].value]
        if self.late is not None:
            slots += [slot for _, slot in self.late]
        for attachment in self.attachments:
            slots += [attachment.at(i).slot for i in range(attachment.count)]
        return sorted(slots)

    def take_along(self, Stream gateway not None):
        """The home is another one, which is to take over what is out: the consumers' new numbers.

        To be called before `follow`, which must come next. [(consumer, number)]
        """
        cdef Attachment attachment
        self.renew()
        numbers = []
        for attachment in self.attachments:
            self.gateway.consumers.give_up(attachment.number)
            attachment.number = gateway.consumers.next_number()
            attachment.owed_messages = attachment.owed_bytes = 0
            attachment.consumer.available = False
            gateway.consumers.put(attachment.number, attachment)
            numbers.append((attachment.consumer, attachment.number))
        self.begin_adoption()
        return numbers

    def begin_adoption(self):
        """The home is to be asked to take over `slots_out`; settlements wait until it has."""
        self.generation += 1
        if not self.adopting:
            self.lender, self.lent_in = self.gateway, self.session
        self.lent_to = self.last_delivery
        self.adopting = True
        if self.late is None:
            self.late = []

    def call_off_adoption(self):
        """Nobody takes over what is out: it is the home's again, but for what that has given since.

        A home that lets go of a queue and has it back at once answers gets in between.
        """
        since = [delivery for delivery in self.out.keys() if delivery > self.lent_to]
        slots = [self.out.pop(delivery) for delivery in since]
        self.forget_out()
        for delivery, slot in zip(since, slots):
            self.out.put(delivery, slot)

    cdef list take_given_since(self):
        """The slots that the present home has given out, which is to take over others."""
        since = [delivery for delivery in self.out.keys() if not self.is_lent(delivery)]
        return sorted([self.out.pop(delivery) - 1 for delivery in since])

    cdef bint is_lent(self, uint64_t delivery) noexcept:
        """Whether a delivery is to be taken over, not one of the home that is to take it over.

        While the queue is about to be here, it is the home before that is still heard.
        """
        return self.holding or delivery <= self.lent_to

    def slots_out(self):
        return self.all_out()

    def owners_out(self, dict holders not None):
        """(slot, number of the consumer that has it, or 0) of all of `slots_out`.

        `holders`: the consumers of deliveries that clients have.
        """
        cdef Attachment attachment
        cdef size_t i
        cdef dict numbers = {}
        cdef list found
        for attachment in self.attachments:
            numbers[attachment.consumer] = attachment.number
        found = [(self.out.places[i].value - 1,
                  numbers.get(holders.get(self.out.places[i].key), 0))
                 for i in range(self.out.capacity) if self.out.places[i].value]
        if self.late is not None:
            found += [(slot, 0) for _, slot in self.late]
        for attachment in self.attachments:
            found += [(attachment.at(i).slot, attachment.number) for i in range(attachment.count)]
        return sorted(found)

    def adopted(self, set lost not None):
        """The home has taken over what is out, but for some that is not held any more."""
        cdef list late = self.late
        if not self.adopting:
            return
        self.lose(lost)
        self.adopting = False
        self.late = self.lender = None
        for kind, slot in late:
            if slot not in lost:
                self.gateway.settle(kind, self.number, slot)

    cdef int lose(self, set lost) except -1:
        cdef Attachment attachment
        cdef Message message
        cdef uint64_t slot = 0
        cdef bint redelivered = False
        cdef size_t left
        if not lost:
            return 0
        for delivery in self.out.keys():
            slot = self.out.pop(delivery)
            if slot - 1 not in lost or not self.is_lent(delivery):
                self.out.put(delivery, slot)
        for attachment in self.attachments:
            left = attachment.count
            while left:
                left -= 1
                message = attachment.take(&slot, &redelivered)
                if slot in lost:
                    self.parked -= 1
                else:
                    attachment.park(message, slot, redelivered)
        return 0

    def take_slot(self, uint64_t delivery):
        """The slot of a delivery that is out, which somebody else settles; None: it is not."""
        slot = self.out.pop(delivery)
        return slot - 1 if slot else None

    def hand_out_to(self, QueuePort heir not None, set lost not None):
        """The queue is on this node now and has taken over what is out, but for the lost."""
        cdef Attachment attachment
        cdef list late = self.late
        self.lent_to = self.last_delivery
        self.lose(lost)
        self.heir = heir
        self.adopting = False
        self.late = self.lender = None
        for kind, slot in late or ():
            if slot not in lost:
                self.settle_slot(kind, slot)
        for attachment in self.attachments:
            self.give_back_parked(attachment)

    def standing(self):
        """Changes whenever what was out is out no more."""
        return self.gateway, self.gateway.session, self.generation

    def leave(self, bint keep=False):
        """The home is another one, or none: all consumers, which are no longer attached.

        `keep`: what is out stays out.
        """
        cdef Attachment attachment
        self.renew()
        if keep:
            self.generation += 1
        else:
            self.give_back_out()
            self.forget_out()
        consumers = self.consumers
        for attachment in self.attachments:
            self.gateway.consumers.give_up(attachment.number)
        self.attachments = []
        return consumers

    def enter(self, ConsumerPort consumer not None):
        """A consumer that is to be attached at the home: its number there."""
        number = self.next_number()
        attachment = Attachment(self, consumer, number)
        self.gateway.consumers.put(number, attachment)
        self.attachments.append(attachment)
        return number

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
        if slot == 0:
            return 0  # Of an earlier link, whose deliveries the home has put back.
        if self.adopting and not self.is_lent(delivery):
            return self.gateway.settle(kind, self.number, slot - 1)
        return self.settle_slot(kind, slot - 1)

    cdef int settle_slot(self, int kind, uint64_t slot) except -1:
        if self.heir is not None:
            if kind == SETTLE_ACK:
                return self.heir.ack(slot)
            if kind == SETTLE_REJECT:
                return self.heir.reject(slot)
            return self.heir.requeue(slot) if kind == SETTLE_REQUEUE else self.heir.take_back(slot)
        if self.adopting:
            self.late.append((kind, slot))
            return 0
        return self.gateway.settle(kind, self.number, slot)

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

    def note_stale(self):
        """The same for one that is the home's again: settling it does nothing."""
        self.last_delivery += 1
        return self.last_delivery

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
            self.settle_slot(SETTLE_RETURN, slot)
        return 0

    # -- delivering --------------------------------------------------------------------------------

    cdef int arrived(self, Attachment attachment, Message message, uint64_t slot,
                     bint redelivered) except -1:
        """The home has sent a message for one of the consumers."""
        if self.session != self.gateway.session:
            self.renew()
        if attachment.count == 0 and not self.paused and attachment.consumer.can_take():
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
            if self.adopting and not self.holding:
                self.gateway.settle(SETTLE_ACK, self.number, slot)
            else:
                self.settle_slot(SETTLE_ACK, slot)
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
        if self.heir is not None:
            return self.heir.pump(now_ms)
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
        if self.parked == 0 or self.pumping or self.adopting or self.paused or n == 0:
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

    def set_paused(self, bint paused):
        """Whether consumers are given nothing; what no client has seen yet goes back to the home.

        What is still on its way here then is parked: to send it back would be to have it sent again
        by a home that does not know of the pause yet.
        """
        cdef Attachment attachment
        if paused and not self.paused and self.heir is None and not self.adopting:
            self.renew()
            for attachment in self.attachments:
                self.return_parked(attachment)
        self.paused = paused

    cdef int return_parked(self, Attachment attachment) except -1:
        """As `give_back_parked`, for a consumer that stays: its room for it is the home's again."""
        cdef uint64_t size = 0
        cdef size_t i
        cdef uint32_t count = <uint32_t>attachment.count
        cdef Message message
        if count == 0:
            return 0
        for i in range(attachment.count):
            message = <Message>attachment.at(i).message
            size += <uint64_t>message.header_len + message.body_len
        self.give_back_parked(attachment)
        attachment.consumer.available = False
        return self.gateway.write_credit(attachment.number, count, size)
