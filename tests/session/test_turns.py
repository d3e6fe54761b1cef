"""What a turn owes to those who are not part of it: fair shares, the right time, no collateral."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pair import Client, make_engine, method, publish


def tags(frames: list[Any]) -> list[str]:
    return [frame["consumer_tag"] for frame in frames if frame.name == "basic.deliver"]


def test_shared_prefetch_is_shared_between_queues() -> None:
    client = Client(make_engine(), channels=1)
    client.call(1, "basic.qos", 0, 1, True)
    for name in "ab":
        client.call(1, "queue.declare", 0, name)
        client.exchange(publish(1, "", name) * 20)
    served = []
    for name in "ab":
        served += tags(client.exchange(method(1, "basic.consume", 0, name, name)))
    for tag in range(1, 40):
        served += tags(client.exchange(method(1, "basic.ack", tag)))
    assert sorted(served) == ["a"] * 20 + ["b"] * 20
    assert {"a", "b"} == set(served[:10])


def test_a_peer_that_reads_again_serves_all_its_consumers() -> None:
    client = Client(make_engine(), channels=1)
    for name, count in (("long", 2000), ("short", 10)):
        client.call(1, "queue.declare", 0, name)
        client.exchange(publish(1, "", name, bytes(1000)) * count)
    # The peer does not read: the first consumer takes all the room there is.
    client.send(
        method(1, "basic.consume", 0, "long", "long", False, True)
        + method(1, "basic.consume", 0, "short", "short", False, True)
    )
    served = tags(client.frames())
    assert "short" not in served
    client.peer.became_writable()
    served = tags(client.frames())
    assert served.count("short") == 10
    assert served.index("short") < 100


def test_closes_that_cross() -> None:
    """The client's channel.close and ours are both under way; each side answers the other's."""
    client = Client(make_engine(), channels=1)
    names = [f.name for f in client.exchange(method(1, "queue.declare", 0, "gone", True))]
    assert names == ["channel.close"]
    names = [f.name for f in client.exchange(method(1, "channel.close", 200, "", 0, 0))]
    assert names == ["channel.close-ok"]
    assert client.exchange(method(1, "channel.close-ok")) == []
    assert [f.name for f in client.exchange(method(1, "channel.open"))] == ["channel.open-ok"]


def test_closes_that_cross_and_a_client_that_owes_an_answer() -> None:
    client = Client(make_engine(), channels=1)
    client.exchange(method(1, "queue.declare", 0, "gone", True))
    client.exchange(method(1, "channel.close", 200, "", 0, 0))
    assert [f.name for f in client.exchange(method(1, "channel.open"))] == ["channel.open-ok"]


def test_a_long_backlog_is_delivered_whole_without_another_turn() -> None:
    client = Client(make_engine(), channels=1)
    client.call(1, "queue.declare", 0, "q")
    for _ in range(40):
        client.exchange(publish(1, "", "q") * 500)
    count = len(tags(client.exchange(method(1, "basic.consume", 0, "q", "c", False, True))))
    for _ in range(1000):
        if count == 20000:
            break
        client.peer.became_writable()
        count += len(tags(client.frames()))
    assert count == 20000


def test_one_fault_after_an_operation_does_not_take_the_others_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = make_engine()
    engine.log = logging.getLogger("test")
    done: list[str] = []

    def fail(_now_ms: int) -> None:
        raise RuntimeError("on purpose")

    engine.later(fail)
    engine.later(lambda _now_ms: done.append("later"))
    now_ms = engine.clock.now_ms()
    engine.timers.at(now_ms, fail)
    engine.timers.at(now_ms, lambda _now_ms: done.append("timer"))
    engine.tick()
    assert sorted(done) == ["later", "timer"]
    assert caplog.text.count("a fault of ours") == 2


def test_what_several_channels_gave_back_goes_out_in_order() -> None:
    engine = make_engine()
    holder, heir = Client(engine, channels=2), Client(engine, channels=1)
    holder.call(1, "queue.declare", 0, "q")
    holder.exchange(b"".join(publish(1, "", "q", bytes([i])) for i in range(4)))
    for channel in (2, 1, 2, 1):
        holder.exchange(method(channel, "basic.get", 0, "q"))
    heir.call(1, "basic.consume", 0, "q", "heir", False, True)
    holder.hang_up()
    bodies = [frame.payload for frame in heir.frames() if frame.kind == 3]
    assert bodies == [b"\0", b"\1", b"\2", b"\3"]
