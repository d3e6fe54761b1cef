# The seams of the data plane: what a queue needs of a consumer, what a session needs of a queue.
# Parts never import one another; they meet through these.
from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Address, Message

# What became of a publish at one queue.
cdef enum:
    ACCEPTED = 0
    REJECTED = 1   # overflow reject-publish: the publisher is told by a nack


cdef class ConsumerPort:
    cdef readonly int priority
    cdef readonly bint no_ack
    cdef bint available   # stands in its queue's ring of consumers that can take a message
    cdef bint can_take(self)
    cdef int deliver(self, QueuePort queue, Message message, uint64_t slot, bint redelivered) except -1


cdef class QueuePort:
    cdef int publish(self, Message message, int64_t now_ms) except -1
    cdef int ack(self, uint64_t slot) except -1
    cdef int reject(self, uint64_t slot) except -1
    cdef int requeue(self, uint64_t slot) except -1
    cdef int pump(self, int64_t now_ms) except -1
    cdef int consumer_ready(self, ConsumerPort consumer) except -1


cdef class Route:
    cdef readonly Address address
    cdef readonly tuple queues
    cdef public bint valid
    cdef readonly bint plain
    cdef readonly object exchange
