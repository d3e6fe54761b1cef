"""A new master is told what clients hold, and keeps that out."""

from __future__ import annotations

from warren.engine.effects import Effects
from warren.model.message import Address
from warren.queue.queue import Queue
from warren.wire.content import make_message
from warren.wire.properties import encode_properties


def test_what_was_never_given_out_is_with_nobody() -> None:
    """A fork had another message in that place, which its client would acknowledge."""
    queue = Queue("q", Effects())
    for number in range(3):
        queue.offer(make_message(Address(b"", b"k"), encode_properties({}, 0), b"%d" % number), 100)
    queue.flag([0, 2])
    assert queue.adopt([0, 1, 7]) == [0]
    assert (queue.ready, queue.unacked) == (2, 1)
    for expected in ((b"1", 1, False), (b"2", 2, True)):
        message, slot, redelivered = queue.get(False, 100)  # type: ignore[misc]
        assert (message.body, slot, redelivered) == expected
