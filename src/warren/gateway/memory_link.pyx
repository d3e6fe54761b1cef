"""A link between two nodes that exists in memory only, for tests and for the simulator.

Frames arrive in order, after a delay, when somebody carries them; the link can be cut at any frame.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from warren.model.ports cimport PEER_FRAME_BYTES_MAX, FrameSink, PeerPort

from collections import deque


@cython.final
cdef class MemoryPeer(PeerPort):
    """One end: what is written here arrives at the sink of the other end."""

    def __init__(self, str peer not None, uint64_t incarnation, MemoryLink link not None):
        self.peer = peer
        self.incarnation = incarnation
        self.link = link
        self.sink = FrameSink()
        self.frames = deque()

    def __dealloc__(self):
        free(self.room)

    cdef uint8_t* reserve(self, int kind, size_t n) except NULL:
        cdef uint8_t* grown
        assert not self.is_open, "two frames are written at once"
        assert n <= PEER_FRAME_BYTES_MAX, f"a frame of {n} bytes is too long"
        if n + 1 > self.room_len:
            grown = <uint8_t*>realloc(self.room, n + 1)
            if grown is NULL:
                raise MemoryError()
            self.room = grown
            self.room_len = n + 1
        self.kind = kind
        self.is_open = True
        return self.room

    cdef int commit(self, size_t n) except -1:
        assert self.is_open and n < self.room_len
        self.is_open = False
        if not self.link.is_cut:
            self.frames.append((self.link.now_ms + self.link.delay_ms, self.kind,
                                PyBytes_FromStringAndSize(<char*>self.room, n)))
            self.pending_bytes += n
        return 0

    cdef size_t pending(self) noexcept:
        return self.pending_bytes

    def send(self, int kind, bytes payload not None):
        """One frame, for Python callers."""
        cdef size_t n = PyBytes_GET_SIZE(payload)
        memcpy(self.reserve(kind, n), PyBytes_AS_STRING(payload), n)
        self.commit(n)

    def take(self):
        """The frames that have not arrived; whoever takes them carries them himself."""
        taken = self.waiting()
        self.frames.clear()
        self.pending_bytes = 0
        return taken

    def waiting(self):
        """(kind, payload) of the frames that have not arrived."""
        return [(kind, payload) for _, kind, payload in self.frames]

    def tamper(self, Py_ssize_t i, int kind, bytes payload not None):
        """Put another frame into the place of one that has not arrived."""
        at_ms, _, old = self.frames[i]
        self.frames[i] = (at_ms, kind, payload)
        self.pending_bytes += len(payload)
        self.pending_bytes -= len(old)


@cython.final
cdef class MemoryLink:
    """A gateway's end and a home's; each end knows the other node's name and incarnation."""

    def __init__(self, str gateway="gateway", uint64_t gateway_incarnation=1, str home="home",
                 uint64_t home_incarnation=1, int64_t delay_ms=0):
        self.delay_ms = delay_ms
        self.dialled = MemoryPeer(home, home_incarnation, self)
        self.accepted = MemoryPeer(gateway, gateway_incarnation, self)

    def carry_out(self, int limit=1000000):
        """Frames go from the gateway to the home; how many."""
        return self.carry(self.dialled, self.accepted, limit)

    def carry_back(self, int limit=1000000):
        """Frames go from the home to the gateway; how many."""
        return self.carry(self.accepted, self.dialled, limit)

    def carry(self, MemoryPeer source not None, MemoryPeer target not None, int limit):
        cdef int count = 0
        while count < limit and source.frames and source.frames[0][0] <= self.now_ms:
            _, kind, payload = source.frames.popleft()
            source.pending_bytes -= len(payload)
            count += 1
            feed(target.sink, kind, payload)
        if count:
            target.sink.end_turn()
        return count

    def cut(self):
        """The connection is gone, with everything that has not arrived; both ends are told."""
        if self.is_cut:
            return
        self.is_cut = True
        for end in (self.dialled, self.accepted):
            (<MemoryPeer>end).frames.clear()
            (<MemoryPeer>end).pending_bytes = 0
            (<MemoryPeer>end).sink.link_lost()


def feed(FrameSink sink not None, int kind, bytes payload not None):
    """Give a sink one frame, from memory that ends where the frame ends."""
    sink.take_frame(kind, <const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))


def end_turn(FrameSink sink not None):
    """All frames that came together have been given."""
    sink.end_turn()
