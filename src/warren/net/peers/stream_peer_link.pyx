"""Links between nodes over an asyncio transport, for TLS."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from warren.net.peers.peer_link cimport PeerLink

cdef enum:
    # A transport holds at most this much for us; the rest stays where it can be overtaken.
    TRANSPORT_BYTES_MAX = 65536


@cython.final
cdef class StreamPeerLink(PeerLink):
    """A link over an asyncio transport; it is the transport's protocol."""

    def connection_made(self, transport):
        self.transport = transport
        if self.closed:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=TRANSPORT_BYTES_MAX)
        if self.muted:
            transport.pause_reading()
        self.want_flush()

    def connection_lost(self, error):
        self.lost("it hung up" if error is None else str(error) or type(error).__name__)

    def eof_received(self):
        return False

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        self.hub.begin_turn()
        try:
            self.flush()
        finally:
            self.hub.end_turn()

    def data_received(self, bytes data not None):
        cdef size_t n = PyBytes_GET_SIZE(data)
        if self.closed:
            return
        memcpy(self.room_to_read(n), PyBytes_AS_STRING(data), n)
        self.incoming_end += n
        self.bytes_in += n
        self.take_in()

    def set_reading(self, bint reading):
        if self.transport is not None and not self.transport.is_closing():
            if reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    cdef int write_out(self) except -1:
        if self.transport is None or self.transport.is_closing():
            return 0
        while not self.paused:
            if self.control.pending():
                chunk = self.control.take()
            elif self.next_run():
                chunk = PyBytes_FromStringAndSize(
                    <char*>self.data.buffer + self.data.start, self.run)
                self.data.sent(self.run)
                self.run = 0
            else:
                break
            self.transport.write(chunk)
            self.bytes_out += len(chunk)
            self.sent_ms = self.hub.now_ms()
        return self.left_some()

    def release(self):
        if self.transport is not None and not self.muted:
            self.transport.close()

    def hang_up(self):
        if self.transport is not None:
            self.transport.abort()
