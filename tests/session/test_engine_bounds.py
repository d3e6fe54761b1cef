"""Bounds that the engine keeps: harmless traces, unread replies, back-pressure, timeouts."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pair import PEER, Client, make_engine, method, publish

from warren.engine import timeouts
from warren.engine.direct_reply import UNREAD_REPLY_BYTES_MAX
from warren.engine.engine import Engine
from warren.model.policy import Policy
from warren.model.ports import LinkPort, QueuePort
from warren.session.channel import Channel
from warren.session.connection import Connection
from warren.wire.properties import decode_properties
from warren.wire.tables import TABLE_DEPTH_MAX


def ready(engine: Engine, queue: str) -> int:
    return int(engine.vhosts["/"].queues[queue].ready)


def nested(depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {"a": 1}
    for _ in range(depth):
        table = {"a": table}
    return table


# -- the firehose ----------------------------------------------------------------------------------


@pytest.fixture
def traced() -> Client:
    client = Client(make_engine(), channels=1)
    for name in ("q", "seen"):
        client.call(1, "queue.declare", 0, name)
    client.call(1, "queue.bind", 0, "seen", "amq.rabbitmq.trace", "#")
    client.engine.set_tracing("/", True)
    return client


def trace_headers(client: Client) -> list[dict[str, Any]]:
    """The headers of all copies so far, oldest first."""
    client.engine.set_tracing("/", False)
    found = []
    while True:
        answer = client.exchange(method(1, "basic.get", 0, "seen", True))
        if answer[0].name == "basic.get-empty":
            return found
        found.append(decode_properties(answer[1].payload)["headers"])


@pytest.mark.parametrize("depth", range(TABLE_DEPTH_MAX - 5, TABLE_DEPTH_MAX))
def test_headers_too_deep_to_be_traced_do_no_harm(traced: Client, depth: int) -> None:
    assert traced.exchange(publish(1, "", "q", b"m", headers=nested(depth))) == []
    names = traced.names(method(1, "basic.consume", 0, "q", "t", False, True))
    assert names == ["basic.consume-ok", "basic.deliver"]
    published, delivered = trace_headers(traced)
    assert published["routed_queues"] == ["q"]
    assert delivered["redelivered"] == 0
    assert ("properties" in published) == (depth + 3 <= TABLE_DEPTH_MAX)


def test_headers_too_long_to_be_traced_do_no_harm(traced: Client) -> None:
    """A content header is one frame: what is said about a message may not fit beside its own."""
    headers = {"long": "x" * 130_900}
    assert traced.exchange(publish(1, "", "q", b"m", headers=headers)) == []
    assert ready(traced.engine, "q") == 1
    (published,) = trace_headers(traced)
    assert "properties" not in published
    assert published["exchange_name"] == ""


def test_a_trace_that_cannot_be_made_is_skipped_and_said_once(
    traced: Client, caplog: pytest.LogCaptureFixture
) -> None:
    engine = traced.engine
    engine.log = logging.getLogger("warren.heard")
    names = [f"{number:03}" + "x" * 240 for number in range(600)]
    traced.call(1, "exchange.declare", 0, "e", "fanout")
    for name in names:
        traced.call(1, "queue.declare", 0, name)
        traced.call(1, "queue.bind", 0, name, "e")
    with caplog.at_level(logging.WARNING):
        assert traced.exchange(publish(1, "e", "", b"m") * 3) == []
    assert [ready(engine, name) for name in names] == [3] * len(names)
    assert trace_headers(traced) == []
    assert sum("cannot be traced" in record.getMessage() for record in caplog.records) == 1


# -- direct replies --------------------------------------------------------------------------------


def test_replies_to_a_client_that_does_not_read_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = make_engine()
    engine.log = logging.getLogger("warren.heard")
    asking, answering = Client(engine, channels=1), Client(engine, channels=1)
    asking.call(1, "basic.consume", 0, "amq.rabbitmq.reply-to", "", False, True)
    address = engine.reply_address(asking.peer.open_channels()[0])
    assert address is not None
    size = 100_000
    with caplog.at_level(logging.WARNING):
        answering.exchange(publish(1, "", address, bytes(size)) * 40)
    assert asking.peer.outlet.pending_bytes <= UNREAD_REPLY_BYTES_MAX + 2 * size
    assert sum("replies are dropped" in record.getMessage() for record in caplog.records) == 1
    assert asking.output()
    answering.exchange(publish(1, "", address, b"read again"))
    assert "basic.deliver" in [frame.name for frame in asking.frames()]
    asking.hang_up()
    assert not engine.unread_replies
    assert not engine.reply_addresses
    assert not engine.reply_consumers


def test_each_channel_has_its_reply_address() -> None:
    engine = make_engine()
    client = Client(engine, channels=3)
    addresses = set()
    for number in (1, 2, 3):
        client.call(number, "basic.consume", 0, "amq.rabbitmq.reply-to", "t", False, True)
    for channel in client.peer.open_channels():
        addresses.add(engine.reply_address(channel))
    assert len(addresses) == 3
    assert addresses == set(engine.reply_consumers)
    client.call(2, "basic.cancel", "t")
    left = {engine.reply_address(channel) for channel in client.peer.open_channels()}
    assert left - {None} == set(engine.reply_consumers)
    assert len(left) == 3


# -- back-pressure ---------------------------------------------------------------------------------


class NotingLink(LinkPort):
    """Notes which queues its client was held back for."""

    def __init__(self) -> None:
        self.held: list[QueuePort] = []

    def hold(self, queue: QueuePort) -> None:
        self.held.append(queue)


def test_the_full_publish_holds_a_publisher_back_too() -> None:
    engine = make_engine()
    link = NotingLink()
    client = Client(engine, login=False)
    client.peer = Connection(engine, link, engine.settings.initial_frame_max)
    client.peer.peer = PEER
    client.login()
    client.call(1, "channel.open")
    client.call(1, "queue.declare", 0, "q")
    client.call(1, "queue.bind", 0, "q", "amq.match", "", arguments={"a": 1})
    client.call(1, "basic.qos", 0, 1)
    client.call(1, "basic.consume", 0, "q")
    client.exchange(publish(1, "amq.match", "", headers={"a": 1}) * 16_384)
    assert link.held == []
    client.exchange(publish(1, "amq.match", "", headers={"a": 1}) * 2)
    assert link.held
    assert set(link.held) == {engine.vhosts["/"].queues["q"]}


# -- consumer timeouts -----------------------------------------------------------------------------


def with_an_unsettled_delivery(engine: Engine) -> Client:
    client = Client(engine, channels=1)
    for name in ("q", "other"):
        client.call(1, "queue.declare", 0, name)
    client.exchange(publish(1, "", "q", b"m"))
    client.exchange(method(1, "basic.consume", 0, "q"))
    return client


def test_without_a_timeout_no_channel_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    with_an_unsettled_delivery(engine)
    # A timeout of a queue that nothing is taken from makes no work either.
    policy = Policy("/", "t", "^other$", {"consumer-timeout": 1000}, 0, "queues")
    engine.set_policy(policy)
    monkeypatch.setattr(timeouts, "_check", lambda *_: pytest.fail("looked at a channel"))
    timeouts.look(engine, engine.clock.now_ms() + 10**9)


def test_timed_queues_follow_policies_and_deletion() -> None:
    engine = make_engine()
    client = with_an_unsettled_delivery(engine)
    engine.set_policy(Policy("/", "t", ".*", {"consumer-timeout": 1000}, 0, "queues"))
    assert {queue.name for queue in engine.timed_queues} == {"q", "other"}
    client.call(1, "queue.delete", 0, "other")
    assert {queue.name for queue in engine.timed_queues} == {"q"}
    timeouts.look(engine, engine.clock.now_ms() + 1000)
    assert client.frames() == []
    timeouts.look(engine, engine.clock.now_ms() + 1001)
    assert [frame.name for frame in client.frames()] == ["channel.close"]
    engine.clear_policy("/", "t")
    assert not engine.timed_queues


def test_a_channel_is_gone_through_only_when_something_can_be_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = make_engine(consumer_timeout_ms=10_000)
    client = with_an_unsettled_delivery(engine)
    start_ms = engine.clock.now_ms()
    looks = []
    check = timeouts._check

    def counted(engine: Engine, channel: Channel, now_ms: int) -> None:
        looks.append(now_ms - start_ms)
        check(engine, channel, now_ms)

    monkeypatch.setattr(timeouts, "_check", counted)
    for second in range(1, 8):
        timeouts.look(engine, start_ms + second * 1000)
    assert looks == [1000]
    # A shorter timeout for what is out already counts at once.
    engine.set_policy(Policy("/", "t", "^q$", {"consumer-timeout": 9000}, 0, "queues"))
    timeouts.look(engine, start_ms + 8000)
    timeouts.look(engine, start_ms + 9000)
    assert looks == [1000, 8000]
    assert client.frames() == []
    timeouts.look(engine, start_ms + 9001)
    assert looks == [1000, 8000, 9001]
    assert [frame.name for frame in client.frames()] == ["channel.close"]
    assert not engine.timeout_looks


def test_a_timeout_for_all_queues() -> None:
    engine = make_engine(consumer_timeout_ms=500)
    client = with_an_unsettled_delivery(engine)
    timeouts.look(engine, engine.clock.now_ms() + 501)
    assert [frame.name for frame in client.frames()] == ["channel.close"]
