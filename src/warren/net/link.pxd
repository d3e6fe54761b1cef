from libc.stdint cimport int64_t, uint8_t

from warren.model.ports cimport LinkPort, QueuePort
from warren.net.hub cimport Hub
from warren.session.connection cimport Connection


cdef class Link(LinkPort):
    cdef readonly Hub hub
    cdef readonly Connection connection
    cdef readonly bint closed
    cdef bint told_blocked     # the client knows that it is not read for longer
    cdef bint held             # not read: a queue it publishes to is congested
    cdef bint blocked          # not read: an alarm is in force
    cdef bint stalled          # not read: it does not read what we send
    cdef bint behind           # not read: it has asked for much, and others come first
    cdef bint waiting          # not read: the connection waits for the log
    cdef bint reading
    cdef bint parting          # all is said; the client is to hang up
    cdef QueuePort held_queue
    cdef object hold_timer
    cdef int64_t held_deliveries
    cdef readonly int64_t opened_ms
    cdef readonly int64_t received_ms
    cdef readonly int64_t sent_ms
    cdef public int64_t bytes_out
    cdef uint8_t* rest         # the start of a frame whose end has not come
    cdef size_t rest_len
    cdef size_t rest_room

    cdef int keep_rest(self, const uint8_t* data, size_t n) except -1
    cdef int update_reading(self) except -1
    cdef int take_rest(self) except -1
    cdef int tell_blocked(self, bint blocked) except -1
    cdef int consume_bytes(self, const uint8_t* data, size_t n) except -1
    cdef int write_out(self) except -1
    cdef int set_reading(self, bint reading) except -1


cdef class SocketLink(Link):
    cdef object socket
    cdef int fd
    cdef bint writing          # waits for the socket to take more


cdef class StreamLink(Link):
    cdef object transport
    cdef bint paused
    cdef bytearray incoming

    cdef int take_in(self, const uint8_t* data, size_t n) except -1
