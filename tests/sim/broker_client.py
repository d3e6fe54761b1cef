"""A client of a simulated broker: AMQP bytes to the product's own connection and back, late."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from warren.engine.connections import Peer
from warren.model.ports import LinkPort
from warren.session.connection import Connection
from warren.wire.constants import FRAME_END, PROTOCOL_HEADER
from warren.wire.methods import decode_method, encode_method
from warren.wire.properties import encode_properties
from warren.wire.spec import BY_NAME

if TYPE_CHECKING:
    from sim.broker_node import BrokerNode

PEER = Peer("127.0.0.1", 50000, "127.0.0.1", 5672, True)
CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}
#: A link goes on with what it has left unread after so long.
READ_ON_US = 10_000
_ZEROES: dict[str, Any] = {"shortstr": "", "longstr": b"", "table": {}, "bit": False}


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    head = bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + bytes((FRAME_END,))


def method(channel: int, name: str, **fields: Any) -> bytes:
    known = BY_NAME[name]
    values = (fields.get(field, _ZEROES.get(kind, 0)) for field, kind in known.fields)
    return frame(1, channel, encode_method(known, *values))


def publish(
    channel: int, key: str, body: bytes, persistent: bool = True, **properties: Any
) -> bytes:
    start = method(channel, "basic.publish", routing_key=key, mandatory=True)
    mode = {"delivery_mode": 2} if persistent else {}
    header = encode_properties({**mode, **properties}, len(body))
    return start + frame(2, channel, header) + frame(3, channel, body)


class SimClient:
    """One connection with one channel. Whoever owns it is told what comes, and its end once."""

    def __init__(
        self,
        node: BrokerNode,
        on_open: Callable[[], None],
        on_method: Callable[[str, dict[str, Any], bytes], None],
        on_gone: Callable[[], None],
    ) -> None:
        self.node, self.world, self.life = node, node.world, node.boot
        self._on_open, self._on_method, self._on_gone = on_open, on_method, on_gone
        self.is_over = self.is_closed_here = False
        self._rest, self._unread = b"", b""
        self._to_us = self._from_us = 0
        self._content: tuple[str, dict[str, Any]] | None = None
        self._body_left, self._body = 0, b""
        self.peer = Connection(node.engine, LinkPort(), node.engine.settings.initial_frame_max)
        self.peer.peer = PEER
        self.peer.name = f"{node.name}.{node.world.events}"
        node.clients.append(self)
        self.send(PROTOCOL_HEADER)

    # -- to the broker

    def send(self, data: bytes) -> None:
        """On its way; it arrives in order."""
        world = self.world
        self._to_us = max(self._to_us, world.now_us + world.random.randint(20, 300))
        world.at(self._to_us, self.node.soon(lambda: self._arrived(data)))

    def _arrived(self, data: bytes) -> None:
        if self.node.boot == self.life and self in self.node.clients:
            self.node.in_turn(lambda: self.feed(data))

    def feed(self, data: bytes) -> None:
        """Inside a turn: what the broker leaves comes again with the next."""
        data = self._rest + data
        if data and not self.is_closed_here:
            self._rest = data[self.peer.receive(data, self.node.now_engine_ms()) :]
            if self._rest and self.node.reads_on:
                # The broker held back for a moment, and nobody else may remind it.
                self.world.after(READ_ON_US, self.node.soon(lambda: self._arrived(b"")))

    def close(self) -> None:
        """The client is gone without a word."""
        if not self.is_over:
            self.is_over = True
            self.hang_up_of(self.life)()
            self._on_gone()

    def hang_up_of(self, life: int) -> Callable[[], None]:
        """The broker's end is told that its socket is gone."""

        def act() -> None:
            if self in self.node.clients and self.node.boot == life:
                self.node.clients.remove(self)
                self.is_closed_here = True
                self.node.in_turn(self.peer.finish)
                self._tell_gone()

        return self.node.soon(act)

    # -- from the broker

    def collect(self) -> None:
        """The broker's turn is over: take what it has written."""
        data = self.peer.outlet.output.take()
        if data:
            world = self.world
            self._from_us = max(self._from_us, world.now_us + world.random.randint(20, 300))
            world.at(self._from_us, lambda: self._came(data))

    def node_gone(self) -> None:
        """Its process is gone: what it has said may still arrive, then the connection ends."""
        self._tell_gone()

    def _tell_gone(self) -> None:
        at_us = max(self._from_us, self.world.now_us) + 100

        def act() -> None:
            if not self.is_over:
                self.is_over = True
                self._on_gone()

        self.world.at(at_us, act)

    def _came(self, data: bytes) -> None:
        data = self._unread + data
        at = 0
        while not self.is_over and len(data) - at >= 8:
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            if len(data) - at < size + 8:
                break
            self._frame(data[at], data[at + 7 : at + 7 + size])
            at += size + 8
        self._unread = data[at:]

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == 1:
            known, values = decode_method(payload)
            fields = dict(zip((name for name, _ in known.fields), values, strict=True))
            if known.name in {"basic.deliver", "basic.get-ok", "basic.return"}:
                self._content = (known.name, fields)
            else:
                self._heard(known.name, fields)
        elif kind == 2:
            self._body_left, self._body = int.from_bytes(payload[4:12], "big"), b""
            self._content_over()
        elif kind == 3:
            self._body += payload
            self._body_left -= len(payload)
            self._content_over()

    def _content_over(self) -> None:
        if self._body_left <= 0 and self._content is not None:
            (name, fields), self._content = self._content, None
            self._on_method(name, fields, self._body)

    def _heard(self, name: str, fields: dict[str, Any]) -> None:
        if name == "connection.start":
            self.send(
                method(
                    0,
                    "connection.start-ok",
                    client_properties={"capabilities": CAPABILITIES},
                    mechanism="PLAIN",
                    response=b"\0guest\0guest",
                    locale="en_US",
                )
            )
        elif name == "connection.tune":
            self.send(
                method(0, "connection.tune-ok", channel_max=2047, frame_max=131072)
                + method(0, "connection.open", virtual_host="/")
            )
        elif name == "connection.open-ok":
            self.send(method(1, "channel.open"))
        elif name == "channel.open-ok":
            self._on_open()
        elif name == "connection.close":
            self.send(method(0, "connection.close-ok"))
            self.world.after(1_000, self.hang_up_of(self.life))
        else:
            self._on_method(name, fields, b"")
