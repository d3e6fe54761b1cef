"""Frames that no honest node sends: each is refused with ValueError, and nothing crashes."""

from __future__ import annotations

import json
import random

import pytest
from pair import method, publish
from two_nodes import CONSUME, GatewayNode, Home, message, pair, settle

from warren.gateway.memory_link import end_turn, feed
from warren.gateway.messages import decode_message, encode_message
from warren.model.ports import FrameSink

START, PUBLISH, SETTLE, CREDIT, HEARD, REQUEST, MORE = 32, 33, 34, 35, 36, 37, 47
CONFIRM, REFUSED, DELIVER, REPLY = 48, 49, 50, 51
PART = encode_message(message(b"body"))
NUMBER = (1).to_bytes(4, "big")


def u64(n: int) -> bytes:
    return n.to_bytes(8, "big")


def u32(n: int) -> bytes:
    return n.to_bytes(4, "big")


def lengths(address: int, header: int, body: int) -> bytes:
    return u32(address) + u32(header) + u32(body)


TO_HOME = [
    (PUBLISH, b""),
    (PUBLISH, u64(1)),
    (PUBLISH, u64(0) + PART + NUMBER),
    (PUBLISH, u64(2) + PART + NUMBER),
    (PUBLISH, u64(1) + PART),
    (PUBLISH, u64(1) + PART + b"\0\0\1"),
    (PUBLISH, u64(1) + lengths(2**32 - 1, 14, 0) + b"x" * 50),
    (PUBLISH, u64(1) + lengths(2, 13, 0) + b"\0\0" + b"x" * 50),
    (PUBLISH, u64(1) + lengths(2, 2**32 - 1, 0) + b"\0\0" + b"x" * 50),
    (PUBLISH, u64(1) + lengths(2, 14, 2**29 + 1) + b"\0\0" + b"x" * 50),
    (PUBLISH, u64(1) + lengths(1, 14, 0) + b"\0" + b"x" * 50),
    (PUBLISH, u64(1) + lengths(2, 14, 0) + b"\0\5" + b"x" * 50),
    (PUBLISH, u64(1) + lengths(2, 14, 0) + b"\0\0" + b"\0\x3c" + bytes(12) + NUMBER + b"y"),
    (PUBLISH, u64(1) + lengths(2, 14, 0) + b"\0\0" + b"\0\x3d" + bytes(12) + NUMBER),
    (PUBLISH, u64(1) + lengths(2, 14, 0) + b"\0\0" + b"\0\x3c" + bytes(9) + b"\1\0\0" + NUMBER),
    (PUBLISH, u64(1) + lengths(2, 14, 0) + b"\0\0" + b"\0\x3c" + bytes(10) + b"\x80\0" + NUMBER),
    (SETTLE, b""),
    (SETTLE, bytes(16)),
    (SETTLE, bytes(18)),
    (SETTLE, b"\4" + NUMBER + bytes(12)),
    (SETTLE, b"\4" + u32(99) + bytes(12)),
    (SETTLE, b"\0" + NUMBER + u64(0) + u32(2**32 - 1)),
    (SETTLE, b"\0" + NUMBER + u64(2**64 - 1) + u32(1)),
    (CREDIT, bytes(11)),
    (CREDIT, bytes(13)),
    (HEARD, bytes(7)),
    (REQUEST, bytes(13)),
    (REQUEST, bytes(10) + u32(2**32 - 1)),
    (REQUEST, bytes(10) + u32(1) + b"ab"),
    (MORE, b"x"),
    (START, bytes(16)),
    (START, bytes(8)),
    (CONFIRM, u64(0)),
    (DELIVER, b""),
    (40, b""),
    (255, b""),
]

TO_GATEWAY = [
    (CONFIRM, bytes(7)),
    (CONFIRM, u64(2)),
    (CONFIRM, u64(2**64 - 1)),
    (REFUSED, b""),
    (REFUSED, bytes(9)),
    (REFUSED, u64(2)),
    (DELIVER, bytes(16)),
    (DELIVER, bytes(17)),
    (DELIVER, u32(1) + u32(1) + u64(1) + b"\2" + PART),
    (DELIVER, u32(1) + u32(1) + u64(1) + b"\1" + PART + b"x"),
    (DELIVER, u32(1) + u32(1) + u64(1) + b"\1" + lengths(2, 2**31, 2**31) + b"\0\0"),
    (REPLY, bytes(12)),
    (REPLY, u64(1) + b"\2" + u32(0)),
    (REPLY, u64(77) + b"\1" + u32(0)),
    (REPLY, u64(1) + b"\1" + u32(2**32 - 1)),
    (REPLY, u64(1) + b"\1" + u32(0) + b"x"),
    (MORE, b""),
    (PUBLISH, b""),
    (SETTLE, bytes(17)),
    (0, b""),
]


def busy() -> tuple[Home, GatewayNode]:
    """A consumer with a delivery out, and nothing published over the link yet."""
    home, node = pair()
    client = node.client()
    home.queues[1].offer(message(b"out"), 0)
    client.exchange(method(1, "basic.consume", 0, "q1", "tag"))
    settle(node)
    return home, node


@pytest.mark.parametrize(("kind", "payload"), TO_HOME)
def test_the_home_refuses(kind: int, payload: bytes) -> None:
    home, node = busy()
    (end,) = home.ends
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        feed(end, kind, payload)
    assert node.link is not None
    node.link.cut()
    home.queues[1].check()
    assert (home.queues[1].ready, home.queues[1].unacked) == (1, 0)


@pytest.mark.parametrize(("kind", "payload"), TO_GATEWAY)
def test_the_gateway_refuses(kind: int, payload: bytes) -> None:
    home, node = busy()
    node.queues[0].offer(message(b"unanswered"), 0)
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        feed(node.gateway, kind, payload)
    assert node.link is not None
    node.link.cut()
    node.connect()
    settle(node)
    assert node.gateway.unanswered_count == 0
    home.queues[1].check()


@pytest.mark.parametrize(("before", "kind"), [(PUBLISH, SETTLE), (PUBLISH, PUBLISH), (REQUEST, 36)])
def test_nothing_comes_between_the_pieces_of_a_message(before: int, kind: int) -> None:
    home, _node = busy()
    (end,) = home.ends
    first = u64(1) + PART[:-2] if before == PUBLISH else bytes(10) + u32(9) + b"x"
    feed(end, before, first)
    with pytest.raises(ValueError, match="in the middle"):
        feed(end, kind, u64(9))


def test_nothing_is_taken_before_the_start() -> None:
    home = Home()
    node = GatewayNode(home)
    with pytest.raises(ValueError, match="before the start"):
        feed(home.ends[0], PUBLISH, u64(1) + PART + NUMBER)
    assert node.gateway.has_link


def test_an_announced_length_is_no_reason_to_take_memory() -> None:
    home, _node = busy()
    (end,) = home.ends
    feed(end, PUBLISH, u64(1) + lengths(2, 14, 2**29) + b"\0\0" + b"\0\x3c" + bytes(12))
    with pytest.raises(ValueError, match="empty piece"):
        feed(end, MORE, b"")


@pytest.mark.parametrize("cut", range(len(PART)))
def test_a_message_that_is_cut_short(cut: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        decode_message(PART[:cut])


def test_a_message_that_is_too_long() -> None:
    assert decode_message(PART).body == b"body"
    with pytest.raises(ValueError, match="wrong length"):
        decode_message(PART + b"x")


def mutate(dice: random.Random, kind: int, payload: bytes) -> tuple[int, bytes]:
    data = bytearray(payload)
    for _ in range(dice.randint(1, 3)):
        how = dice.randrange(6)
        if how == 0 and data:
            data[dice.randrange(len(data))] = dice.choice((0, 1, 127, 255, dice.randrange(256)))
        elif how == 1:
            del data[dice.randrange(len(data) + 1) :]
        elif how == 2:
            data += dice.randbytes(dice.randint(1, 20))
        elif how == 3:
            kind = dice.choice((*range(32, 38), 47, *range(48, 52), 60))
        elif how == 4 and len(data) >= 4:
            at = dice.randrange(len(data) - 3)
            data[at : at + 4] = u32(dice.choice((0, 1, 2**31, 2**32 - 1, dice.randrange(2**32))))
        else:
            at = dice.randrange(len(data) + 1)
            data[at:at] = data[:at]
    return kind, bytes(data)


@pytest.mark.parametrize("seed", range(150))
def test_mutated_frames_never_crash(seed: int) -> None:
    dice = random.Random(seed)
    home, node = pair(2)
    client = node.client()
    client.call(1, "confirm.select")
    client.exchange(method(1, "basic.consume", 0, "q1", "tag"))
    settle(node)
    for _ in range(30):
        client.send(b"".join(publish(1, "", f"q{dice.randint(1, 2)}", b"b" * 9) for _ in range(3)))
        client.frames()
        client.send(method(1, "basic.ack", 0, True))
        node.gateway.request(CONSUME if dice.random() < 0.1 else 9, json.dumps({}).encode())
        node.end_turn()
        link = node.link
        assert link is not None
        try:
            for peer in (link.dialled, link.accepted):
                waiting = peer.waiting()
                if waiting and dice.random() < 0.3:
                    at = dice.randrange(len(waiting))
                    peer.tamper(at, *mutate(dice, *waiting[at]))
            link.carry_out()
            link.carry_back()
            node.end_turn()
        except (ValueError, KeyError, TypeError):
            # The last two are the test's own handler of requests.
            link.cut()
            node.connect()
        for queue in home.queues.values():
            queue.check()


@pytest.mark.parametrize("seed", range(20))
def test_noise(seed: int) -> None:
    dice = random.Random(seed)
    sinks: list[FrameSink] = []
    for _ in range(200):
        if not sinks:
            home, node = busy()
            sinks = [home.ends[0], node.gateway]
        sink = dice.choice(sinks)
        kind = dice.choice((*range(32, 38), 47, *range(48, 52)))
        try:
            feed(sink, kind, dice.randbytes(dice.choice((0, 8, 12, 16, 17, 30, 34, 60))))
            end_turn(sink)
        except (ValueError, KeyError, TypeError):
            sink.link_lost()
            sinks = []
