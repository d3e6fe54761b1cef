"""Links: one client's socket joined to its connection.

`SocketLink` reads and writes a plain socket itself, from and to the buffers that frames are parsed
in and encoded into, with no copy between. `StreamLink` is for transports that must see all bytes,
such as TLS. Both stop reading a client that floods a congested queue, ignores an alarm, or does not
read what it is sent; that is all the back-pressure there is.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from warren.model.ports cimport LinkPort, QueuePort
from warren.net.hub cimport Hub
from warren.session.connection cimport CLOSED, Connection
from warren.session.outlet cimport RESUME_BYTES, UNREAD_BYTES_MAX
from warren.wire.output cimport Output

from warren.model.errors import InternalError

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* buffer, size_t n, int flags)
    ssize_t c_send "send"(int fd, const void* buffer, size_t n, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    int MSG_PEEK

cdef enum:
    READ_BYTES = 262144
    # Memory for an unfinished frame beyond this is given back when the frame is finished.
    KEEP_REST_BYTES = 65536

#: The longest a publisher is held back at a time, in seconds.
HOLD_S = 0.01
#: How long a client that said goodbye has to hang up, in seconds.
LINGER_S = 0.5
NO_LINK = LinkPort()
HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"


cdef class Link(LinkPort):
    """What plain and TLS links share."""

    def __init__(self, Hub hub not None, peer, str name not None):
        self.hub = hub
        self.connection = Connection(hub.engine, self, hub.engine.settings.initial_frame_max)
        self.connection.peer = peer
        self.connection.name = name
        self.opened_ms = self.received_ms = self.sent_ms = hub.now_ms()
        self.connection.connected_at_ms = hub.engine.clock.wall_s() * 1000
        hub.links[self] = None

    def __dealloc__(self):
        free(self.rest)

    cdef int keep_rest(self, const uint8_t* data, size_t n) except -1:
        """Keeps the bytes of an unfinished frame until more come."""
        if n > self.rest_room:
            free(self.rest)
            self.rest_room = n if n > 4096 else 4096
            self.rest = <uint8_t*>malloc(self.rest_room)
            if self.rest is NULL:
                self.rest_room = 0
                raise MemoryError()
        elif self.rest_room > READ_BYTES and n < READ_BYTES // 2:
            free(self.rest)
            self.rest = NULL
            self.rest_room = self.rest_len = 0
            return self.keep_rest(data, n)
        memcpy(self.rest, data, n)
        self.rest_len = n
        return 0

    cdef int consume_bytes(self, const uint8_t* data, size_t n) except -1:
        """Gives bytes to the connection; what it cannot use yet is kept."""
        cdef Py_ssize_t used
        self.received_ms = self.hub.now_ms()
        self.hub.turn.heard_us = self.hub.turn.now_us
        try:
            used = self.connection.take(data, n, self.received_ms)
        except Exception as fault:  # noqa: BLE001 - this loop owns the connection
            self.hub.engine.log.exception("%s: closed after a fault of ours", self.connection.name)
            self.connection.close(InternalError(f"{type(fault).__name__}: see the broker's log"))
            self.rest_len = 0
            return 0
        if used < <Py_ssize_t>n:
            self.keep_rest(data + used, n - used)
        else:
            self.rest_len = 0
            if self.rest_room > KEEP_REST_BYTES:
                free(self.rest)
                self.rest = NULL
                self.rest_room = 0
        if self.connection.waiting:
            self.waiting = True
            self.update_reading()
        if self.connection.outlet.output.pending() > UNREAD_BYTES_MAX:
            self.stalled = True
            self.update_reading()
        elif self.connection.budget <= 0 and self.rest_len and not self.behind:
            self.behind = True
            self.update_reading()
            self.hub.loop.call_soon(self.catch_up)
        return 0

    def catch_up(self):
        """Others have had their turn: go on with what this client asked for."""
        self.behind = False
        if self.closed:
            return
        self.hub.begin_turn()
        try:
            self.take_rest()
            self.update_reading()
        finally:
            self.hub.end_turn()

    cdef int go_on(self) except -1:
        if self.waiting and not self.closed:
            self.waiting = False
            if not self.stalled and not self.behind:
                self.take_rest()
            self.update_reading()
        return 0

    cdef int take_rest(self) except -1:
        """Whole frames may wait among the bytes that were kept while the peer did not read."""
        cdef size_t n = self.rest_len
        cdef uint8_t* buffer
        if n == 0:
            return 0
        buffer = self.hub.room(n)
        memcpy(buffer, self.rest, n)
        return self.consume_bytes(buffer, n)

    cdef int want_flush(self) except -1:
        return self.hub.note_dirty(self)

    cdef int flush_now(self) except -1:
        return self.write_out()

    cdef int write_out(self) except -1:
        raise NotImplementedError

    cdef int set_reading(self, bint reading) except -1:
        raise NotImplementedError

    cdef int hold_back(self, QueuePort queue) except -1:
        if not self.held:
            self.held = True
            self.held_queue = queue
            self.held_deliveries = queue.deliveries
            self.hub.hold(queue, self)
            self.hold_timer = self.hub.loop.call_later(HOLD_S, self.end_hold, True)
            self.update_reading()
        return 0

    def end_hold(self, bint timed_out):
        """The pause is over: the queue has drained, or the time is up."""
        if not self.held:
            return
        queue = self.held_queue
        self.held = False
        self.held_queue = None
        # A timer left over would end the next pause early and take its consumers for slow ones.
        self.hold_timer.cancel()
        if timed_out:
            waiting = self.hub.held.get(queue)
            if waiting is not None and self in waiting:
                waiting.remove(self)
                if not waiting:
                    del self.hub.held[queue]
            if queue.pause_ended(self.held_deliveries, self.hub.now_ms()) and not self.closed:
                # A queue on another node: nothing but room there ends the pause.
                self.hold_back(queue)
                if not self.told_blocked and getattr(queue, "is_stash_full", False):
                    self.tell_blocked(True)
                return
        if not self.closed:
            if self.told_blocked:
                self.tell_blocked(False)
            self.update_reading()

    cdef int tell_blocked(self, bint blocked) except -1:
        """The pause may be long: what is put aside for nodes out of reach has filled its room."""
        cdef Connection connection = self.connection
        self.told_blocked = blocked
        # While an alarm is in force the client has been told of that, and will be when it is over.
        if not connection.blocked and connection.capabilities.get("connection.blocked"):
            if blocked:
                connection.send(0, "connection.blocked", "nodes are out of reach: stash full")
            else:
                connection.send(0, "connection.unblocked")
        return 0

    cdef int block_reading(self, bint blocked) except -1:
        self.blocked = blocked
        return self.update_reading()

    cdef int update_reading(self) except -1:
        cdef bint wanted = not (
            self.held or self.blocked or self.stalled or self.behind or self.waiting
            or self.closed)
        if wanted != self.reading:
            self.reading = wanted
            if wanted:
                # A client that we did not listen to has not been silent.
                self.received_ms = self.hub.now_ms()
            self.set_reading(wanted)
        return 0

    def flush(self):
        """Write what the peer takes; close when the connection is over."""
        self.connection.outlet.flush_wanted = False
        if self.closed:
            return
        self.write_out()
        if self.connection.state == CLOSED and self.connection.outlet.output.pending() == 0:
            self.part()

    def part(self):
        """All is said: hang up, unless the client is about to do so itself.

        Who hangs up first keeps the address busy for a while, and a client that reads the end of
        the stream before it has taken our close-ok may mistake a good end for a bad one.
        """
        if self.connection.lingers and self.connection.close_reason is None:
            self.connection.lingers = False
            self.parting = True
            self.hub.loop.call_later(LINGER_S, self.lost)
        elif not self.parting:
            self.close()

    def wrote_some(self):
        """The peer has read: what waited for that goes on."""
        cdef size_t pending = self.connection.outlet.output.pending()
        if self.stalled and pending < RESUME_BYTES:
            self.stalled = False
            self.take_rest()
            self.update_reading()
            pending = self.connection.outlet.output.pending()
        if not self.connection.outlet.writable and pending < RESUME_BYTES:
            self.connection.became_writable()
        if self.connection.state == CLOSED and pending == 0:
            self.part()

    def send_heartbeat(self):
        self.connection.outlet.raw(HEARTBEAT)

    @property
    def is_paused(self):
        """Nothing is read from this client now, by our own choice."""
        return self.held or self.blocked or self.waiting

    @property
    def is_stalled(self):
        """Nothing is read from this client because it does not read what we send."""
        return self.stalled

    def is_dead(self):
        """Whether the transport has failed and nobody was told."""
        return False

    def lost(self):
        """The peer is gone, or must go: no goodbye."""
        if not self.closed:
            self.connection.state = CLOSED
            self.close()

    def close(self):
        """Give back the socket and everything the engine holds for the connection."""
        if self.closed:
            return
        self.closed = True
        self.hub.links.pop(self, None)
        self.update_reading()
        self.close_transport()
        self.hub.begin_turn()
        try:
            self.connection.state = CLOSED
            self.connection.release()
        finally:
            self.hub.end_turn()
        # Link and connection hold each other: without this only the collector would free them.
        self.connection.outlet.link = NO_LINK
        self.connection.forget_channels()


@cython.final
cdef class SocketLink(Link):
    """A link over a plain, non-blocking socket."""

    def __init__(self, Hub hub not None, socket, peer, str name not None):
        Link.__init__(self, hub, peer, name)
        self.socket = socket
        self.fd = socket.fileno()
        self.update_reading()

    cdef int set_reading(self, bint reading) except -1:
        if reading:
            self.hub.loop.add_reader(self.fd, self.on_readable)
        else:
            self.hub.loop.remove_reader(self.fd)
        return 0

    def on_readable(self):
        cdef uint8_t* buffer = self.hub.room(self.rest_len + READ_BYTES)
        cdef ssize_t n
        if self.rest_len:
            memcpy(buffer, self.rest, self.rest_len)
        n = c_recv(self.fd, buffer + self.rest_len, READ_BYTES, MSG_DONTWAIT)
        if n <= 0:
            if n < 0 and (errno == EAGAIN or errno == EINTR):
                return
            self.lost()
            return
        self.hub.depth += 1
        try:
            self.consume_bytes(buffer, self.rest_len + n)
        finally:
            self.hub.depth -= 1
        self.hub.flush_all()

    def is_dead(self):
        """A reset that comes together with bytes is told once, for the bytes.

        libuv stops watching a socket as soon as it reports an error, so after those bytes have been
        read nothing would ever come again.
        """
        cdef uint8_t octet
        cdef ssize_t n
        if self.closed or not self.reading:
            return False
        n = c_recv(self.fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT)
        return n < 0 and errno != EAGAIN and errno != EINTR

    cdef int write_out(self) except -1:
        cdef ssize_t n
        cdef Output output = self.connection.outlet.output
        if self.writing or self.closed:
            return 0
        while output.pending():
            n = c_send(self.fd, output.buffer + output.start, output.pending(),
                       MSG_DONTWAIT | MSG_NOSIGNAL)
            if n < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    self.writing = True
                    self.hub.loop.add_writer(self.fd, self.on_writable)
                    return 0
                # Never close in the middle of whatever led here.
                output.sent(output.pending())
                self.connection.outlet.writable = False
                self.hub.loop.call_soon(self.lost)
                return 0
            self.sent_ms = self.hub.turn.now_ms
            self.bytes_out += n
            output.sent(n)
        return 0

    def on_writable(self):
        self.hub.loop.remove_writer(self.fd)
        self.writing = False
        self.hub.begin_turn()
        try:
            self.write_out()
            self.wrote_some()
        finally:
            self.hub.end_turn()

    def close_transport(self):
        if self.writing:
            self.hub.loop.remove_writer(self.fd)
        self.socket.close()


@cython.final
cdef class StreamLink(Link):
    """A link over an asyncio transport; it is the transport's protocol."""

    def __init__(self, Hub hub not None, peer, str name not None):
        Link.__init__(self, hub, peer, name)
        self.reading = True
        self.incoming = bytearray(65536)

    def connection_made(self, transport):
        self.transport = transport
        if self.closed:
            # The warden lost patience before the handshake was over.
            transport.abort()
            return
        transport.set_write_buffer_limits(high=READ_BYTES)

    def connection_lost(self, _error):
        self.lost()

    def eof_received(self):
        return False

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        self.hub.begin_turn()
        try:
            self.write_out()
            self.wrote_some()
        finally:
            self.hub.end_turn()

    def get_buffer(self, _hint):
        return self.incoming

    def buffer_updated(self, Py_ssize_t n):
        self.take_in(<const uint8_t*>PyByteArray_AS_STRING(self.incoming), n)

    def data_received(self, bytes data not None):
        """For loops that take no protocol but their own class for a buffered one."""
        self.take_in(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef int take_in(self, const uint8_t* data, size_t n) except -1:
        cdef uint8_t* buffer
        if self.closed:
            return 0
        buffer = self.hub.room(self.rest_len + n)
        if self.rest_len:
            memcpy(buffer, self.rest, self.rest_len)
        memcpy(buffer + self.rest_len, data, n)
        self.hub.begin_turn()
        try:
            self.consume_bytes(buffer, self.rest_len + n)
        finally:
            self.hub.end_turn()
        return 0

    cdef int set_reading(self, bint reading) except -1:
        if self.transport is not None and not self.transport.is_closing():
            if reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
        return 0

    cdef int write_out(self) except -1:
        if self.paused or self.closed or self.transport is None:
            return 0
        if self.connection.outlet.output.pending():
            self.bytes_out += self.connection.outlet.output.pending()
            self.sent_ms = self.hub.now_ms()
            self.transport.write(self.connection.outlet.output.take())
        return 0

    def close_transport(self):
        if self.transport is not None:
            self.transport.close()
