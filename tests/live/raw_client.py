"""A small blocking AMQP client that hides nothing: every frame is seen, in order, as it came.

For what ordinary clients keep from their users: exact close codes, the order of frames, confirms,
returns. It talks to any broker of the family, so a test that uses it alone can be run on RabbitMQ.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from warren.wire.constants import FRAME_END, PROTOCOL_HEADER
from warren.wire.methods import decode_method, encode_method
from warren.wire.properties import decode_properties, encode_properties
from warren.wire.spec import BY_NAME
from warren.wire.tables import encode_table

#: What this client says it understands.
CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}
TIMEOUT_S = 30.0
#: How long a test listens to be sure that nothing comes.
SILENCE_S = 0.1
_ZEROES: dict[str, Any] = {"shortstr": "", "longstr": b"", "table": {}, "bit": False}


class Closed(NamedTuple):
    """What the broker refused something with."""

    scope: str
    code: int
    text: str


class SocketClosedError(Exception):
    """The broker ended the connection without a word."""


@dataclass
class Frame:
    """One method with its content, if it has one."""

    channel: int
    name: str
    values: dict[str, Any]
    header: bytes = b""
    body: bytes = b""
    properties: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def headers(self) -> dict[str, Any]:
        found: dict[str, Any] = self.properties.get("headers", {})
        return found


def encode(name: str, **values: Any) -> bytes:
    """A method's payload; arguments not given are zero or empty."""
    method = BY_NAME[name]
    unknown = values.keys() - {field_name for field_name, _ in method.fields}
    if unknown:
        raise TypeError(f"{name} has no {unknown}")
    arguments = [values.get(key, _ZEROES.get(kind, 0)) for key, kind in method.fields]
    return encode_method(method, *arguments)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """The octets of one frame."""
    head = bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + bytes([FRAME_END])


class RawConnection:
    """One socket; `handshake` makes it a connection."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket: socket.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.frame_max = 131072
        self.heartbeats = 0
        self.start: Frame | None = None
        self.tune: Frame | None = None
        self._buffer = b""
        self._inbox: list[Frame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop()

    def drop(self) -> None:
        """End the connection without a word."""
        self.socket.close()

    # -- the handshake -----------------------------------------------------------------------------

    def greet(self) -> Frame:
        """Send the protocol header; the broker's connection.start."""
        self.socket.sendall(PROTOCOL_HEADER)
        self.start = self.expect(0, "connection.start")
        return self.start

    def start_ok(
        self,
        user: str = "guest",
        password: str = "guest",
        mechanism: str = "PLAIN",
        capabilities: dict[str, bool] | None = None,
        response: bytes | None = None,
    ) -> None:
        """Answer connection.start."""
        if response is None and mechanism == "AMQPLAIN":
            response = encode_table({"LOGIN": user, "PASSWORD": password})
        elif response is None:
            response = f"\0{user}\0{password}".encode()
        shown = CAPABILITIES if capabilities is None else capabilities
        self.send(
            0,
            "connection.start-ok",
            client_properties={"product": "raw", "capabilities": shown},
            mechanism=mechanism,
            response=response,
            locale="en_US",
        )

    def handshake(
        self,
        vhost: str = "/",
        *,
        channel_max: int | None = None,
        frame_max: int | None = None,
        heartbeat: int = 0,
        **login: Any,
    ) -> Self:
        """All of it, up to connection.open-ok."""
        self.greet()
        self.start_ok(**login)
        self.tune = self.expect(0, "connection.tune")
        self.frame_max = frame_max or self.tune.frame_max
        self.send(
            0,
            "connection.tune-ok",
            channel_max=self.tune.channel_max if channel_max is None else channel_max,
            frame_max=self.frame_max,
            heartbeat=heartbeat,
        )
        self.send(0, "connection.open", virtual_host=vhost)
        self.expect(0, "connection.open-ok")
        return self

    # -- frames ------------------------------------------------------------------------------------

    def send(self, channel: int, name: str, **values: Any) -> None:
        self.socket.sendall(frame(1, channel, encode(name, **values)))

    def send_content(
        self, channel: int, properties: dict[str, Any], body: bytes, chunk: int | None = None
    ) -> None:
        limit = chunk or self.frame_max - 8
        octets = frame(2, channel, encode_properties(properties, len(body)))
        for at in range(0, len(body), limit):
            octets += frame(3, channel, body[at : at + limit])
        self.socket.sendall(octets)

    def _read_frame(self, deadline: float) -> tuple[int, int, bytes]:
        while True:
            if len(self._buffer) >= 7:
                size = int.from_bytes(self._buffer[3:7], "big")
                if len(self._buffer) >= size + 8:
                    head, payload = self._buffer[:7], self._buffer[7 : 7 + size]
                    assert self._buffer[7 + size] == FRAME_END
                    self._buffer = self._buffer[8 + size :]
                    return head[0], int.from_bytes(head[1:3], "big"), payload
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame came")
            self.socket.settimeout(left)
            try:
                more = self.socket.recv(262144)
            except ConnectionError as error:
                raise SocketClosedError from error
            if not more:
                raise SocketClosedError
            self._buffer += more

    def read(self, timeout_s: float = TIMEOUT_S) -> Frame:
        """The next method with its content, of whatever channel."""
        deadline = time.monotonic() + timeout_s
        while True:
            kind, channel, payload = self._read_frame(deadline)
            if kind == 8:
                self.heartbeats += 1
                continue
            method, arguments = decode_method(payload)
            keys = [key for key, _ in method.fields]
            found = Frame(channel, method.name, dict(zip(keys, arguments, strict=True)))
            if method.content:
                self._read_content(found, time.monotonic() + TIMEOUT_S)
            return found

    def _read_content(self, found: Frame, deadline: float) -> None:
        kind, channel, payload = self._read_frame(deadline)
        assert (kind, channel) == (2, found.channel)
        found.header = payload
        found.properties = decode_properties(payload)
        size = int.from_bytes(payload[4:12], "big")
        chunks: list[bytes] = []
        while size:
            kind, channel, payload = self._read_frame(deadline)
            assert (kind, channel) == (3, found.channel)
            chunks.append(payload)
            size -= len(payload)
        found.body = b"".join(chunks)

    def next(self, channel: int, timeout_s: float = TIMEOUT_S) -> Frame:
        """The next frame on one channel, or on channel 0; those of others are kept for later."""
        for i, waiting in enumerate(self._inbox):
            if waiting.channel in {channel, 0}:
                return self._inbox.pop(i)
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.read(max(0.0, deadline - time.monotonic()))
            if found.channel in {channel, 0}:
                return found
            self._inbox.append(found)

    def expect(self, channel: int, name: str, timeout_s: float = TIMEOUT_S) -> Frame:
        """The next frame on a channel, which has to be this."""
        found = self.next(channel, timeout_s)
        assert found.name == name, f"{name} expected, got {found}"
        return found

    def closed(self, channel: int = 0) -> Closed:
        """The refusal that must come next on a channel, answered as the protocol wants it."""
        while True:
            found = self.next(channel)
            if found.name in {"channel.close", "connection.close"}:
                break
        self.send(found.channel, f"{found.name}-ok")
        return Closed(found.name.split(".")[0], found.reply_code, found.reply_text)

    def channel(self, number: int = 1) -> RawChannel:
        """Open a channel."""
        self.send(number, "channel.open")
        self.expect(number, "channel.open-ok")
        return RawChannel(self, number)

    def close(self) -> None:
        """End the connection as the protocol wants it."""
        self.send(0, "connection.close", reply_code=200)
        self.expect(0, "connection.close-ok")
        self.drop()


class RawChannel:
    """One channel of a raw connection."""

    def __init__(self, connection: RawConnection, number: int) -> None:
        self.connection = connection
        self.number = number

    def send(self, name: str, **values: Any) -> None:
        self.connection.send(self.number, name, **values)

    def next(self, timeout_s: float = TIMEOUT_S) -> Frame:
        return self.connection.next(self.number, timeout_s)

    def expect(self, name: str, timeout_s: float = TIMEOUT_S) -> Frame:
        return self.connection.expect(self.number, name, timeout_s)

    def call(self, name: str, **values: Any) -> Frame:
        """Send a method; its `-ok`, which must be what comes next."""
        self.send(name, **values)
        return self.expect(f"{name}-ok")

    def refused(self, name: str, **values: Any) -> Closed:
        """Send a method that must be refused."""
        self.send(name, **values)
        return self.connection.closed(self.number)

    def quiet(self, timeout_s: float = SILENCE_S) -> bool:
        """Whether nothing comes for a moment."""
        try:
            found = self.next(timeout_s)
        except TimeoutError:
            return True
        raise AssertionError(f"nothing expected, got {found}")

    # -- shorthands --------------------------------------------------------------------------------

    def declare(self, queue: str = "", /, arguments: Any = None, **flags: Any) -> str:
        """Declare a queue; its name."""
        found = self.call("queue.declare", queue=queue, arguments=arguments or {}, **flags)
        name: str = found.queue
        return name

    def exchange(
        self, name: str, kind: str = "direct", /, arguments: Any = None, **flags: Any
    ) -> None:
        self.call("exchange.declare", exchange=name, type=kind, arguments=arguments or {}, **flags)

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Any = None) -> None:
        self.call(
            "queue.bind",
            queue=queue,
            exchange=exchange,
            routing_key=key,
            arguments=arguments or {},
        )

    def depth(self, queue: str) -> int:
        """Ready messages."""
        count: int = self.call("queue.declare", queue=queue, passive=True).message_count
        return count

    def wait_depth(self, queue: str, count: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until so many messages are ready."""
        deadline = time.monotonic() + timeout_s
        while (found := self.depth(queue)) != count:
            assert time.monotonic() < deadline, f"{found} messages in {queue}, not {count}"
            time.sleep(0.005)

    def publish(
        self,
        key: str,
        body: bytes = b"",
        exchange: str = "",
        *,
        mandatory: bool = False,
        chunk: int | None = None,
        **properties: Any,
    ) -> None:
        self.send("basic.publish", exchange=exchange, routing_key=key, mandatory=mandatory)
        self.connection.send_content(self.number, properties, body, chunk)

    def publish_refused(
        self, key: str, body: bytes = b"", exchange: str = "", **more: Any
    ) -> Closed:
        """Publish something that must be refused."""
        self.publish(key, body, exchange, **more)
        return self.connection.closed(self.number)

    def get(self, queue: str, *, no_ack: bool = True) -> Frame | None:
        """basic.get; None from an empty queue."""
        self.send("basic.get", queue=queue, no_ack=no_ack)
        found = self.next()
        if found.name == "basic.get-empty":
            return None
        assert found.name == "basic.get-ok", found
        return found

    def wait_get(self, queue: str, *, no_ack: bool = True, timeout_s: float = TIMEOUT_S) -> Frame:
        """basic.get until there is a message."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.get(queue, no_ack=no_ack)
            if found is not None:
                return found
            assert time.monotonic() < deadline, f"no message in {queue}"
            time.sleep(0.005)

    def bodies(self, queue: str) -> list[bytes]:
        """Take all messages out of a queue."""
        found: list[bytes] = []
        while (message := self.get(queue)) is not None:
            found.append(message.body)
        return found

    def consume(self, queue: str, tag: str = "", *, arguments: Any = None, **flags: Any) -> str:
        """Start a consumer; its tag."""
        found = self.call(
            "basic.consume",
            queue=queue,
            consumer_tag=tag,
            arguments=arguments or {},
            **flags,
        )
        given: str = found.consumer_tag
        return given

    def delivery(self, timeout_s: float = TIMEOUT_S) -> Frame:
        return self.expect("basic.deliver", timeout_s)

    def deliveries(self, count: int) -> list[Frame]:
        return [self.delivery() for _ in range(count)]

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.send("basic.ack", delivery_tag=tag, multiple=multiple)

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self.send("basic.nack", delivery_tag=tag, multiple=multiple, requeue=requeue)

    def reject(self, tag: int, *, requeue: bool = False) -> None:
        self.send("basic.reject", delivery_tag=tag, requeue=requeue)

    def qos(self, count: int, *, shared: bool = False) -> None:
        self.call("basic.qos", prefetch_count=count, **{"global": shared})

    def close(self) -> None:
        self.send("channel.close", reply_code=200)
        while self.next().name != "channel.close-ok":
            pass
