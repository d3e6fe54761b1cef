"""Malformed input of every kind, and the reply code each deserves.

Every case is what a client sends on a connection that is open, with channel 1 open on it. The codes
are those of RabbitMQ 3.10, but where that one reports a fault of its own (541), drops the socket or
waits for content that will never come; there the code is what the protocol's text asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from pair import frame, header, method, payload, publish

from warren.wire.tables import TABLE_DEPTH_MAX


@dataclass(frozen=True)
class Malformed:
    """One kind of bad input."""

    name: str
    data: bytes
    code: int
    #: Whether the connection is closed, rather than the channel alone.
    connection: bool = True


def table(entries: bytes) -> bytes:
    return len(entries).to_bytes(4, "big") + entries


def nested(depth: int, kind: bytes) -> bytes:
    """The entries of a table with tables or arrays inside one another."""
    value = b"V"
    for _ in range(depth - 1):
        inner = b"\x01k" + value if kind == b"F" else value
        value = kind + table(inner)
    return b"\x01k" + value


def declare_with(entries: bytes) -> bytes:
    """queue.declare whose arguments are these bytes."""
    return frame(1, 1, payload("queue.declare", queue="fuzz-table")[:-4] + table(entries))


def header_with(entries: bytes) -> bytes:
    """A publish whose headers table is these bytes."""
    fixed = (60).to_bytes(2, "big") + bytes(2) + bytes(8) + (1 << 13).to_bytes(2, "big")
    return method(1, "basic.publish", 0, "", "nowhere") + frame(2, 1, fixed + table(entries))


def _flags(flags: int, rest: bytes = b"") -> bytes:
    """A publish whose content header has these property flags."""
    fixed = (60).to_bytes(2, "big") + bytes(2) + bytes(8) + flags.to_bytes(2, "big")
    return method(1, "basic.publish", 0, "", "nowhere") + frame(2, 1, fixed + rest)


PUBLISH = method(1, "basic.publish", 0, "", "nowhere")
OPEN = payload("channel.open")

FRAMES = [
    Malformed("frame type 0", frame(0, 1, b""), 501),
    Malformed("frame type 4", frame(4, 1, OPEN), 501),
    Malformed("frame type 9", frame(9, 0, b""), 501),
    Malformed("frame type 255", frame(255, 1, b"x" * 50), 501),
    Malformed("end octet", method(1, "channel.flow", True)[:-1] + b"\xcd", 501),
    Malformed("end octet of a header", PUBLISH + header(1, 3)[:-1] + b"\x00", 501),
    Malformed("longer than frame_max", frame(3, 1, b"x" * 131073), 501),
    Malformed("length 2^32-1", b"\x01\0\1\xff\xff\xff\xff" + b"x" * 100, 501),
    Malformed("length 2^31", b"\x01\0\1\x80\0\0\0" + b"x" * 100, 501),
    Malformed("heartbeat on a channel", frame(8, 1, b""), 505),
    Malformed("heartbeat with a payload", frame(8, 0, b"x"), 501),
]
METHODS = [
    Malformed("method of length 0", frame(1, 1, b""), 501),
    Malformed("method of length 3", frame(1, 1, b"\0\x14\0"), 501),
    Malformed("arguments cut short", frame(1, 1, payload("queue.declare")[:-5]), 501),
    Malformed("arguments left over", frame(1, 1, payload("queue.declare") + b"x"), 501),
    Malformed("publish cut short", frame(1, 1, payload("basic.publish")[:-1]), 501),
    Malformed("publish left over", frame(1, 1, payload("basic.publish") + b"x"), 501),
    Malformed("short string beyond the end", frame(1, 1, b"\0\x32\0\x0a\0\0\xff"), 501),
    Malformed("unknown class", frame(1, 1, b"\0\x63\0\x0a"), 503),
    Malformed("unknown method", frame(1, 1, b"\0\x32\0\x63"), 503),
    Malformed("a method only brokers send", method(1, "basic.deliver"), 503),
    Malformed("an answer nobody asked for", method(1, "queue.declare-ok", "q"), 503),
    Malformed("connection method on a channel", method(1, "connection.open", "/"), 503),
    Malformed("channel method on channel 0", method(0, "channel.flow", True), 504),
    Malformed("publish on channel 0", method(0, "basic.publish"), 504),
    Malformed("ack on channel 0", method(0, "basic.ack", 1), 504),
    Malformed("second open of the connection", method(0, "connection.open", "/"), 504),
    Malformed("second tune-ok", method(0, "connection.tune-ok", 2047, 131072, 60), 504),
    Malformed("second start-ok", method(0, "connection.start-ok", {}, "PLAIN", b"", "x"), 504),
    Malformed("close-ok out of the blue", method(0, "connection.close-ok"), 504),
    Malformed("invalid UTF-8 in a name", frame(1, 1, b"\0\x32\0\x0a\0\0\2\xc3\x28\0\0\0\0\0"), 501),
]
CHANNELS = [
    Malformed("channel never opened", method(2, "queue.declare"), 504),
    Malformed("publish on a channel never opened", method(2, "basic.publish"), 504),
    Malformed("content on a channel never opened", header(2, 0), 504),
    Malformed("closed channel", method(1, "channel.close") + method(1, "queue.declare"), 504),
    Malformed("second channel.open", method(1, "channel.open"), 504),
    Malformed("channel.open on channel 0", method(0, "channel.open"), 504),
]
CONTENT = [
    Malformed("body before header", PUBLISH + frame(3, 1, b"x"), 505),
    Malformed("header without a publish", header(1, 0), 505),
    Malformed("body without a publish", frame(3, 1, b"x"), 505),
    Malformed("method instead of a header", PUBLISH + method(1, "channel.flow", True), 505),
    Malformed("publish instead of a header", PUBLISH + PUBLISH, 505),
    Malformed("ack instead of a header", PUBLISH + method(1, "basic.ack", 1), 505),
    Malformed("header instead of a body", PUBLISH + header(1, 3) + header(1, 3), 505),
    Malformed("method instead of a body", PUBLISH + header(1, 3) + method(1, "tx.select"), 505),
    Malformed("body longer than announced", PUBLISH + header(1, 3) + frame(3, 1, b"wxyz"), 501),
    Malformed("content on channel 0", header(0, 0), 505),
    Malformed("wrong class", PUBLISH + frame(2, 1, b"\0\x32" + bytes(12)), 505),
    Malformed("header of length 0", PUBLISH + frame(2, 1, b""), 501),
    Malformed("header of length 13", PUBLISH + frame(2, 1, b"\0\x3c" + bytes(11)), 501),
    Malformed("header left over", _flags(0, b"x"), 502),
    Malformed("property flags without end", _flags(1), 502),
    Malformed("unknown property flag", _flags(2), 502),
    Malformed("property beyond the end", _flags(1 << 15, b"\xffx"), 502),
    Malformed("all properties, none there", _flags(0xFFFC), 502),
    Malformed("message above the limit", PUBLISH + header(1, 1 << 40), 406, False),
    Malformed("message of 2^64-1 bytes", PUBLISH + header(1, 2**64 - 1), 406, False),
]
TABLES = [
    Malformed("unknown field type", declare_with(b"\x01kZ"), 501),
    Malformed("key beyond the end", declare_with(b"\xffk"), 501),
    Malformed("value beyond the end", declare_with(b"\x01kS\0\0\0\xff"), 501),
    Malformed("value missing", declare_with(b"\x01k"), 501),
    Malformed("negative array length", declare_with(b"\x01kA\xff\xff\xff\xff"), 501),
    Malformed("negative table length", declare_with(b"\x01kF\x80\0\0\0"), 501),
    Malformed("negative array in a message", header_with(b"\x01kA\xff\xff\xff\xff"), 502),
    Malformed("unknown field type in a message", header_with(b"\x01kZ"), 502),
    Malformed("tables too deep", declare_with(nested(TABLE_DEPTH_MAX + 1, b"F")), 501),
    Malformed("arrays too deep", declare_with(nested(TABLE_DEPTH_MAX + 1, b"A")), 501),
    Malformed("tables too deep in a message", header_with(nested(5000, b"F")), 502),
    Malformed("arrays too deep in a message", header_with(nested(20000, b"A")), 502),
]
MEANING = [
    Malformed("immediate", method(1, "basic.publish", immediate=True), 540),
    Malformed("prefetch_size", method(1, "basic.qos", 1), 540),
    Malformed("recover without requeue", method(1, "basic.recover", False), 540),
    Malformed("flow stopped", method(1, "channel.flow", False), 540),
    Malformed("unknown exchange type", method(1, "exchange.declare", 0, "x", "odd"), 503),
    Malformed("unknown exchange", publish(1, "none", "", b"x"), 404, False),
    Malformed("unknown queue", method(1, "basic.get", 0, "none"), 404, False),
    Malformed("no queue declared yet", method(1, "basic.get", 0, ""), 404, False),
    Malformed("unknown delivery tag", method(1, "basic.ack", 1), 406, False),
    Malformed("delivery tag 0", method(1, "basic.ack", 0), 406, False),
    Malformed("delivery tag 2^64-1", method(1, "basic.nack", 2**64 - 1, True), 406, False),
    Malformed("commit without select", method(1, "tx.commit"), 406, False),
    Malformed("bad expiration", publish(1, "", "q", expiration="soon"), 406, False),
    Malformed("foreign user_id", publish(1, "", "q", user_id="root"), 406, False),
    Malformed("reserved name", method(1, "queue.declare", 0, "amq.mine"), 403, False),
    Malformed("default exchange", method(1, "exchange.delete", 0, ""), 403, False),
    Malformed("CC is no array", publish(1, "", "q", headers={"CC": "x"}), 406, False),
]
ALL = FRAMES + METHODS + CHANNELS + CONTENT + TABLES + MEANING
