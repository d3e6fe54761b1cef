from libc.stdint cimport int64_t, uint64_t

from warren.model.message cimport Message
from warren.model.ports cimport ConsumerPort
from warren.queue.graves cimport Graves
from warren.queue.ring cimport ConsumerRing

cdef enum:
    DROP_HEAD = 0
    REJECT_PUBLISH = 1
    REJECT_PUBLISH_DLX = 2


cdef class Queue(Graves):
    cdef int64_t ttl_ms        # -1: none
    cdef int64_t max_length    # -1: none
    cdef int64_t max_bytes     # -1: none
    cdef int overflow
    cdef int64_t delivery_limit
    cdef bint limited
    cdef readonly bint single_active
    cdef readonly bint paused    # an operator wants nothing to be delivered to consumers
    cdef ConsumerRing ring
    cdef readonly list consumers
    cdef readonly ConsumerPort active      # of a single-active-consumer queue
    cdef readonly ConsumerPort exclusive_consumer
    cdef readonly uint64_t unacked
    cdef readonly uint64_t open_mark   # what `get` waits for
    cdef int64_t armed_ms      # when `expire` has been asked for; 0: not
    cdef bint pumping
    cdef bint postponed        # it is to be pumped in the next turn
    cdef int64_t slow_until_ms
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t acked

    cdef bint would_overflow(self, Message message) noexcept
    cdef bint is_over(self) noexcept
    cdef int store(self, Message message, int64_t expires_ms, int64_t now_ms) except -1
    cdef int hand_over(self, Message message, int64_t expires_ms, int64_t now_ms) except -1
    cdef bint drop_expired(self, int64_t now_ms) except -1
    cdef int enforce_limits(self) except -1
    cdef int arm_head(self) except -1
    cdef int arm(self, int64_t at_ms) except -1
    cdef int choose_active(self) except -1
    cdef int stop_acting(self) except -1
