"""A connection to a broker for a thread of its own: it waits for each answer.

What `warrenctl bench` measures with: little is done for each message, so that the broker is what is
measured.
"""

from __future__ import annotations

import socket
from typing import Any, Self

from warren.client.address import BrokerAddress
from warren.client.connection import CHANNEL, FRAME_MAX, ClientError
from warren.client.frames import FrameReader, method_frame
from warren.wire.constants import FRAME_METHOD, PROTOCOL_HEADER
from warren.wire.methods import decode_method

ANSWER_S = 30.0
READ_BYTES = 256 * 1024


class BlockingConnection:
    """One connection with one channel."""

    def __init__(self, address: BrokerAddress, name: str) -> None:
        if address.tls:
            raise ClientError("amqps:// is not measured: use a listener without TLS")
        self.address = address
        self._reader = FrameReader()
        self._frames: list[tuple[int, int, bytes]] = []
        try:
            self.socket = socket.create_connection(
                (address.host or "127.0.0.1", address.port), ANSWER_S
            )
        except OSError as error:
            reason = error.strerror or error
            raise ClientError(f"{address.shown} cannot be reached: {reason}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._log_in(name)

    def _log_in(self, name: str) -> None:
        address = self.address
        self.socket.sendall(PROTOCOL_HEADER)
        self.wait("connection.start")
        response = f"\0{address.user}\0{address.password}"
        capabilities = {"authentication_failure_close": True, "publisher_confirms": True}
        properties = {"connection_name": name, "capabilities": capabilities}
        self.socket.sendall(
            method_frame(0, "connection.start-ok", properties, "PLAIN", response, "en_US")
        )
        _, channel_max, frame_max, _ = self.wait("connection.tune")
        frame_max = min(frame_max or FRAME_MAX, FRAME_MAX)
        self.socket.sendall(method_frame(0, "connection.tune-ok", channel_max, frame_max, 0))
        self.call("connection.open", address.vhost, "", False)
        self.call("channel.open", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, name: str, *arguments: Any) -> Any:
        """A method and its answer. Raises ClientError."""
        channel = 0 if name.startswith("connection.") else CHANNEL
        self.socket.sendall(method_frame(channel, name, *arguments))
        return self.wait(f"{name}-ok")

    def wait(self, name: str) -> Any:
        """(name, arguments ...) of the next method, which must be this one. Raises ClientError."""
        while True:
            while self._frames:
                kind, _, payload = self._frames.pop(0)
                if kind != FRAME_METHOD:
                    continue
                method, arguments = decode_method(payload)
                if method.name == name:
                    return (name, *arguments)
                if method.name.endswith(".close"):
                    raise ClientError(f"{arguments[0]} {arguments[1]}")
            self.read_frames()

    def read_frames(self) -> list[tuple[int, int, bytes]]:
        """Whole frames as they come: those of one read. Raises ClientError."""
        try:
            data = self.socket.recv(READ_BYTES)
        except OSError as error:
            raise ClientError(f"the connection was lost: {error}") from None
        if not data:
            raise ClientError("the broker hung up")
        self._frames += self._reader.feed(data)
        return self._frames

    def take_frames(self) -> list[tuple[int, int, bytes]]:
        """The same, and they are the caller's."""
        found, self._frames = self.read_frames(), []
        return found
