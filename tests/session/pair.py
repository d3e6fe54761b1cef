"""Two ends, no network: a real engine and connections that are fed bytes and asked for bytes.

Time stands still unless a test moves it, and names that a broker makes up are counted, not random:
the same bytes in always give the same bytes out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from warren.auth.directory import Directory
from warren.engine.connections import Peer
from warren.engine.engine import Engine
from warren.engine.settings import EngineSettings
from warren.model.ports import LinkPort
from warren.session.connection import Connection
from warren.wire.constants import FRAME_END, PROTOCOL_HEADER
from warren.wire.methods import decode_method, encode_method
from warren.wire.properties import encode_properties
from warren.wire.spec import BY_NAME, Method

CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}
PEER = Peer("127.0.0.1", 50000, "127.0.0.1", 5672, True)
_ZEROES: dict[str, Any] = {"shortstr": "", "longstr": b"", "table": {}, "bit": False}


class StillClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def wall_s(self) -> int:
        return 1_700_000_000 + self.ms // 1000


class CountingDice:
    """Tokens in order: t1, t2, ..."""

    def __init__(self) -> None:
        self.count = 0

    def token(self) -> str:
        self.count += 1
        return f"t{self.count}"


def make_bare_engine(**settings: Any) -> Engine:
    """A broker with nothing in it; its log goes nowhere."""
    log = logging.getLogger("warren.silent")
    log.setLevel(logging.CRITICAL + 1)
    return Engine(EngineSettings(**settings), Directory(), StillClock(), CountingDice(), log)


def make_engine(**settings: Any) -> Engine:
    """A broker with user guest and virtual host /."""
    return fill(make_bare_engine(**settings))


def fill(engine: Engine) -> Engine:
    """User guest and virtual host /."""
    engine.add_vhost("/")
    engine.directory.add_user("guest", "guest", ("administrator",))
    engine.directory.set_permissions("guest", "/", ".*", ".*", ".*")
    return engine


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame as it is on the wire."""
    head = bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + bytes((FRAME_END,))


def method(channel: int, name: str, *values: object, **named: object) -> bytes:
    """A method frame; fields that are not given are zero."""
    return frame(1, channel, payload(name, *values, **named))


def payload(name: str, *values: object, **named: object) -> bytes:
    """A method frame's payload; fields that are not given are zero."""
    known = BY_NAME[name]
    fields = dict(zip((field for field, _ in known.fields), values, strict=False)) | named
    unknown = set(fields) - {field for field, _ in known.fields}
    assert not unknown, f"{name} has no {unknown}"
    return encode_method(
        known, *(fields.get(field, _ZEROES.get(kind, 0)) for field, kind in known.fields)
    )


def header(channel: int, size: int, **properties: Any) -> bytes:
    """A content header frame."""
    return frame(2, channel, encode_properties(properties, size))


def content(channel: int, body: bytes, **properties: Any) -> bytes:
    """Header and body frames; no body frame for an empty body."""
    frames = header(channel, len(body), **properties)
    return frames + frame(3, channel, body) if body else frames


def publish(
    channel: int,
    exchange: str,
    key: str,
    body: bytes = b"",
    mandatory: bool = False,
    **properties: Any,
) -> bytes:
    """All frames of one publish."""
    start = method(channel, "basic.publish", 0, exchange, key, mandatory)
    return start + content(channel, body, **properties)


@dataclass(frozen=True)
class Received:
    """One frame from the broker; `name` and `values` for method frames only."""

    kind: int
    channel: int
    payload: bytes
    name: str = ""
    values: tuple[Any, ...] = ()

    @property
    def method(self) -> Method:
        return BY_NAME[self.name]

    def __getitem__(self, field: str) -> Any:
        return dict(zip((name for name, _ in self.method.fields), self.values, strict=True))[field]


def split_frames(data: bytes) -> list[Received]:
    """All frames in what a broker wrote; fails if they are not whole and well-formed."""
    frames = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        body = data[at + 7 : at + 7 + size]
        assert len(body) == size, "the last frame is cut short"
        assert data[at + 7 + size] == FRAME_END, "a frame does not end as it must"
        kind, channel = data[at], int.from_bytes(data[at + 1 : at + 3], "big")
        if kind == 1:
            known, values = decode_method(body)
            frames.append(Received(kind, channel, body, known.name, values))
        else:
            frames.append(Received(kind, channel, body))
        at += size + 8
    return frames


class Client:
    """The test's end of a connection; `peer` is the broker's."""

    def __init__(self, engine: Engine, *, login: bool = True, channels: int = 0) -> None:
        self.engine = engine
        self.peer = Connection(engine, LinkPort(), engine.settings.initial_frame_max)
        self.peer.peer = PEER
        self.peer.name = "test"
        self.rest = b""
        if login:
            self.login()
            for number in range(1, channels + 1):
                self.call(number, "channel.open")

    def send(self, data: bytes) -> None:
        """Bytes go to the broker as a link gives them: what it leaves comes again with the next."""
        data = self.rest + data
        self.rest = data[self.peer.receive(data, self.engine.clock.now_ms()) :]

    def output(self) -> bytes:
        """What the broker has written since the last look."""
        return self.peer.outlet.output.take()

    def frames(self) -> list[Received]:
        """The same, as frames."""
        return split_frames(self.output())

    def exchange(self, data: bytes) -> list[Received]:
        """Send, and see what comes back."""
        self.send(data)
        return self.frames()

    def names(self, data: bytes) -> list[str]:
        """Send, and see the names of the methods that come back."""
        return [received.name for received in self.exchange(data) if received.name]

    def call(self, channel: int, name: str, *values: object, **named: object) -> Received:
        """A method with exactly one answer."""
        (answer,) = self.exchange(method(channel, name, *values, **named))
        return answer

    def login(self, frame_max: int = 131072, channel_max: int = 2047, heartbeat: int = 0) -> None:
        """From the greeting to connection.open-ok."""
        for data, expected in handshake(frame_max, channel_max, heartbeat):
            assert self.names(data) == expected

    def hang_up(self) -> None:
        """The socket is gone: what a link does then."""
        self.peer.finish()


def handshake(
    frame_max: int = 131072, channel_max: int = 2047, heartbeat: int = 0
) -> list[tuple[bytes, list[str]]]:
    """What a client sends to log in, each with the names of the answers."""
    start_ok = method(
        0,
        "connection.start-ok",
        {"capabilities": CAPABILITIES},
        "PLAIN",
        b"\0guest\0guest",
        "en_US",
    )
    return [
        (PROTOCOL_HEADER, ["connection.start"]),
        (start_ok, ["connection.tune"]),
        (method(0, "connection.tune-ok", channel_max, frame_max, heartbeat), []),
        (method(0, "connection.open", "/"), ["connection.open-ok"]),
    ]
