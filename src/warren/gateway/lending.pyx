"""What a home has given out over one link, and the consumers there that it gives to."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.gateway.frames cimport DELIVER_HEAD_BYTES, FRAME_DELIVER
from warren.gateway.messages cimport write_message
from warren.gateway.slot_map cimport SlotMap
from warren.model.message cimport Message
from warren.model.ports cimport ConsumerPort, PeerPort, QueuePort
from warren.wire.octets cimport store32, store64


@cython.final
cdef class Loan:
    """Deliveries of one queue that are out over one link."""

    def __init__(self, QueuePort queue not None, uint32_t number):
        self.queue = queue
        self.number = number
        self.slots = SlotMap()

    @property
    def out(self):
        """How many there are."""
        return self.slots.count


@cython.final
cdef class RemoteConsumer(ConsumerPort):
    """A consumer of a client on another node.

    To the queue it is always one that acknowledges: where the client does not, its gateway does, as
    soon as a message is in the client's buffer. So nothing is lost that was only under way.
    """

    def __init__(self, home, Loan loan not None, PeerPort port not None, uint32_t number,
                 bint auto_ack, bint exclusive, int priority, uint32_t prefetch, dict arguments,
                 str tag, channel):
        self.home = home
        self.loan = loan
        self.port = port
        self.number = number
        self.auto_ack = auto_ack
        self.exclusive = exclusive
        self.priority = priority
        # A limit on unacknowledged messages means nothing to a client that acknowledges none.
        self.prefetch = 0 if auto_ack else prefetch
        self.arguments = arguments or {}
        self.tag = tag
        self.channel = channel

    cdef bint can_take(self):
        return (self.credit_messages > 0 and self.credit_bytes > 0 and not self.cancelled
                and (self.prefetch == 0 or self.inflight < self.prefetch))

    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot,
                     bint redelivered) except -1:
        cdef uint8_t head[DELIVER_HEAD_BYTES]
        self.loan.slots.put(slot, <uint64_t>self.number + 1)
        self.inflight += 1
        self.delivered += 1
        self.credit_messages -= 1
        self.credit_bytes -= <uint64_t>message.header_len + message.body_len
        store32(head, self.number)
        store32(head + 4, self.loan.number)
        store64(head + 8, slot)
        head[16] = redelivered
        return write_message(self.port, FRAME_DELIVER, head, DELIVER_HEAD_BYTES, message,
                             message.address.wire, NULL, 0)

    def cancel(self):
        """No more deliveries; what is out stays out."""
        self.cancelled = True

    def detach(self):
        """Take it off its queue, from the home's side: the queue goes away."""
        self.home.remove_consumer(self.number)

    @property
    def queue(self):
        return self.loan.queue

    @property
    def credit(self):
        """How many more messages its gateway has room for."""
        return self.credit_messages
