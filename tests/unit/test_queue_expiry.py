"""Messages expire at the head of their queue, whatever brought them there."""

from __future__ import annotations

import pytest

from warren.engine.effects import Effects
from warren.model.message import Address, Message
from warren.queue.queue import Queue
from warren.wire.content import make_message
from warren.wire.properties import encode_properties


def make(ttl_ms: int | None = None, priority: int = 0) -> Message:
    properties: dict[str, object] = {"priority": priority}
    if ttl_ms is not None:
        properties["expiration"] = str(ttl_ms)
    return make_message(Address(b"", b"k"), encode_properties(properties, 0), b"")


@pytest.fixture
def effects() -> Effects:
    return Effects()


def asked(effects: Effects) -> list[int]:
    """When the queue asked to be woken."""
    return [at_ms for _, at_ms in effects.take_expiries()]


def test_timer_for_a_message_that_comes_to_the_head(effects: Effects) -> None:
    queue = Queue("q", effects)
    queue.offer(make(), 100)
    queue.offer(make(ttl_ms=50), 100)
    assert asked(effects) == []
    queue.get(True, 110)
    assert asked(effects) == [150]
    queue.expire(150)
    assert queue.ready == 0


def test_timer_when_the_head_is_dropped_for_length(effects: Effects) -> None:
    queue = Queue("q", effects)
    queue.configure(max_length=1)
    queue.offer(make(), 100)
    queue.offer(make(ttl_ms=50), 100)
    assert asked(effects) == [150]


def test_timer_for_a_message_of_higher_priority(effects: Effects) -> None:
    queue = Queue("q", effects, max_priority=5)
    queue.offer(make(ttl_ms=500), 100)
    queue.offer(make(ttl_ms=50, priority=3), 100)
    assert asked(effects) == [600, 150]


def test_timer_for_what_comes_back(effects: Effects) -> None:
    queue = Queue("q", effects)
    queue.offer(make(ttl_ms=50), 100)
    found = queue.get(False, 100)
    assert found is not None
    queue.expire(150)
    assert asked(effects) == [150]
    queue.settle("requeue", found[1])
    assert asked(effects) == [150]
    queue.expire(151)
    assert queue.ready == queue.unacked == 0
