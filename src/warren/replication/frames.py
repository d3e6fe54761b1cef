"""Frames of the ring as bytes: fixed fields in network byte order, then data.

A decoded frame has numbers and sizes within bounds. Whether it makes sense is judged by
`Replica.receive`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec

from warren.replication.lineage import LINEAGE_MAX
from warren.replication.types import NUMBER_MAX, Batch, ProtocolError

VERSION = 1
#: One operation may be larger than a batch should be, but no frame is larger than this.
FRAME_BYTES_MAX = (512 << 20) + (1 << 20)

APPEND, TOKEN, HELLO, MATCH, CHUNK, CREDIT = range(1, 7)
#: What TOKEN's flags say: nothing is missing on the sender's disk; this is for the master to know.
FULL, REPORT = 1, 2
#: What MATCH says: go on after `at`; begin anew at `at`; greet again.
TAIL, RESET, AGAIN = range(3)

_HEAD = struct.Struct(">BBQQ")
_APPEND = struct.Struct(">QQQIQQ")
_TOKEN = struct.Struct(">QB")
_HELLO = struct.Struct(">QQQQH")
_MATCH = struct.Struct(">QBQH")
_CHUNK = struct.Struct(">QQQB")
_CREDIT = struct.Struct(">QQ")
_EPOCH = struct.Struct(">QQ")
Epochs = tuple[tuple[int, int], ...]


class Append(msgspec.Struct, frozen=True, gc=False):
    """Operations after `prev_index`, or none; how far all before the receiver are; the commit."""

    prev_epoch: int
    prev_index: int
    batch: Batch | None
    stable: int
    commit: int


class Token(msgspec.Struct, frozen=True, gc=False):
    """How far the sender's disk is, and all before it; of a learner, and in reports, its own."""

    stable: int
    flags: int


class Hello(msgspec.Struct, frozen=True, gc=False):
    """What the sender has; it wants what follows from its upstream."""

    nonce: int
    last: int
    gap: tuple[int, int]
    lineage: Epochs


class Match(msgspec.Struct, frozen=True, gc=False):
    """The answer to the greeting with that nonce."""

    nonce: int
    how: int
    at: int
    lineage: Epochs
    head: bytes


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Live messages with indexes in `(after, cursor]`, for the copy that began with that MATCH."""

    session: int
    after: int
    cursor: int
    is_last: bool
    data: bytes


class Credit(msgspec.Struct, frozen=True, gc=False):
    """A chunk has been taken."""

    session: int
    cursor: int


Frame = Append | Token | Hello | Match | Chunk | Credit


def encode(queue: int, epoch: int, frame: Frame) -> bytes:
    """The frame as bytes."""
    match frame:
        case Append(prev_epoch, prev_index, batch, stable, commit):
            head = _HEAD.pack(VERSION, APPEND, queue, epoch)
            if batch is None:
                return head + _APPEND.pack(prev_epoch, prev_index, 0, 0, stable, commit)
            count = batch.last - batch.first + 1
            fields = _APPEND.pack(prev_epoch, prev_index, batch.epoch, count, stable, commit)
            return b"".join((head, fields, batch.data))
        case Token(stable, flags):
            return _HEAD.pack(VERSION, TOKEN, queue, epoch) + _TOKEN.pack(stable, flags)
        case Hello(nonce, last, gap, lineage):
            head = _HEAD.pack(VERSION, HELLO, queue, epoch)
            return head + _HELLO.pack(nonce, last, *gap, len(lineage)) + _epochs(lineage)
        case Match(nonce, how, at, lineage, data):
            head = _HEAD.pack(VERSION, MATCH, queue, epoch)
            return head + _MATCH.pack(nonce, how, at, len(lineage)) + _epochs(lineage) + data
        case Chunk(session, after, cursor, is_last, data):
            head = _HEAD.pack(VERSION, CHUNK, queue, epoch)
            return head + _CHUNK.pack(session, after, cursor, is_last) + data
        case Credit(session, cursor):
            return _HEAD.pack(VERSION, CREDIT, queue, epoch) + _CREDIT.pack(session, cursor)


def queue_of(data: bytes) -> int:
    """The number of the queue that a frame is about, to find its replica by."""
    return int(_unpack(_HEAD, data, 0)[2])


def decode(data: bytes) -> tuple[int, int, Frame]:
    """Queue, epoch and frame; ProtocolError for anything that is not exactly one."""
    if len(data) > FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame of {len(data)} bytes")
    version, kind, queue, epoch = _unpack(_HEAD, data, 0)
    if version != VERSION:
        raise ProtocolError(f"a frame of version {version}, not {VERSION}")
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"a frame of kind {kind}")
    _check(queue, epoch)
    return queue, epoch, decoder(data)


def _decode_append(data: bytes) -> Append:
    prev_epoch, prev_index, epoch, count, stable, commit = _unpack(_APPEND, data, _HEAD.size)
    _check(prev_epoch, prev_index, epoch, prev_index + count, stable, commit)
    rest = data[_HEAD.size + _APPEND.size :]
    if not count:
        if rest or epoch:
            raise ProtocolError("operations of a number that is 0")
        return Append(prev_epoch, prev_index, None, stable, commit)
    if not rest or epoch < max(prev_epoch, 1):
        raise ProtocolError("operations that cannot follow")
    batch = Batch(prev_index + 1, prev_index + count, epoch, rest)
    return Append(prev_epoch, prev_index, batch, stable, commit)


def _decode_token(data: bytes) -> Token:
    stable, flags = _unpack(_TOKEN, data, _HEAD.size)
    _check(stable)
    _check_end(data, _HEAD.size + _TOKEN.size)
    if flags > FULL | REPORT:
        raise ProtocolError(f"flags {flags}")
    return Token(stable, flags)


def _decode_hello(data: bytes) -> Hello:
    nonce, last, after, upto, count = _unpack(_HELLO, data, _HEAD.size)
    lineage, end = _take_epochs(data, _HEAD.size + _HELLO.size, count)
    _check(nonce, last, after, upto)
    _check_end(data, end)
    if after > upto or upto > last or (lineage and lineage[-1][1] > last):
        raise ProtocolError("a greeting of a log that cannot be")
    return Hello(nonce, last, (after, upto), lineage)


def _decode_match(data: bytes) -> Match:
    nonce, how, at, count = _unpack(_MATCH, data, _HEAD.size)
    lineage, end = _take_epochs(data, _HEAD.size + _MATCH.size, count)
    _check(nonce, at)
    if how > AGAIN or (lineage and lineage[-1][1] > at):
        raise ProtocolError("an answer that cannot be")
    if how != RESET:
        _check_end(data, end)
    return Match(nonce, how, at, lineage, data[end:])


def _decode_chunk(data: bytes) -> Chunk:
    session, after, cursor, is_last = _unpack(_CHUNK, data, _HEAD.size)
    _check(session, after, cursor)
    if is_last > 1 or cursor < after:
        raise ProtocolError("a piece of a copy that goes backwards")
    return Chunk(session, after, cursor, bool(is_last), data[_HEAD.size + _CHUNK.size :])


def _decode_credit(data: bytes) -> Credit:
    session, cursor = _unpack(_CREDIT, data, _HEAD.size)
    _check(session, cursor)
    _check_end(data, _HEAD.size + _CREDIT.size)
    return Credit(session, cursor)


_DECODERS: dict[int, Callable[[bytes], Frame]] = {
    APPEND: _decode_append,
    TOKEN: _decode_token,
    HELLO: _decode_hello,
    MATCH: _decode_match,
    CHUNK: _decode_chunk,
    CREDIT: _decode_credit,
}


def _epochs(lineage: Epochs) -> bytes:
    return b"".join(_EPOCH.pack(epoch, first) for epoch, first in lineage)


def _take_epochs(data: bytes, begin: int, count: int) -> tuple[Epochs, int]:
    if count > LINEAGE_MAX:
        raise ProtocolError(f"a lineage of {count} epochs")
    end = begin + count * _EPOCH.size
    if len(data) < end:
        raise ProtocolError("a lineage that is cut short")
    lineage = tuple(_EPOCH.iter_unpack(data[begin:end]))
    epoch_before = first_before = 0
    for epoch, first in lineage:
        _check(epoch, first)
        if epoch <= epoch_before or first <= first_before:
            raise ProtocolError("a lineage that does not rise")
        epoch_before, first_before = epoch, first
    return lineage, end


def _unpack(fields: struct.Struct, data: bytes, at: int) -> tuple[int, ...]:
    if len(data) < at + fields.size:
        raise ProtocolError(f"a frame that ends after {len(data)} bytes")
    return fields.unpack_from(data, at)


def _check(*numbers: int) -> None:
    if max(numbers) > NUMBER_MAX:
        raise ProtocolError(f"a number of {max(numbers)}")


def _check_end(data: bytes, end: int) -> None:
    if len(data) != end:
        raise ProtocolError(f"a frame of {len(data)} bytes that should have {end}")
