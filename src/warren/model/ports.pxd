# The seams of the data plane: what a queue needs of a consumer, what a session needs of a queue.
# Parts never import one another; they meet through these.
from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Address, Message

# What became of a publish at one queue.
cdef enum:
    ACCEPTED = 0
    REJECTED = 1   # overflow reject-publish: the publisher is told by a nack

# Why a message left a queue without being consumed.
cdef enum:
    DEAD_REJECTED = 0
    DEAD_EXPIRED = 1
    DEAD_MAXLEN = 2
    DEAD_DELIVERY_LIMIT = 3


cdef class TurnClock:
    cdef public int64_t now_ms


cdef class ConsumerPort:
    cdef readonly int priority
    cdef readonly bint no_ack
    cdef readonly bint available   # stands in its queue's ring of consumers that can take a message
    cdef bint can_take(self)
    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot,
                     bint redelivered) except -1
    cdef int activity_changed(self, bint active) except -1


cdef class QueuePort:
    cdef readonly bint congested   # publishers should hold back a moment: consumers are draining it
    cdef int publish(self, Message message, int64_t now_ms) except -1
    cdef int ack(self, uint64_t slot) except -1
    cdef int reject(self, uint64_t slot) except -1
    cdef int requeue(self, uint64_t slot) except -1
    cdef int pump(self, int64_t now_ms) except -1
    cdef int pump_some(self, int64_t now_ms, int limit) except -1
    cdef int consumer_ready(self, ConsumerPort consumer) except -1


cdef class QueueEffects:
    cdef public bint pending   # something was noted that the engine has to act on
    cdef int dead_letter(self, QueuePort queue, Message message, int reason) except -1
    cdef int expiry_due(self, QueuePort queue, int64_t at_ms) except -1
    cdef int relieved(self, QueuePort queue) except -1
    cdef bint postpone(self, QueuePort queue) except -1


cdef class LinkPort:
    cdef int want_flush(self) except -1
    cdef int flush_now(self) except -1
    cdef int hold_back(self, QueuePort queue) except -1
    cdef int block_reading(self, bint blocked) except -1


cdef class Route:
    cdef readonly Address address
    cdef readonly tuple queues
    cdef public bint valid
    cdef readonly bint plain
    cdef readonly object exchange


cdef class RouteBook:
    cdef readonly dict routes
