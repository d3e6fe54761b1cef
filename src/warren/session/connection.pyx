"""One client connection: bytes in; engine calls and bytes out. No socket, no clock.

`take` is given whatever has been read and consumes all whole frames in it. Publishing and
acknowledging go straight to the channel's compiled methods; every other method is decoded and given
to a handler in `dispatch`. An error raised anywhere below becomes channel.close or connection.close
here, in `fail`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from warren.model.ports cimport LinkPort
from warren.session.channel cimport SETTLE_ACK, Channel
from warren.session.outlet cimport UNREAD_BYTES_MAX, Outlet
from warren.wire.octets cimport load16, load32, load64

from functools import partial

from warren.model.errors import (
    AmqpError, ChannelNumberError, CommandInvalid, FrameError, Postponed, UnexpectedFrame,
    WireSyntaxError,
)
from warren.session.channel import share_room
from warren.session.dispatch import CHANNEL_HANDLERS, CONNECTION_HANDLERS, OPENING_METHODS
from warren.session.states import STATE_NAMES
from warren.wire.constants import PROTOCOL_HEADER
from warren.wire.methods import decode_method, encode_method
from warren.wire.spec import BY_NAME, METHODS

cdef enum:
    BASIC_PUBLISH = 0x003C0028
    BASIC_ACK = 0x003C0050
    CHANNEL_OPEN = 0x0014000A
    CHANNEL_CLOSE = 0x00140028
    CHANNEL_CLOSE_OK = 0x00140029
    CONNECTION_CLOSE = 0x000A0032
    CONNECTION_CLOSE_OK = 0x000A0033
    GREETING_BYTES = 8
    # Methods dealt with in a turn, publishes and acks not counted: some 10 ms.
    TURN_METHODS = 512


@cython.final
cdef class Connection:
    """See the module's text."""

    def __init__(self, engine, LinkPort link not None, uint32_t initial_frame_max=8192):
        self.engine = engine
        self.effects = engine.effects
        self.outlet = Outlet(link, engine.turn)
        self.frame_limit = initial_frame_max
        self.channels = {}
        self.channel_max = 0
        self.client_properties = {}
        self.capabilities = {}
        self.exclusive_queues = set()
        self.user = ""
        self.mechanism = ""
        self.token = ""
        self.name = ""

    # -- bytes in ----------------------------------------------------------------------------------

    cdef Py_ssize_t take(self, const uint8_t* data, Py_ssize_t n, int64_t now_ms) except -1:
        """Consumes whole frames; how many bytes that were. The rest must come again, with more.

        Whole frames are left over when the client does not read our answers, and when it asks for
        so much at once that others would wait: then `budget` is used up, and it must come again.
        """
        cdef Py_ssize_t at = 0
        self.outlet.turn.now_ms = now_ms
        self.budget = TURN_METHODS
        if self.state == AWAIT_GREETING:
            if n < GREETING_BYTES:
                if memcmp(data, b"AMQP\0\0\x09\x01", n) != 0:
                    self.refuse_greeting()
                    return n
                return 0
            if memcmp(data, b"AMQP\0\0\x09\x01", GREETING_BYTES) != 0:
                self.refuse_greeting()
                return n
            at = GREETING_BYTES
            self.engine.start_connection(self)
        at = self.take_frames(data, n, at)
        self.bytes_in += at
        self.end_turn()
        return at

    cdef Py_ssize_t take_frames(self, const uint8_t* data, Py_ssize_t n, Py_ssize_t at) except -1:
        cdef uint32_t size = 0
        cdef int number = 0
        cdef Py_ssize_t started = -1   # where the frame being dealt with begins
        while True:
            try:
                while n - at >= 7:
                    started = -1
                    if self.state == CLOSED:
                        return n
                    if self.waiting:
                        return at
                    # A short request can ask for a long answer: the rest waits until it is read.
                    if self.budget <= 0 or self.outlet.output.pending() > UNREAD_BYTES_MAX:
                        return at
                    number = load16(data + at + 1)
                    size = load32(data + at + 3)
                    # Some clients count the payload only: they are forgiven eight bytes.
                    if size > self.frame_limit:
                        at = n
                        raise FrameError(f"frame of {size} bytes is longer than frame_max allows")
                    if n - at < <Py_ssize_t>size + 8:
                        return at
                    if data[at + 7 + size] != 0xCE:
                        at = n
                        raise FrameError(f"frame does not end with {0xCE}")
                    started = at
                    at += size + 8
                    self.frames_in += 1
                    self.on_frame(data[started], number, data + started + 7, size)
                return at
            except Postponed as later:
                # The same frame comes again when it can be answered.
                self.postpone(later)
                return started
            except AmqpError as error:
                if started >= 0 and error.class_id == 0:
                    self.blame(error, data[started], data + started + 7, size)
                self.fail(error, number)

    cdef int blame(self, error, int kind, const uint8_t* p, uint32_t n) except -1:
        """Names the method that led to an error: a content frame belongs to a publish."""
        cdef uint32_t key = BASIC_PUBLISH
        if kind == 1:
            key = load32(p) if n >= 4 else 0
        if key in METHODS and (kind <= 3):
            error.class_id, error.method_id = key >> 16, key & 0xFFFF
        return 0

    cdef int on_frame(self, int kind, int number, const uint8_t* p, uint32_t n) except -1:
        cdef Channel channel
        if kind == 1:
            return self.on_method(number, p, n)
        if kind == 2 or kind == 3:
            channel = self.channel_for(number, True)
            if channel is None:
                return 0
            return channel.on_header(p, n) if kind == 2 else channel.on_body(p, n)
        if kind == 8:
            if number != 0:
                raise UnexpectedFrame("heartbeat frames have no place on a channel")
            if n != 0:
                raise FrameError("heartbeat frames are empty")
            return 0
        raise FrameError(f"unknown frame type {kind}")

    cdef Channel channel_for(self, int number, bint content):
        """The open channel of a frame; None when the frame is to be ignored."""
        cdef Channel channel = None
        if self.state == CLOSING:
            return None
        if number == 0:
            if content:
                raise UnexpectedFrame("content frames have no place on channel 0")
            raise self.misplaced()
        if self.state != RUNNING:
            raise UnexpectedFrame("the connection is not open yet")
        channel = self.find_channel(number)
        if channel is None:
            raise ChannelNumberError("expected 'channel.open'")
        return None if channel.closing else channel

    cdef Channel find_channel(self, int number):
        if self.last_channel is None or self.last_channel.number != number:
            self.last_channel = <Channel>self.channels.get(number)
        return self.last_channel

    @property
    def channel_count(self):
        return len(self.channels)

    cdef int on_method(self, int number, const uint8_t* p, uint32_t n) except -1:
        cdef Channel channel
        cdef uint32_t key
        if n < 4:
            raise FrameError("method frame is cut short")
        key = load32(p)
        if key == BASIC_PUBLISH:
            channel = self.channel_for(number, False)
            if channel is None:
                return 0
            self.published_now = True
            return channel.on_publish(p + 4, n - 4)
        if key == BASIC_ACK and n == 13:
            channel = self.channel_for(number, False)
            if channel is None:
                return 0
            if not channel.content_pending and channel.transaction is None:
                return channel.settle(load64(p + 4), p[12] & 1, SETTLE_ACK)
        self.budget -= 1
        self.dispatch(number, key, PyBytes_FromStringAndSize(<char*>p, n))
        return 0

    def dispatch(self, int number, uint32_t key, bytes payload not None):
        """All methods but the two hot ones."""
        cdef Channel channel
        if number == 0:
            if self.state == CLOSING and key != CONNECTION_CLOSE and key != CONNECTION_CLOSE_OK:
                return
            self.call(CONNECTION_HANDLERS, self, key, payload)
            return
        if key == CHANNEL_OPEN:
            if self.state != CLOSING:
                self.open_channel(number, payload)
            return
        channel = self.find_channel(number)
        if channel is not None:
            if channel.closing:
                if key == CHANNEL_CLOSE_OK:
                    self.drop_channel(number)
                elif key == CHANNEL_CLOSE:
                    # Two closes have crossed. The client still owes the answer to ours, but one
                    # that thinks it need not give it may take the number again.
                    self.outlet.method(number, encode_method(BY_NAME["channel.close-ok"]))
                    channel.close_crossed = True
                return
        channel = self.channel_for(number, False)
        if channel is None:
            return
        if channel.content_pending:
            channel.unexpected()
        self.call(CHANNEL_HANDLERS, channel, key, payload)

    def decode(self, bytes payload not None):
        """The method in a frame; one that cannot be read makes the frame a bad one."""
        try:
            return decode_method(payload)
        except WireSyntaxError as error:
            raise FrameError(error.explanation) from None

    def misplaced(self):
        """The error for a method that channel 0 does not take in this state."""
        return ChannelNumberError(
            f"unexpected method in connection state {STATE_NAMES[self.state]}")

    def call(self, dict handlers, target, uint32_t key, bytes payload):
        method, arguments = self.decode(payload)
        handler = handlers.get(key)
        if target is self and not OPENING_METHODS.get(key, 0) >> self.state & 1:
            raise self.misplaced()
        if handler is None:
            raise CommandInvalid(f"unexpected method {method.name}")
        journal = self.engine.journal
        written = 0 if journal is None else journal.appended
        try:
            reply = handler(target, *arguments)
        except AmqpError as error:
            error.class_id, error.method_id = method.class_id, method.method_id
            raise
        if reply is not None:
            name, *values = reply
            number = 0 if target is self else target.number
            payload = encode_method(BY_NAME[name], *values)
            if journal is not None and journal.appended != written:
                # What was done must be on the disk before the client hears that it was.
                self.wait(journal.appended, partial(self.answer, target, payload))
            else:
                self.outlet.method(number, payload)

    def wait(self, uint64_t mark, action):
        """Take nothing more from the client until the log has come so far."""
        self.waiting = True
        self.engine.journal.when_persisted(mark, action)

    def postpone(self, later):
        """Take nothing more from the client until its last frame can be answered."""
        if later.errand is None:
            self.wait(later.mark, self.resume)
        else:
            self.waiting = True
            self.errand = later.errand
            # Not at once: the errand may end while the bytes of somebody else are being read.
            later.errand.when_done(partial(self.engine.resuming.append, self.resume))

    def answer(self, target, bytes payload not None):
        """What a method did is on the disk: say so, if there is still somebody to hear it."""
        if target is self:
            if self.state < CLOSING:
                self.outlet.method(0, payload)
        elif self.state == RUNNING and not target.closing:
            self.outlet.method(target.number, payload)
        self.resume()

    def resume(self):
        self.waiting = False
        self.outlet.link.go_on()

    cdef int end_turn(self) except -1:
        """All that was read is dealt with: confirms go out, alarms take hold."""
        cdef Channel channel
        if self.outlet.confirming:
            for channel in self.outlet.confirming:
                channel.flush_confirms()
            self.outlet.confirming.clear()
        if self.published_now:
            self.published_now = False
            if self.engine.alarms:
                self.engine.block_publisher(self)
        if self.effects.pending:
            self.engine.run_effects()
        return 0

    def receive(self, bytes data not None, int64_t now_ms):
        """`take` for Python callers."""
        return self.take(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), now_ms)

    def refuse_greeting(self):
        """Not our protocol: answer with the one we speak and hang up."""
        self.outlet.raw(PROTOCOL_HEADER)
        self.finish()

    # -- channels ----------------------------------------------------------------------------------

    def open_channel(self, int number, bytes payload not None):
        self.decode(payload)
        if self.state != RUNNING:
            raise UnexpectedFrame("the connection is not open yet")
        existing = self.find_channel(number)
        if existing is not None and existing.close_crossed:
            self.drop_channel(number)
            existing = None
        if existing is not None:
            raise ChannelNumberError("second 'channel.open' seen")
        self.engine.check_channel(self)
        channel = self.engine.make_channel(self, number)
        self.channels[number] = channel
        self.send(number, "channel.open-ok", b"")

    def drop_channel(self, int number):
        """The channel is over on both sides: its number is free again."""
        if self.last_channel is not None and self.last_channel.number == number:
            self.last_channel = None
        self.channels.pop(number, None)

    def forget_channels(self):
        """The connection is over: nothing of it may keep it in memory."""
        self.channels.clear()
        self.last_channel = None

    def open_channels(self):
        """All channels, those waiting for close-ok too."""
        return list(self.channels.values())

    # -- errors and endings ------------------------------------------------------------------------

    def fail(self, error, int number):
        """One error: the channel's, or the whole connection's when there is no channel to blame."""
        cdef Channel channel = None
        if number:
            channel = self.find_channel(number)
        if error.closes_connection or channel is None or self.state != RUNNING:
            self.close(error)
            return
        channel.tell_confirms()
        self.engine.log_channel_error(channel, error)
        self.send(number, "channel.close", error.reply_code, error.reply_text,
                  error.class_id, error.method_id)
        channel.closing = True
        self.engine.end_channel(channel)

    def close(self, error):
        """Close the connection from our side and say why."""
        if self.state >= CLOSING:
            return
        self.engine.log_connection_error(self, error)
        self.close_reason = error
        if self.state == AWAIT_START_OK and error.reply_code == 403 and (
                not self.capabilities.get("authentication_failure_close")):
            # Older clients take a close frame during login for a fault: they get a closed socket.
            self.finish()
            return
        self.send(0, "connection.close", error.reply_code, error.reply_text,
                  error.class_id, error.method_id)
        early = self.state < RUNNING
        self.state = CLOSING
        self.release()
        if early and error.reply_code != 403 and error.reply_code != 530:
            self.finish()

    def release(self):
        """Give back everything the engine holds for this connection."""
        if self.on_end is not None:
            on_end, self.on_end = self.on_end, None
            on_end(self)

    def finish(self):
        """Nothing more will be read or written but what is in the buffer."""
        if self.state != CLOSED:
            self.state = CLOSED
            self.release()
            self.outlet.link.want_flush()

    def send(self, int number, str name not None, *arguments):
        self.outlet.method(number, encode_method(BY_NAME[name], *arguments))

    def became_writable(self):
        """The peer has read enough of what was stalled: deliveries go on."""
        self.outlet.writable = True
        self.wake_from += 1
        consumers = []
        for channel in self.open_channels():
            if not (<Channel>channel).closing:
                consumers.extend((<Channel>channel).consumers.values())
        share_room(consumers, self.wake_from, self.outlet.turn.now_ms)

    def accept_frames(self, uint32_t frame_max):
        """The handshake settled the frame size, both ways."""
        self.frame_limit = frame_max
        self.outlet.frame_max = frame_max
