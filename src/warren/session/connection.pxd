from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from warren.model.ports cimport LinkPort, QueueEffects
from warren.session.channel cimport Channel
from warren.session.outlet cimport Outlet

# The life of a connection; methods on channel 0 are checked against it.
cdef enum:
    AWAIT_GREETING = 0
    AWAIT_START_OK = 1
    AWAIT_SECURE_OK = 2
    AWAIT_TUNE_OK = 3
    AWAIT_OPEN = 4
    RUNNING = 5
    CLOSING = 6      # connection.close is sent; only its answer counts
    CLOSED = 7


cdef class Connection:
    cdef readonly object engine
    cdef QueueEffects effects
    cdef readonly Outlet outlet
    cdef public int state
    cdef uint32_t frame_limit        # longest frame taken now, in bytes
    cdef dict channels               # by number, those waiting for close-ok too
    cdef Channel last_channel        # the one of the newest frame: the next is often its
    cdef size_t wake_from            # which consumer is first when the peer reads again
    cdef bint published_now          # it has published in the current turn: alarms take hold
    cdef public str token            # tells it from others where it owns queues of a cluster
    cdef public object errand        # what its last method has sent off elsewhere, or None
    cdef readonly bint waiting       # for the log: nothing more is taken until it has come further
    cdef int budget                  # methods it may still ask for in the current turn
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t frames_in
    # what the handshake settles; the engine and the management read it
    cdef public int channel_max
    cdef public bint lingers           # the client said goodbye and will hang up itself
    cdef public int heartbeat_s
    cdef public str user
    cdef public object vhost
    cdef public str mechanism
    cdef public dict client_properties
    cdef public dict capabilities
    cdef public object peer
    cdef public str name
    cdef public object sasl
    cdef public int64_t connected_at_ms
    cdef public bint blocked           # connection.blocked is in force
    cdef public object close_reason    # why we closed it; None while it is open
    cdef public set exclusive_queues
    cdef public object on_end          # called once when the connection is over

    cdef Py_ssize_t take(self, const uint8_t* data, Py_ssize_t n, int64_t now_ms) except -1
    cdef Py_ssize_t take_frames(self, const uint8_t* data, Py_ssize_t n, Py_ssize_t at) except -1
    cdef int blame(self, error, int kind, const uint8_t* p, uint32_t n) except -1
    cdef int on_frame(self, int kind, int number, const uint8_t* p, uint32_t n) except -1
    cdef int on_method(self, int number, const uint8_t* p, uint32_t n) except -1
    cdef Channel channel_for(self, int number, bint content)
    cdef Channel find_channel(self, int number)
    cdef int end_turn(self) except -1
