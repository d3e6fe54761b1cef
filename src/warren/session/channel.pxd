from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport (
    ConsumerPort, JournalPort, PublisherPort, QueuePort, Route, TurnClock,
)
from warren.session.confirms cimport Confirms
from warren.session.deliveries cimport Deliveries
from warren.session.outlet cimport Outlet

# What the next frame of a channel must be.
cdef enum:
    WANT_METHOD = 0
    WANT_HEADER = 1
    WANT_BODY = 2

# How a delivery is settled.
cdef enum:
    SETTLE_ACK = 0
    SETTLE_REJECT = 1
    SETTLE_REQUEUE = 2


cdef class Consumer(ConsumerPort):
    cdef readonly Channel channel
    cdef readonly str tag
    cdef readonly QueuePort queue
    cdef readonly dict arguments
    cdef readonly bint exclusive
    cdef readonly bint cancelled
    cdef readonly uint32_t prefetch    # 0: no limit
    cdef readonly uint32_t inflight
    cdef readonly uint64_t delivered
    cdef bytes prefix                  # the deliver frame up to and with the consumer tag

    cdef int encode(self, Message message, bint redelivered) except -1


cdef class Channel(PublisherPort):
    cdef readonly int number
    cdef readonly object connection
    cdef readonly object engine
    cdef readonly Outlet outlet
    cdef public bint closing           # channel.close is sent; only its answer counts
    cdef bint close_crossed            # ... and the client has sent its own meanwhile
    cdef size_t wake_from              # whose turn it is when room is shared out
    cdef public bint traced            # the firehose wants copies
    cdef public str last_queue         # the queue declared last: what an empty name stands for
    # publishing
    cdef int state
    cdef bytes last_publish            # arguments of the newest basic.publish
    cdef readonly dict books           # exchanges it may publish to with any key -> RouteBook
    cdef Route route
    cdef bytes exchange
    cdef bytes routing_key
    cdef bint mandatory
    cdef Message message
    cdef uint32_t filled
    cdef uint32_t room
    cdef readonly Confirms confirms    # None: not in confirm mode
    cdef bint confirms_due             # ... and it has something to tell
    cdef bint confirms_waiting         # ... and some of it waits for the disk
    cdef JournalPort journal           # None: nothing is written to disk
    cdef public list transaction       # None: no transaction
    cdef public uint64_t max_message_bytes
    cdef readonly uint64_t published
    cdef readonly uint64_t acked
    cdef public uint64_t redelivered
    # consuming
    cdef readonly Deliveries deliveries
    cdef readonly dict consumers
    cdef public uint32_t prefetch          # for consumers to come
    cdef readonly uint32_t global_prefetch  # for all consumers together
    cdef readonly uint32_t inflight

    cdef int on_publish(self, const uint8_t* p, uint32_t n) except -1
    cdef int on_header(self, const uint8_t* p, uint32_t n) except -1
    cdef int on_body(self, const uint8_t* p, uint32_t n) except -1
    cdef int remember(self, const uint8_t* p, uint32_t n) except -1
    cdef int finish(self) except -1
    cdef int publish_in_full(self, Message message, Route route, uint64_t* parts) except -1
    cdef int name_publisher(self) except -1
    cdef int settle(self, uint64_t tag, bint multiple, int how) except -1
    cdef int settle_range(self, uint64_t last_tag, int how) except -1
    cdef Consumer touched              # whose deliveries were settled last
    cdef bint touched_several

    cdef QueuePort settle_at(self, size_t i, int how)
    cdef int flush_confirms(self) except -1
    cdef int wake(self, QueuePort queue) except -1
