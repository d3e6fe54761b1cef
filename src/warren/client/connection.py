"""A connection to a broker with one channel, on asyncio.

It does what shovels need: declare, consume, publish with confirms, settle; and it tells why it
ended. Deliveries and verdicts on publishes come as calls; who is called must not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import warren
from warren.client.address import BrokerAddress
from warren.client.frames import (
    HEARTBEAT,
    BrokenFrame,
    FrameReader,
    content_frames,
    method_frame,
)
from warren.wire.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER
from warren.wire.methods import decode_method

CHANNEL = 1
CONNECT_S = 15.0
#: How long a broker may take to answer a method.
ANSWER_S = 60.0
#: ... and to say goodbye.
GOODBYE_S = 5.0
FRAME_MAX = 131_072
_SIZE = struct.Struct(">Q")
_CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
_PROPERTIES = {
    "product": "Warren",
    "version": warren.__version__,
    "platform": "Python",
    "capabilities": _CAPABILITIES,
}


class ClientError(Exception):
    """The broker refused something, or the connection is over; the text says which."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message from a queue."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    #: The payload of its header frame, as it came.
    header: bytes
    body: bytes


class ClientConnection(asyncio.Protocol):
    """See the module's text; made by `connect`."""

    def __init__(self, address: BrokerAddress, name: str) -> None:
        self.address = address
        self.name = name
        #: Called with each Delivery.
        self.on_delivery: Callable[[Delivery], None] = lambda _: None
        #: Called with (tag, multiple, accepted) for publishes.
        self.on_verdict: Callable[[int, bool, bool], None] = lambda *_: None
        #: Called when no queue took a mandatory message: with the text of the reason.
        self.on_return: Callable[[str], None] = lambda _: None
        #: Called when the broker has cancelled the consumer.
        self.on_cancel: Callable[[], None] = lambda: None
        #: Done when the connection is over; its result is the reason in words.
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.is_blocked = False
        self.frame_max = 4096
        self.server_properties: dict[str, Any] = {}
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: list[tuple[frozenset[str], asyncio.Future[tuple[Any, ...]]]] = []
        self._begun: tuple[str, tuple[Any, ...]] | None = None
        self._header = b""
        self._size = 0
        self._pieces: list[bytes] = []
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._beats: asyncio.Task[None] | None = None
        self._heard = False

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are such transports too, and no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1024 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection was lost: {exc}" if exc else "the broker hung up")

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            for kind, channel, payload in self._reader.feed(data):
                self._take(kind, channel, payload)
        except BrokenFrame as error:
            self._end(str(error))

    # -- what comes --------------------------------------------------------------------------------

    def _take(self, kind: int, _channel: int, payload: bytes) -> None:
        if kind == FRAME_METHOD:
            method, arguments = decode_method(payload)
            if method.content:
                self._begun, self._pieces, self._size = (method.name, arguments), [], -1
            else:
                self._on_method(method.name, arguments)
        elif kind == FRAME_HEADER and self._begun is not None:
            self._header = payload
            self._size = _SIZE.unpack_from(payload, 4)[0]
            self._finish_content()
        elif kind == FRAME_BODY and self._begun is not None:
            self._pieces.append(payload)
            self._finish_content()

    def _finish_content(self) -> None:
        if self._begun is None or sum(map(len, self._pieces)) < self._size:
            return
        (name, arguments), body = self._begun, b"".join(self._pieces)
        self._begun = None
        if name == "basic.deliver":
            _, tag, redelivered, exchange, key = arguments
            self.on_delivery(Delivery(tag, bool(redelivered), exchange, key, self._header, body))
        elif name == "basic.return":
            self.on_return(f"{arguments[0]} {arguments[1]}")
        elif name == "basic.get-ok":
            tag, redelivered, exchange, key, _ = arguments
            found = Delivery(tag, bool(redelivered), exchange, key, self._header, body)
            self._answer(name, (found,))

    def _on_method(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in {"basic.ack", "basic.nack"}:
            self.on_verdict(arguments[0], bool(arguments[1]), name == "basic.ack")
        elif name == "basic.cancel":
            self.on_cancel()
        elif name == "channel.close":
            self._on_channel_close(f"{arguments[0]} {arguments[1]}")
        elif name == "connection.close":
            self.write(method_frame(0, "connection.close-ok"))
            self._end(f"{arguments[0]} {arguments[1]}")
        elif name in {"connection.blocked", "connection.unblocked"}:
            self.is_blocked = name == "connection.blocked"
        else:
            self._answer(name, arguments)

    def _on_channel_close(self, reason: str) -> None:
        """What waits for an answer is refused; without such, it is the end of the connection."""
        self.write(method_frame(CHANNEL, "channel.close-ok"))
        if not self._waiting:
            self._end(reason)
            return
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(ClientError(reason))

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> None:
        for at, (names, future) in enumerate(self._waiting):
            if name in names:
                del self._waiting[at]
                if not future.done():
                    future.set_result((name, *arguments))
                return

    def _end(self, reason: str) -> None:
        if self.ended.done():
            return
        self.ended.set_result(reason)
        self._may_write.set()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ClientError(reason))
        self._waiting.clear()
        if self._beats is not None:
            self._beats.cancel()
        if self._transport is not None:
            self._transport.close()

    # -- what goes ---------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens when the connection is over."""
        if self._transport is not None and not self.ended.done():
            self._transport.write(data)

    async def drain(self) -> None:
        """Until the broker has taken enough for more to be sent."""
        await self._may_write.wait()

    async def call(self, name: str, *arguments: Any, answers: tuple[str, ...] = ()) -> Any:
        """A method that is answered: (name, arguments ...) of the answer. Raises ClientError."""
        channel = 0 if name.startswith("connection.") else CHANNEL
        return await self._ask(method_frame(channel, name, *arguments), answers or (f"{name}-ok",))

    async def _ask(self, data: bytes, answers: tuple[str, ...]) -> Any:
        if self.ended.done():
            raise ClientError(self.ended.result())
        future: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append((frozenset(answers), future))
        self.write(data)
        try:
            # Not `wait_for`, which forgets that it was cancelled when the answer comes just then.
            async with asyncio.timeout(ANSWER_S):
                return await future
        except TimeoutError:
            self._end(f"the broker did not answer in {ANSWER_S:.0f} s")
            raise ClientError(self.ended.result()) from None

    async def open(self) -> None:
        """The handshake, and the channel. Raises ClientError."""
        address = self.address
        start = await self._ask(PROTOCOL_HEADER, ("connection.start",))
        self.server_properties = dict(start[3])
        mechanisms = bytes(start[4]).split() if isinstance(start[4], bytes) else start[4].split()
        wanted = address.settings.get("auth_mechanism", "plain").upper()
        if wanted not in {m.decode() if isinstance(m, bytes) else m for m in mechanisms}:
            self.abort(f"the broker does not offer {wanted}")
            raise ClientError(f"the broker does not offer {wanted}")
        response = f"\0{address.user}\0{address.password}" if wanted == "PLAIN" else ""
        properties = {**_PROPERTIES, "connection_name": self.name}
        tune = await self._ask(
            method_frame(0, "connection.start-ok", properties, wanted, response, "en_US"),
            ("connection.tune", "connection.secure"),
        )
        if tune[0] != "connection.tune":
            self.abort(f"the broker asks for more than {wanted} has")
            raise ClientError(f"the broker asks for more than {wanted} has")
        _, channel_max, frame_max, _ = tune
        self.frame_max = min(frame_max or FRAME_MAX, FRAME_MAX)
        beat_s = address.heartbeat_s
        self.write(method_frame(0, "connection.tune-ok", channel_max, self.frame_max, beat_s))
        await self.call("connection.open", address.vhost, "", False)
        if beat_s:
            self._beats = asyncio.get_running_loop().create_task(self._beat(beat_s))
        await self.call("channel.open", "")

    async def _beat(self, interval_s: int) -> None:
        """Heartbeats both ways: two intervals without a byte are the end."""
        silent = 0
        while True:
            await asyncio.sleep(interval_s / 2)
            self.write(HEARTBEAT)
            silent = 0 if self._heard else silent + 1
            self._heard = False
            if silent >= 4:
                self._end(f"nothing was heard of the broker for {2 * interval_s} s")
                return

    def publish(
        self, exchange: str, key: str, header: bytes, body: bytes, mandatory: bool = False
    ) -> None:
        """Send a message; `header` is the payload of a header frame."""
        self.write(
            method_frame(CHANNEL, "basic.publish", 0, exchange, key, mandatory, False)
            + content_frames(CHANNEL, header, body, self.frame_max)
        )

    async def reopen(self) -> None:
        """Open the channel again, after the broker has closed it with a refusal."""
        await self.call("channel.open", "")

    def pause_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self.ended.done():
            self._transport.resume_reading()

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.write(method_frame(CHANNEL, "basic.ack", tag, multiple))

    def reject(self, tag: int, requeue: bool) -> None:
        self.write(method_frame(CHANNEL, "basic.reject", tag, requeue))

    async def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """The next message of a queue; None when there is none. Raises ClientError."""
        found = await self.call(
            "basic.get", 0, queue, no_ack, answers=("basic.get-ok", "basic.get-empty")
        )
        return found[1] if found[0] == "basic.get-ok" else None

    async def close(self) -> None:
        """Say goodbye, and wait a moment for the answer."""
        if not self.ended.done():
            with contextlib.suppress(ClientError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self.call("connection.close", 200, "Goodbye", 0, 0)
        self.abort("closed")

    def abort(self, reason: str) -> None:
        """End it at once."""
        self._end(reason)


async def connect(
    address: BrokerAddress, name: str, host: str | None = None, port: int | None = None
) -> ClientConnection:
    """Connect and log in. Raises ClientError; no text of it holds a password."""
    connection: ClientConnection | None = None

    def make() -> ClientConnection:
        nonlocal connection
        connection = ClientConnection(address, name)
        return connection

    context = _tls_context(address) if address.tls else None
    where = (host or address.host or "127.0.0.1", port or address.port)
    server_name = address.settings.get("server_name_indication") or where[0]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            await loop.create_connection(
                make, *where, ssl=context, server_hostname=server_name if context else None
            )
            assert connection is not None
            await connection.open()
    except TimeoutError:
        _give_up(connection)
        raise ClientError(f"{address.shown} did not answer in {CONNECT_S:.0f} s") from None
    except OSError as error:
        _give_up(connection)
        raise ClientError(f"{address.shown} cannot be reached: {_words(error)}") from None
    except ClientError as error:
        _give_up(connection)
        raise ClientError(f"{address.shown} refuses the connection: {error}") from None
    except BaseException:
        _give_up(connection)
        raise
    return connection


def _give_up(connection: ClientConnection | None) -> None:
    if connection is not None:
        connection.abort("given up")


def _words(error: OSError) -> str:
    return str(error.strerror or error)


def _tls_context(address: BrokerAddress) -> ssl.SSLContext:
    """Raises ClientError when certificates cannot be read."""
    settings = address.settings
    try:
        context = ssl.create_default_context(cafile=settings.get("cacertfile"))
        if settings.get("verify") == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "certfile" in settings:
            context.load_cert_chain(
                settings["certfile"], settings.get("keyfile"), settings.get("password")
            )
    except (OSError, ssl.SSLError) as error:
        raise ClientError(f"the certificates of {address.shown} cannot be used: {error}") from None
    return context
