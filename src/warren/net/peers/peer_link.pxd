from libc.stdint cimport int64_t, uint8_t, uint64_t

from warren.model.ports cimport FrameSink, PeerPort
from warren.net.hub cimport Hub
from warren.wire.output cimport Output


cdef class PeerLink(PeerPort):
    cdef readonly Hub hub
    cdef readonly object events      # whom the link tells: greeting, control frames, its end
    cdef readonly object log
    cdef public str name             # for the log
    cdef readonly bint dialled       # we called; what the other grants limits our data
    cdef readonly bint closed
    cdef readonly bint muted         # nothing is read or written: as if the cable were cut
    cdef readonly int state
    cdef readonly int64_t opened_ms
    cdef readonly int64_t received_ms
    cdef readonly int64_t sent_ms
    cdef readonly int64_t bytes_in
    cdef readonly int64_t bytes_out
    cdef public FrameSink ring       # who takes ring frames; None: nobody
    cdef public object on_drained    # called when data that had piled up has left, or None
    # incoming
    cdef uint8_t* incoming
    cdef size_t incoming_start
    cdef size_t incoming_end
    cdef size_t incoming_room
    cdef list pieces                 # of a control frame that is longer than a frame may be
    cdef size_t pieces_bytes
    # outgoing
    cdef Output control
    cdef Output data
    cdef size_t run                  # bytes of whole data frames on their way: nothing between them
    cdef int reserved_kind
    cdef size_t reserved
    cdef bint flush_wanted
    cdef bint crowded                # data has piled up, and somebody may wait for it to leave
    # credit: bytes of data frames since the link began, each with its length
    cdef uint64_t granted            # by the acceptor
    cdef uint64_t data_sent          # of it used, at the dialler
    cdef uint64_t data_taken         # by the sink, at the acceptor
    cdef readonly uint64_t window_bytes
    cdef bint credit_held

    cdef uint8_t* room_to_read(self, size_t n) except NULL
    cdef int take_in(self) except -1
    cdef int scan(self) except -1
    cdef int take_own_frame(self, int kind, const uint8_t* payload, size_t n) except -1
    cdef int take_data_frame(self, int kind, const uint8_t* payload, size_t n) except -1
    cdef int take_control_frame(self, int kind, const uint8_t* payload, size_t n) except -1
    cdef int return_credit(self) except -1
    cdef int want_flush(self) except -1
    cdef int control_frame(self, int kind, const uint8_t* payload, size_t n) except -1
    cdef bint next_run(self) noexcept
    cdef int left_some(self) except -1
    cdef int write_out(self) except -1


cdef class SocketPeerLink(PeerLink):
    cdef object socket
    cdef int fd
    cdef bint reading
    cdef bint writing                # waits for the socket to take more

    cdef ssize_t send_some(self, Output output, size_t n) except -2
