from libc.stdint cimport uint8_t, uint32_t, uint64_t

from warren.gateway.messages cimport Incoming, IncomingPayload
from warren.gateway.stream cimport Stream


cdef class Gateway(Stream):
    cdef readonly str home                # the name of the node
    cdef readonly uint64_t incarnation    # of the home that the newest link led to; 0: none yet
    cdef public object on_attached        # called with the gateway when there is a new link
    cdef public object on_consumer_lost   # called with (queue, consumer) when the home is down
    cdef public object on_dropped_queue   # called with a queue that the home serves no longer
    cdef dict errands                     # requests without an answer, by number
    cdef uint64_t last_request
    cdef list told                        # publishers that want to know when all is told
    cdef bint refusals                    # some came since the newest confirm
    # what comes in pieces: a delivery or a reply
    cdef Incoming incoming
    cdef IncomingPayload payload
    cdef int partial                      # kind of the frame that goes on; 0: none
    cdef uint32_t consumer
    cdef uint32_t queue_number
    cdef uint64_t slot
    cdef bint redelivered
    cdef uint64_t reply_id
    cdef bint reply_ok

    cdef int on_confirm(self, const uint8_t* p, size_t n) except -1
    cdef int on_refused(self, const uint8_t* p, size_t n, bint elsewhere) except -1
    cdef int on_congested(self, const uint8_t* p, size_t n) except -1
    cdef int on_dropped(self, const uint8_t* p, size_t n) except -1
    cdef int on_deliver(self, const uint8_t* p, size_t n) except -1
    cdef int on_reply(self, const uint8_t* p, size_t n) except -1
    cdef int on_more(self, const uint8_t* p, size_t n) except -1
    cdef int delivery_whole(self) except -1
    cdef int reply_whole(self) except -1
    cdef int tell_publishers(self) except -1
    cdef int give_up(self) except -1
    cdef int lose_handed(self) except -1
    cdef int refuse_deleted(self) except -1
