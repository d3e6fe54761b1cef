"""One connection between two nodes: frames in, frames out, and what keeps both in bounds.

`SocketPeerLink` reads and writes a plain socket itself; `StreamPeerLink` (stream_peer_link.pyx) is
for TLS. Both share the scan for frames, the two output buffers and the credit.

Control frames overtake data: they have a buffer of their own, which goes first whenever a run of
data frames (`RUN_BYTES`, or one frame) has left. So that they do not wait in the kernel instead,
sockets are made with a low mark for what is unsent (`UNSENT_BYTES_MAX`), and a link gives away at
most `TURN_BYTES` of data before the others of the loop have a turn.

Data from the dialler to the acceptor is limited by credit: the acceptor says how many bytes of data
frames it is ready for since the link began, and the dialler keeps the rest in its buffer.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from warren.model.ports cimport (
    CONTROL_KINDS, GATEWAY_KINDS, PEER_FRAME_BYTES_MAX, RING_KINDS, FrameSink,
)
from warren.net.hub cimport Hub
from warren.wire.octets cimport load32, load64, store32, store64
from warren.wire.output cimport Output

import os

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int fd, void* buffer, size_t n, int flags)
    ssize_t c_send "send"(int fd, const void* buffer, size_t n, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    int MSG_PEEK

cdef enum:
    # Kinds of the link itself; the greeting has 1 to 3 and 7 (handshake.py).
    PING = 4
    CREDIT = 5
    PIECE = 6          # the beginning, or a middle part, of a control frame that comes later
    FIRST_UNKNOWN_KIND = 96

cdef enum:
    GREETING = 0       # nothing but the greeting is taken
    READY = 1
    PARTING = 2        # all is said; what still comes is thrown away until the other hangs up

cdef enum:
    HEADER = 5         # length and kind
    GREETING_FRAME_MAX = 4096
    FRAME_MAX = PEER_FRAME_BYTES_MAX + 64
    # A control frame that comes in pieces has at most so many bytes.
    CONTROL_BYTES_MAX = 16777216
    STRANGER_READ_BYTES = 8192
    READ_BYTES = 262144
    RUN_BYTES = 131072
    TURN_BYTES = 1048576
    # Data beyond this has piled up; below that it has left again.
    CROWDED_BYTES = 1048576
    DRAINED_BYTES = 262144

#: For TCP_NOTSENT_LOWAT: what the kernel may hold that is not on its way yet.
UNSENT_BYTES_MAX = 131072
#: The longest `send` from Python: pieces are put together by the receiver up to this.
CONTROL_FRAME_BYTES_MAX = CONTROL_BYTES_MAX
#: How long one who was refused has to read why, in seconds.
PARTING_S = 0.5


cdef class PeerLink(PeerPort):
    """What plain and TLS links share.

    `events` has three methods: `greeting_frame(link, kind, payload)` until `become_ready`,
    `control_frame(link, kind, payload)` after it, and `link_lost(link, reason)`.
    """

    def __init__(self, Hub hub not None, events, log, str name not None, bint dialled,
                 uint64_t window_bytes):
        self.hub = hub
        self.events = events
        self.log = log
        self.name = name
        self.dialled = dialled
        self.window_bytes = window_bytes
        self.control = Output()
        self.data = Output()
        self.pieces = []
        self.opened_ms = self.received_ms = self.sent_ms = hub.now_ms()

    def __dealloc__(self):
        free(self.incoming)

    # -- what comes in

    cdef uint8_t* room_to_read(self, size_t n) except NULL:
        """Room for `n` more bytes behind those that wait; these are moved, never lost."""
        cdef size_t waiting = self.incoming_end - self.incoming_start
        cdef size_t room
        cdef uint8_t* larger
        if waiting == 0:
            self.incoming_start = self.incoming_end = 0
        if self.incoming_end + n > self.incoming_room:
            if waiting + n > self.incoming_room:
                # Twice as much: the parts of a long frame are not moved at every read.
                room = max(waiting + n, 2 * self.incoming_room)
                larger = <uint8_t*>malloc(room)
                if larger is NULL:
                    raise MemoryError()
                memcpy(larger, self.incoming + self.incoming_start, waiting)
                free(self.incoming)
                self.incoming = larger
                self.incoming_room = room
            else:
                memmove(self.incoming, self.incoming + self.incoming_start, waiting)
            self.incoming_start = 0
            self.incoming_end = waiting
        return self.incoming + self.incoming_end

    cdef int take_in(self) except -1:
        """Bytes have come: take the frames that are whole, in one turn."""
        self.received_ms = self.hub.now_ms()
        self.hub.begin_turn()
        try:
            self.scan()
        except ValueError as fault:
            self.log.warning("%s: closed, what it sends cannot be right: %s", self.name, fault)
            self.lost("it is broken")
        except Exception:  # noqa: BLE001 - a fault of ours costs one link, not the node
            self.log.exception("%s: closed after a fault of ours", self.name)
            self.lost("a fault of ours")
        finally:
            self.hub.end_turn()
        return 0

    cdef int scan(self) except -1:
        cdef size_t length, longest
        cdef int kind
        cdef const uint8_t* p
        cdef bint data_came = False
        cdef FrameSink sink
        while self.incoming_end - self.incoming_start >= 4:
            if self.closed or self.muted:
                break
            if self.state == PARTING:
                self.incoming_start = self.incoming_end
                break
            p = self.incoming + self.incoming_start
            length = load32(p)
            longest = FRAME_MAX if self.state == READY else GREETING_FRAME_MAX
            if length == 0 or length > longest:
                raise ValueError(f"a frame of {length} bytes")
            if self.incoming_end - self.incoming_start < length + 4:
                break
            self.incoming_start += length + 4
            kind = p[4]
            if kind >= GATEWAY_KINDS:
                self.take_data_frame(kind, p + HEADER, length - 1)
                data_came = True
            elif kind >= CONTROL_KINDS:
                self.take_control_frame(kind, p + HEADER, length - 1)
            else:
                self.take_own_frame(kind, p + HEADER, length - 1)
        if data_came and not self.closed:
            sink = self.sink
            sink.end_turn()
            self.return_credit()
        return 0

    cdef int take_data_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        cdef FrameSink sink = self.sink
        if kind >= RING_KINDS and self.ring is not None:
            sink = self.ring
        if self.state != READY or kind >= FIRST_UNKNOWN_KIND or sink is None:
            raise ValueError(f"a frame of kind {kind} that nobody takes here")
        if not self.dialled:
            # The last frame may have begun just below what was granted.
            if self.data_taken >= self.granted:
                raise ValueError("more data than it was granted")
            self.data_taken += n + HEADER
        sink.take_frame(kind, payload, n)
        return 0

    cdef int take_control_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        if self.state != READY:
            raise ValueError(f"a frame of kind {kind} before the greeting is over")
        frame = PyBytes_FromStringAndSize(<char*>payload, n)
        if self.pieces_bytes:
            self.pieces.append(frame)
            frame = b"".join(self.pieces)
            self.pieces = []
            self.pieces_bytes = 0
        self.events.control_frame(self, kind, frame)
        return 0

    cdef int take_own_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        cdef uint64_t granted
        if self.state == GREETING:
            frame = PyBytes_FromStringAndSize(<char*>payload, n)
            self.events.greeting_frame(self, kind, frame)
        elif kind == CREDIT:
            if not self.dialled or n != 8:
                raise ValueError("credit that makes no sense")
            granted = load64(payload)
            if granted < self.granted:
                raise ValueError("credit that was taken back")
            self.granted = granted
            self.want_flush()
        elif kind == PIECE:
            if n == 0 or self.pieces_bytes + n > CONTROL_BYTES_MAX:
                raise ValueError("a control frame without an end")
            self.pieces.append(PyBytes_FromStringAndSize(<char*>payload, n))
            self.pieces_bytes += n
        elif kind != PING:
            raise ValueError(f"a frame of the unknown kind {kind}")
        return 0

    # -- credit

    cdef int return_credit(self) except -1:
        cdef uint64_t granted = self.data_taken + self.window_bytes
        cdef uint8_t number[8]
        if self.dialled or self.credit_held or self.closed or self.state != READY:
            return 0
        if granted - self.granted >= self.window_bytes // 8:
            self.granted = granted
            store64(number, granted)
            self.control_frame(CREDIT, number, 8)
        return 0

    def hold_credit(self, bint held):
        """Grant no more data than was granted already; False: grant, also for the first time."""
        self.credit_held = held
        self.return_credit()

    # -- what goes out

    cdef uint8_t* reserve(self, int kind, size_t n) except NULL:
        cdef Output output = self.data if kind >= GATEWAY_KINDS else self.control
        if n > FRAME_MAX - 1:
            raise OverflowError(f"a frame of {n} bytes is too long for a link between nodes")
        self.reserved_kind = kind
        self.reserved = n
        return output.reserve(n + HEADER) + HEADER

    cdef int commit(self, size_t n) except -1:
        cdef Output output = self.data if self.reserved_kind >= GATEWAY_KINDS else self.control
        cdef uint8_t* p
        if n > self.reserved:
            raise OverflowError("a frame has become longer than the room it was given")
        self.reserved = 0
        if self.closed:
            return 0
        p = output.buffer + output.end
        store32(p, <uint32_t>(n + 1))
        p[4] = <uint8_t>self.reserved_kind
        output.end += n + HEADER
        if not self.crowded and self.data.pending() > CROWDED_BYTES:
            self.crowded = True
        if not self.flush_wanted:
            self.want_flush()
        return 0

    cdef int control_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        memcpy(self.reserve(kind, n), payload, n)
        return self.commit(n)

    cdef size_t pending(self) noexcept:
        return self.data.pending()

    @property
    def pending_bytes(self):
        """Data that has not been given to the kernel, also because the other granted no more."""
        return self.data.pending()

    @property
    def control_pending_bytes(self):
        """The same for control frames."""
        return self.control.pending()

    def send(self, int kind, bytes payload not None):
        """One frame; a control frame that is longer than a frame may be goes in pieces."""
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(payload)
        cdef size_t n = PyBytes_GET_SIZE(payload)
        if not 0 < kind < FIRST_UNKNOWN_KIND:
            raise OverflowError(f"there is no frame of kind {kind}")
        if CONTROL_KINDS <= kind < GATEWAY_KINDS:
            if n > CONTROL_BYTES_MAX:
                raise OverflowError(f"a control frame of {n} bytes is too long")
            while n > PEER_FRAME_BYTES_MAX:
                self.control_frame(PIECE, p, PEER_FRAME_BYTES_MAX)
                p += PEER_FRAME_BYTES_MAX
                n -= PEER_FRAME_BYTES_MAX
        memcpy(self.reserve(kind, n), p, n)
        self.commit(n)

    def ping(self):
        """Say that we live, unless there is something to say anyway."""
        if self.state == READY and self.control.pending() == 0:
            self.reserve(PING, 0)
            self.commit(0)

    cdef bint next_run(self) noexcept:
        """Chooses the data frames that are sent next, without a break; False when there are none.

        They are whole, and the last of them begins within the credit.
        """
        cdef size_t run = 0
        cdef size_t waiting = self.data.pending()
        cdef const uint8_t* p = self.data.buffer + self.data.start
        while run < waiting and run < RUN_BYTES:
            if self.dialled and self.data_sent >= self.granted:
                break
            self.data_sent += load32(p + run) + 4
            run += load32(p + run) + 4
        self.run = run
        return run > 0

    cdef int want_flush(self) except -1:
        if not self.flush_wanted:
            self.flush_wanted = True
            self.hub.note_dirty(self)
        return 0

    def flush(self):
        """Write what the other takes; the hub calls this at the end of a turn."""
        self.flush_wanted = False
        if not self.closed and not self.muted:
            self.write_out()

    cdef int write_out(self) except -1:
        raise NotImplementedError

    cdef int left_some(self) except -1:
        """Data has left: whoever waited for that is told, in a turn of its own."""
        if self.crowded and self.data.pending() <= DRAINED_BYTES:
            self.crowded = False
            if self.on_drained is not None:
                self.hub.loop.call_soon(self.tell_drained)
        return 0

    def tell_drained(self):
        if self.closed or self.on_drained is None:
            return
        self.hub.begin_turn()
        try:
            self.on_drained()
        finally:
            self.hub.end_turn()

    # -- its life

    def become_ready(self, str peer not None, uint64_t incarnation):
        """The greeting is over: everything else is taken from now on."""
        self.peer = peer
        self.incarnation = incarnation
        self.state = READY

    @property
    def is_ready(self):
        return self.state == READY and not self.closed

    def part(self):
        """The last frame has been written: the other is to read it and hang up."""
        if self.state != PARTING and not self.closed:
            self.state = PARTING
            self.flush()
            self.hub.loop.call_later(PARTING_S, self.lost, "refused")

    def mute(self, bint muted):
        """Neither read nor write, as if the cable were cut; or again, as if it were mended."""
        self.muted = muted
        if not self.closed:
            self.set_reading(not muted)
            if not muted:
                self.want_flush()

    def set_reading(self, bint reading):
        raise NotImplementedError

    def is_stuck(self, stuck_ms):
        """Whether the other has not taken a byte of what waits for that long."""
        return self.hub.now_ms() - self.sent_ms >= stuck_ms and (
            self.control.pending() > 0 or self.run > 0)

    def lost(self, str reason not None):
        """The link is over: tell the sink and the network. A muted one leaves its socket open."""
        cdef FrameSink sink = self.sink
        if self.closed:
            return
        self.closed = True
        self.set_reading(False)
        self.release()
        self.hub.begin_turn()
        try:
            self.sink = None
            self.on_drained = None
            if sink is not None:
                try:
                    sink.link_lost()
                except Exception:  # noqa: BLE001 - the network must hear of it all the same
                    self.log.exception("%s: a fault of ours at its end", self.name)
            self.events.link_lost(self, reason)
        finally:
            self.hub.end_turn()

    def release(self):
        """Gives the transport back, unless the other must not notice."""
        raise NotImplementedError

    def hang_up(self):
        """Closes the transport of a muted link that was lost before."""
        raise NotImplementedError


@cython.final
cdef class SocketPeerLink(PeerLink):
    """A link over a plain, non-blocking socket."""

    def __init__(self, Hub hub not None, events, log, str name not None, bint dialled,
                 uint64_t window_bytes, socket):
        PeerLink.__init__(self, hub, events, log, name, dialled, window_bytes)
        self.socket = socket
        self.fd = socket.fileno()

    def set_reading(self, bint reading):
        if reading != self.reading:
            self.reading = reading
            if reading:
                self.hub.loop.add_reader(self.fd, self.on_readable)
            else:
                self.hub.loop.remove_reader(self.fd)

    def on_readable(self):
        cdef size_t room = READ_BYTES if self.state == READY else STRANGER_READ_BYTES
        cdef uint8_t* buffer = self.room_to_read(room)
        cdef uint8_t octet
        cdef ssize_t n = c_recv(self.fd, buffer, room, MSG_DONTWAIT)
        if n > 0:
            self.incoming_end += n
            self.bytes_in += n
            self.take_in()
            if self.closed or self.muted or n == <ssize_t>room:
                return
            # libuv stops watching a socket as soon as it reports an error: a reset that came
            # together with these bytes would never be told again.
            n = c_recv(self.fd, &octet, 1, MSG_DONTWAIT | MSG_PEEK)
            if n > 0:
                return
        if n == 0:
            self.lost("it hung up")
        elif errno != EAGAIN and errno != EINTR:
            self.lost(os.strerror(errno))

    cdef ssize_t send_some(self, Output output, size_t n) except -2:
        """How many bytes the kernel took: fewer than `n` when it takes no more now."""
        cdef ssize_t sent
        cdef int fault
        sent = c_send(self.fd, output.buffer + output.start, n, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent >= 0:
            output.sent(sent)
            self.bytes_out += sent
            self.sent_ms = self.hub.now_ms()
            return sent
        fault = errno
        if fault != EAGAIN and fault != EINTR:
            # Never close in the middle of whatever led here.
            self.control.sent(self.control.pending())
            self.data.sent(self.data.pending())
            self.run = 0
            self.hub.loop.call_soon(self.lost, os.strerror(fault))
        return 0

    cdef int write_out(self) except -1:
        cdef size_t given = 0
        cdef size_t wanted
        cdef ssize_t sent
        cdef bint full = False
        while not full and given < TURN_BYTES:
            if self.run == 0 and self.control.pending():
                wanted = self.control.pending()
                sent = self.send_some(self.control, wanted)
            elif self.run or self.next_run():
                wanted = self.run
                sent = self.send_some(self.data, wanted)
                # A failed link has nothing left to send.
                self.run -= sent if self.run else 0
                given += sent
            else:
                break
            full = sent < <ssize_t>wanted
        self.watch_writing(full or given >= TURN_BYTES)
        return self.left_some()

    def watch_writing(self, bint wanted):
        if wanted != self.writing:
            self.writing = wanted
            if wanted:
                self.hub.loop.add_writer(self.fd, self.on_writable)
            else:
                self.hub.loop.remove_writer(self.fd)

    def flush(self):
        self.flush_wanted = False
        # While the kernel is full the loop tells when it is not.
        if not self.closed and not self.muted and not self.writing:
            self.write_out()

    def on_writable(self):
        self.hub.begin_turn()
        try:
            if not self.closed:
                self.write_out()
        finally:
            self.hub.end_turn()

    def mute(self, bint muted):
        if muted and not self.closed:
            self.watch_writing(False)
        PeerLink.mute(self, muted)

    def release(self):
        self.watch_writing(False)
        if not self.muted:
            self.socket.close()

    def hang_up(self):
        self.socket.close()
