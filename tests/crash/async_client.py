"""A small AMQP client for an event loop, made to be cut off: it loses no octet that was received.

Everything is handled as it arrives, in `data_received`, so confirms and deliveries that the kernel
still holds after the broker's end are seen too, and a lost connection ends every wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from warren.wire.constants import FRAME_END, PROTOCOL_HEADER
from warren.wire.methods import decode_method, encode_method
from warren.wire.properties import decode_properties, encode_properties
from warren.wire.spec import BY_NAME

_ZEROES: dict[str, Any] = {"shortstr": "", "longstr": b"", "table": {}, "bit": False}
_END = bytes([FRAME_END])
FRAME_MAX = 131072


class LostError(Exception):
    """The connection is gone."""


class RefusedError(Exception):
    """The broker closed the channel or the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class Content:
    """A method that carries a message: basic.deliver, basic.get-ok, basic.return."""

    __slots__ = ("body", "chunks", "left", "name", "properties", "values")

    def __init__(self, name: str, values: dict[str, Any]) -> None:
        self.name = name
        self.values = values
        self.properties: dict[str, Any] = {}
        self.body = b""
        self.chunks: list[bytes] = []
        self.left = -1


def method_frame(channel: int, name: str, **values: Any) -> bytes:
    """A method; arguments not given are zero or empty."""
    method = BY_NAME[name]
    arguments = [values.get(key, _ZEROES.get(kind, 0)) for key, kind in method.fields]
    return _frame(1, channel, encode_method(method, *arguments))


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    head = bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + _END


class AsyncChannel:
    """One channel: calls that are answered in order, and callbacks for what comes unasked."""

    def __init__(self, client: AsyncClient, number: int) -> None:
        self.client = client
        self.number = number
        self.on_message: Callable[[Content], None] = lambda _: None
        self.on_confirm: Callable[[int, bool, bool], None] = lambda _tag, _multiple, _ok: None
        self.on_closed: Callable[[], None] = lambda: None
        self.closed: Exception | None = None
        self._calls: deque[asyncio.Future[Any]] = deque()
        self._content: Content | None = None

    def send(self, name: str, **values: Any) -> None:
        self.client.write(method_frame(self.number, name, **values))

    def call(self, name: str, **values: Any) -> asyncio.Future[Any]:
        """Send a method that is answered; what answers it: its arguments, or a message."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        error = self.closed or self.client.ended
        if error is not None:
            future.set_exception(error)
        else:
            self._calls.append(future)
            self.send(name, **values)
        return future

    def publish(
        self, exchange: str, key: str, properties: dict[str, Any], body: bytes, mandatory: bool
    ) -> None:
        number = self.number
        parts = [
            method_frame(
                number, "basic.publish", exchange=exchange, routing_key=key, mandatory=mandatory
            ),
            _frame(2, number, encode_properties(properties, len(body))),
        ]
        step = FRAME_MAX - 8
        parts += [_frame(3, number, body[at : at + step]) for at in range(0, len(body), step)]
        self.client.write(b"".join(parts))

    # -- from the client ---------------------------------------------------------------------------

    def take_method(self, payload: bytes) -> None:
        method, arguments = decode_method(payload)
        values = {key: value for (key, _), value in zip(method.fields, arguments, strict=True)}
        name = method.name
        if method.content:
            self._content = Content(name, values)
        elif name in {"basic.ack", "basic.nack"}:
            self.on_confirm(values["delivery_tag"], values["multiple"], name == "basic.ack")
        elif name == "channel.close":
            self.send("channel.close-ok")
            self.fail(RefusedError(values["reply_code"], values["reply_text"]))
        elif name == "basic.cancel":
            self.fail(RefusedError(0, f"consumer {values['consumer_tag']} cancelled"))
        elif self._calls:
            self._answer(None if name == "basic.get-empty" else values)
        elif self.closed is None:
            raise AssertionError(f"{name} answers nothing")
        # Else the broker had closed the channel or the connection, and this came behind that.

    def take_header(self, payload: bytes) -> None:
        content = self._content
        assert content is not None
        content.properties = decode_properties(payload)
        content.left = int.from_bytes(payload[4:12], "big")
        self._finish(content)

    def take_body(self, payload: bytes) -> None:
        content = self._content
        assert content is not None
        content.chunks.append(payload)
        content.left -= len(payload)
        self._finish(content)

    def _finish(self, content: Content) -> None:
        if content.left:
            return
        content.body = b"".join(content.chunks)
        self._content = None
        if content.name == "basic.get-ok":
            # Seen at once: whoever waits for it may have been cancelled meanwhile.
            self.on_message(content)
            self._answer(content)
        else:
            self.on_message(content)

    def _answer(self, result: Any) -> None:
        future = self._calls.popleft()
        if not future.done():
            future.set_result(result)

    def fail(self, error: Exception) -> None:
        self.closed = self.closed or error
        for future in self._calls:
            if not future.done():
                future.set_exception(error)
                # A wait that was given up needs no answer.
                future.exception()
        self._calls.clear()
        self.on_closed()


class AsyncClient(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.ended: Exception | None = None
        self.lost = asyncio.Event()
        #: The broker is dead: nothing is written any more, and what it had sent is still read.
        self.muted = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._channels: dict[int, AsyncChannel] = {}
        self._free = 1

    @staticmethod
    async def connect(host: str, port: int) -> AsyncClient:
        """A connection, open.

        Raises:
            LostError: nothing listens, or it ended meanwhile.
        """
        try:
            _, client = await asyncio.get_running_loop().create_connection(AsyncClient, host, port)
        except OSError as error:
            raise LostError(str(error)) from error
        zero = client._channels[0] = AsyncChannel(client, 0)
        client.write(PROTOCOL_HEADER)
        await client._expect_unasked(zero)
        capabilities = {"publisher_confirms": True, "basic.nack": True}
        zero_answer = zero.call(
            "connection.start-ok",
            client_properties={"product": "crash", "capabilities": capabilities},
            mechanism="PLAIN",
            response=b"\0guest\0guest",
            locale="en_US",
        )
        await zero_answer
        zero.send("connection.tune-ok", channel_max=2047, frame_max=FRAME_MAX, heartbeat=0)
        await zero.call("connection.open", virtual_host="/")
        return client

    async def _expect_unasked(self, channel: AsyncChannel) -> None:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        channel._calls.append(future)
        if self.ended is not None:
            channel.fail(self.ended)
        await future

    async def channel(self) -> AsyncChannel:
        number, self._free = self._free, self._free + 1
        opened = self._channels[number] = AsyncChannel(self, number)
        await opened.call("channel.open")
        return opened

    async def close(self) -> None:
        """End the connection in the way the protocol has for it."""
        await self._channels[0].call("connection.close", reply_code=200)
        assert self._transport is not None
        self._transport.close()
        await self.lost.wait()

    def write(self, octets: bytes) -> None:
        transport = self._transport
        if transport is not None and not (self.muted or self.ended or transport.is_closing()):
            transport.write(octets)

    def mute(self) -> None:
        """Write no more: an error of writing would hide what is left to be read."""
        self.muted = True
        self._writable.set()

    async def writable(self) -> None:
        """Wait until the broker reads again.

        Raises:
            LostError: it never will.
        """
        await self._writable.wait()
        if self.ended is not None:
            raise self.ended
        if self.muted:
            raise LostError("the broker is dead")

    def drop(self) -> None:
        """End the connection without a word."""
        if self._transport is not None:
            self._transport.abort()

    # -- from the loop -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A transport of uvloop is one without being of the class.
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = self.ended or LostError(str(exc or "closed"))
        for channel in self._channels.values():
            channel.fail(self.ended)
        self._writable.set()
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        held = len(buffer)
        while held - at >= 8:
            size = int.from_bytes(buffer[at + 3 : at + 7], "big")
            end = at + 7 + size
            if held <= end:
                break
            assert buffer[end] == FRAME_END
            number = buffer[at + 1] << 8 | buffer[at + 2]
            self._take(buffer[at], number, bytes(buffer[at + 7 : end]))
            at = end + 1
        del buffer[:at]

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        channel = self._channels[number]
        if kind == 1:
            # connection.close: 10, 50
            if number == 0 and payload[:4] == b"\0\x0a\0\x32":
                _, (code, text, *_) = decode_method(payload)
                self.write(method_frame(0, "connection.close-ok"))
                error = RefusedError(code, text)
                for each in self._channels.values():
                    each.fail(error)
            else:
                channel.take_method(payload)
        elif kind == 2:
            channel.take_header(payload)
        elif kind == 3:
            channel.take_body(payload)


class Confirms:
    """The publishes of a channel that the broker has not answered yet."""

    def __init__(self, channel: AsyncChannel, confirmed: Callable[[Any], None]) -> None:
        self._channel = channel
        self._confirmed = confirmed
        self._waiting: dict[int, Any] = {}
        self._tag = 0
        self._moved = asyncio.Event()
        channel.on_confirm = self._take
        channel.on_closed = self._moved.set

    def add(self, item: Any) -> None:
        """The channel's next publish."""
        self._tag += 1
        self._waiting[self._tag] = item

    def _take(self, tag: int, multiple: bool, positive: bool) -> None:
        # The keys are in order: they are added in order, and removed alone or from the front.
        tags = [tag]
        if multiple:
            tags = [known for known in self._waiting if known <= tag]
        for known in tags:
            item = self._waiting.pop(known)
            if positive:
                self._confirmed(item)
        self._moved.set()

    async def fewer_than(self, count: int) -> None:
        """Wait until fewer publishes than this are unanswered.

        Raises:
            LostError, RefusedError: they never will be.
        """
        while len(self._waiting) >= count:
            if self._channel.closed is not None:
                raise self._channel.closed
            self._moved.clear()
            await self._moved.wait()
