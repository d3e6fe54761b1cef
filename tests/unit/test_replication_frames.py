"""Frames of the ring: there and back, and nothing that is not one gets through."""

from __future__ import annotations

import random

import pytest

from warren.replication import frames
from warren.replication.frames import Append, Chunk, Credit, Hello, Match, Token, decode, encode
from warren.replication.lineage import LINEAGE_MAX
from warren.replication.types import NUMBER_MAX, Batch, ProtocolError

EXAMPLES: list[frames.Frame] = [
    Append(3, 10, Batch(11, 14, 4, b"operations"), 9, 8),
    Append(0, 0, Batch(1, 1, 1, b"x"), 0, 0),
    Append(3, 10, None, 10, 10),
    Token(17, frames.FULL),
    Token(0, frames.REPORT),
    Hello(1, 0, (0, 0), ()),
    Hello(5, 40, (3, 20), ((1, 1), (4, 38))),
    Match(5, frames.TAIL, 40, (), b""),
    Match(5, frames.RESET, 40, ((2, 7),), b"everything but the messages"),
    Match(0, frames.AGAIN, 0, (), b""),
    Chunk(5, 3, 9, False, b"messages"),
    Chunk(5, 9, 20, True, b""),
    Credit(5, 9),
]


@pytest.mark.parametrize("frame", EXAMPLES, ids=repr)
def test_there_and_back(frame: frames.Frame) -> None:
    data = encode(12, 6, frame)
    assert decode(data) == (12, 6, frame)
    assert frames.queue_of(data) == 12


@pytest.mark.parametrize("frame", EXAMPLES, ids=repr)
def test_cut_short_or_changed_it_is_refused_or_another_frame(frame: frames.Frame) -> None:
    dice = random.Random(7)
    data = encode(12, 6, frame)
    for length in range(len(data)):
        try:
            decode(data[:length])
        except ProtocolError:
            continue
        assert isinstance(frame, Append | Chunk | Match), "what has no data has one length"
    for _ in range(300):
        changed = bytearray(data)
        changed[dice.randrange(len(changed))] = dice.randrange(256)
        try:
            queue, epoch, other = decode(bytes(changed))
        except ProtocolError:
            continue
        assert encode(queue, epoch, other) == bytes(changed)


def test_noise_is_refused() -> None:
    dice = random.Random(8)
    for _ in range(2_000):
        data = bytes((1, dice.randint(0, 8))) + dice.randbytes(dice.randint(0, 90))
        try:
            decode(data)
        except ProtocolError:
            continue


BAD: list[bytes] = [
    b"",
    encode(1, 1, Token(1, 0)) + b"x",
    b"\x02" + encode(1, 1, Token(1, 0))[1:],
    encode(1, 1, Token(NUMBER_MAX + 1, 0)),
    encode(1, 1, Token(1, 4)),
    encode(NUMBER_MAX + 1, 1, Token(1, 0)),
    encode(1, 1, Append(2, 1, Batch(2, 2, 1, b"older than the one before"), 0, 0)),
    encode(1, 1, Append(1, 1, Batch(2, 2, 1, b""), 0, 0)),
    encode(1, 1, Hello(1, 5, (3, 9), ())),
    encode(1, 1, Hello(1, 5, (2, 1), ())),
    encode(1, 1, Hello(1, 5, (0, 0), ((2, 1), (1, 3)))),
    encode(1, 1, Hello(1, 5, (0, 0), ((1, 3), (2, 3)))),
    encode(1, 1, Hello(1, 5, (0, 0), ((1, 6),))),
    encode(1, 1, Match(1, 3, 5, (), b"")),
    encode(1, 1, Match(1, frames.TAIL, 5, (), b"x")),
    encode(1, 1, Chunk(1, 5, 4, False, b"")),
    encode(1, 1, Hello(1, 9_999, (0, 0), tuple((n, n) for n in range(1, LINEAGE_MAX + 2)))),
    bytes(frames.FRAME_BYTES_MAX + 1),
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: data[:30].hex())
def test_what_no_correct_node_sends(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)
