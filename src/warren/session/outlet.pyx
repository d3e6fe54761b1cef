"""What all channels of a connection share on the way out: the buffer, the link, the turn's time."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from warren.model.message cimport Message
from warren.model.ports cimport LinkPort, TurnClock
from warren.wire.octets cimport store16, store32
from warren.wire.output cimport Output


@cython.final
cdef class Outlet:
    """Encoded frames go in; the link takes them out at the end of the turn, or earlier if many."""

    def __init__(self, LinkPort link not None, TurnClock turn not None):
        self.output = Output()
        self.link = link
        self.turn = turn
        self.writable = True
        self.confirming = []
        # Until it is negotiated, nothing longer than the smallest legal frame is sent.
        self.frame_max = 4096

    cdef int wrote(self) except -1:
        """To be called after each encoded delivery or reply."""
        if self.output.pending() >= FLUSH_BYTES:
            self.link.flush_now()
            if self.output.pending() >= STALL_BYTES:
                self.writable = False
        if not self.flush_wanted:
            self.flush_wanted = True
            self.link.want_flush()
        return 0

    cdef size_t content_size(self, Message message) noexcept:
        """How many bytes `write_content` will write."""
        cdef uint32_t limit = self.frame_max - 8
        cdef uint32_t frames
        if message.body_len <= limit:
            frames = 1 if message.body_len else 0
        else:
            frames = (message.body_len + limit - 1) // limit
        return message.header_len + 8 + message.body_len + <size_t>frames * 8

    cdef int write_content(self, int channel, Message message) except -1:
        """Header and body frames, into room the caller has reserved."""
        cdef uint8_t* start = self.output.buffer + self.output.end
        cdef uint8_t* p = start
        cdef uint8_t* body = message.data + message.header_len
        cdef uint32_t left = message.body_len, n, limit = self.frame_max - 8
        p[0] = 2
        store16(p + 1, channel)
        store32(p + 3, message.header_len)
        memcpy(p + 7, message.data, message.header_len)
        p += 7 + message.header_len
        p[0] = 0xCE
        p += 1
        self.frames_out += 1
        while left:
            n = left if left < limit else limit
            p[0] = 3
            store16(p + 1, channel)
            store32(p + 3, n)
            memcpy(p + 7, body, n)
            p[7 + n] = 0xCE
            p += n + 8
            body += n
            left -= n
            self.frames_out += 1
        self.output.end += p - start
        return 0

    def method(self, int channel, bytes payload not None):
        """Send one method frame."""
        self.output.method(channel, payload)
        self.frames_out += 1
        self.wrote()

    def method_with_content(self, int channel, bytes payload not None, Message message not None):
        """Send a method and the content that belongs to it."""
        self.output.method(channel, payload)
        self.frames_out += 1
        self.output.reserve(self.content_size(message))
        self.write_content(channel, message)
        self.wrote()

    def raw(self, bytes data not None):
        """Send bytes that are no frame: the protocol header."""
        self.output.write(data)
        self.wrote()

    @property
    def now_ms(self):
        """The time of the current turn."""
        return self.turn.now_ms

    @property
    def pending_bytes(self):
        return self.output.pending()
