"""Ways to spoil a conversation. Each takes the frames and the dice and returns frames."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from pair import frame, handshake, header, method

from warren.wire.spec import METHODS

Frames = list[bytes]
Mutator = Callable[[Frames, Random], Frames]
LENGTHS = [0, 1, 7, 131071, 131072, 131073, 2**31 - 1, 2**31, 2**32 - 1]
EDGES = [0, 1, 0x7F, 0x80, 0xCE, 0xFE, 0xFF]
KEYS = list(METHODS)
TUNE_OK = handshake()[2][0]


def _replace(frames: Frames, at: int, data: bytes) -> Frames:
    return [*frames[:at], data, *frames[at + 1 :]]


def _pick(frames: Frames, dice: Random) -> int:
    return dice.randrange(len(frames))


def flip_bit(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    data = bytearray(frames[at])
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return _replace(frames, at, bytes(data))


def edge_byte(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    data = bytearray(frames[at])
    data[dice.randrange(len(data))] = dice.choice(EDGES)
    return _replace(frames, at, bytes(data))


def edge_byte_inside(frames: Frames, dice: Random) -> Frames:
    """A payload byte: the frame around it stays whole, so that the damage gets in deep."""
    at = _pick(frames, dice)
    data = bytearray(frames[at])
    if len(data) > 12:
        data[dice.randrange(11, len(data) - 1)] = dice.choice(EDGES)
    return _replace(frames, at, bytes(data))


def bad_type(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    return _replace(frames, at, bytes((dice.randrange(256),)) + frames[at][1:])


def bad_end(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    return _replace(frames, at, frames[at][:-1] + bytes((dice.randrange(256),)))


def bad_length(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    length = dice.choice(LENGTHS).to_bytes(4, "big")
    return _replace(frames, at, frames[at][:3] + length + frames[at][7:])


def other_channel(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    channel = dice.choice([0, 1, 2, 3, 2047, 2048, 65535]).to_bytes(2, "big")
    return _replace(frames, at, frames[at][:1] + channel + frames[at][3:])


def other_method(frames: Frames, dice: Random) -> Frames:
    """The arguments stay, the method becomes another."""
    at = _pick(frames, dice)
    key = dice.choice(KEYS).to_bytes(4, "big")
    return _replace(frames, at, frames[at][:7] + key + frames[at][11:])


def resize_payload(frames: Frames, dice: Random) -> Frames:
    """The payload is cut or grows, and the frame says so: only its content is wrong."""
    at = _pick(frames, dice)
    data = frames[at]
    inside = data[7:-1]
    if dice.random() < 0.5:
        inside = inside[: dice.randrange(len(inside) + 1)]
    else:
        inside += dice.randbytes(dice.randrange(1, 20))
    return _replace(frames, at, frame(data[0], int.from_bytes(data[1:3], "big"), inside))


def splice(frames: Frames, dice: Random) -> Frames:
    """Bytes of one frame land in the middle of another."""
    at, donor = _pick(frames, dice), frames[_pick(frames, dice)]
    start = dice.randrange(len(donor))
    piece = donor[start : start + dice.randrange(1, 20)]
    target = frames[at]
    cut = dice.randrange(len(target))
    return _replace(frames, at, target[:cut] + piece + target[cut:])


def truncate(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    return _replace(frames, at, frames[at][: dice.randrange(len(frames[at]) + 1)] or b"\0")


def drop(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    return frames[:at] + frames[at + 1 :] if len(frames) > 1 else frames


def double(frames: Frames, dice: Random) -> Frames:
    at = _pick(frames, dice)
    return frames[:at] + [frames[at]] * dice.choice([2, 2, 3, 50]) + frames[at + 1 :]


def swap(frames: Frames, dice: Random) -> Frames:
    one, other = _pick(frames, dice), _pick(frames, dice)
    mixed = list(frames)
    mixed[one], mixed[other] = mixed[other], mixed[one]
    return mixed


def insert(frames: Frames, dice: Random) -> Frames:
    """Something that is well-formed and has no business here."""
    at = _pick(frames, dice)
    channel = dice.choice([0, 1, 2])
    odd = dice.choice(
        [
            lambda: TUNE_OK,
            lambda: header(channel, dice.choice([0, 3, 2**32, 2**64 - 1])),
            lambda: frame(3, channel, b"body"),
            lambda: frame(2, channel, b"\0\x3c\0\0" + bytes(8) + dice.randbytes(12)),
            lambda: frame(1, channel, dice.choice(KEYS).to_bytes(4, "big") + dice.randbytes(16)),
            lambda: method(channel, "channel.close", 200),
            lambda: method(0, "connection.close", 200),
            lambda: method(0, "connection.close-ok"),
            lambda: frame(8, channel, b""),
            lambda: dice.randbytes(dice.randrange(1, 40)),
        ]
    )()
    return [*frames[:at], odd, *frames[at:]]


def nest(frames: Frames, dice: Random) -> Frames:
    """A field table that goes too deep, or is too large, in the arguments of a declaration."""
    depth = dice.choice([31, 32, 33, 200, 5000])
    value = b"V"
    for _ in range(depth):
        inner = b"\x01k" + value
        value = b"F" + len(inner).to_bytes(4, "big") + inner
        if len(value) > 60000:
            break
    table = b"\x01k" + value
    length = dice.choice([len(table), len(table), 2**32 - 1, len(table) + 1]).to_bytes(4, "big")
    start = method(1, "queue.declare", 0, "q0")[7:-5]
    at = _pick(frames, dice)
    return [*frames[:at], frame(1, 1, start + length + table), *frames[at:]]


def invalid_text(frames: Frames, dice: Random) -> Frames:
    """Bytes that are no UTF-8 where a name is due."""
    at = _pick(frames, dice)
    name = dice.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"a\0b", b"\r\n", b"\xf0\x9f"])
    name = bytes((len(name),)) + name
    start = dice.choice([b"\0\x32\0\x0a", b"\0\x32\0\x28", b"\0\x3c\0\x46", b"\0\x28\0\x0a"])
    tail = method(1, "queue.declare")[14:-1]
    return [*frames[:at], frame(1, 1, start + b"\0\0" + name + tail), *frames[at:]]


MUTATORS: list[Mutator] = [
    flip_bit,
    edge_byte,
    edge_byte_inside,
    edge_byte_inside,
    edge_byte_inside,
    bad_type,
    bad_end,
    bad_length,
    other_channel,
    other_method,
    resize_payload,
    splice,
    truncate,
    drop,
    double,
    swap,
    insert,
    nest,
    invalid_text,
]


def mutate(frames: Frames, dice: Random) -> Frames:
    """One to three mutations, one after the other."""
    for _ in range(dice.choice([1, 1, 2, 3])):
        frames = dice.choice(MUTATORS)(frames, dice)
    return frames
