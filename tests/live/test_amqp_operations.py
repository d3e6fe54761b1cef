"""What the broker does on its own or for its operator: tracing, alarms, heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable

from conftest import Clients
from live_broker import LiveNode, Operator
from raw_client import Closed, RawChannel, SocketClosedError, frame

# -- the firehose ----------------------------------------------------------------------------------


def test_firehose(clients: Clients, vhost: str, operator: Operator) -> None:
    watching = clients.channel()
    watching.bind(watching.declare("seen"), "amq.rabbitmq.trace", "#")
    operator.trace(vhost, True)
    channel = clients.channel()
    channel.bind(channel.declare("q"), "amq.direct", "k")
    channel.publish("k", b"body", "amq.direct", message_id="7", headers={"CC": ["other"]})
    channel.wait_get("q")
    published, delivered = watching.wait_get("seen"), watching.wait_get("seen")
    if published.routing_key.startswith("deliver"):
        published, delivered = delivered, published
    operator.trace(vhost, False)
    assert published.exchange == "amq.rabbitmq.trace"
    assert published.routing_key == "publish.amq.direct"
    assert published.body == b"body"
    headers = published.headers
    assert headers["exchange_name"] == "amq.direct"
    assert headers["routing_keys"] == ["k", "other"]
    assert headers["properties"]["message_id"] == "7"
    assert headers["vhost"] == vhost
    assert headers["user"] == "guest"
    assert headers["channel"] == 1
    assert headers["routed_queues"] == ["q"]
    assert "->" in headers["connection"]
    assert "@" in headers["node"]
    assert delivered.routing_key == "deliver.q"
    assert delivered.headers["redelivered"] == 0
    assert "routed_queues" not in delivered.headers
    channel.publish("k", b"body", "amq.direct")
    channel.wait_get("q")
    assert watching.get("seen") is None


def test_firehose_shows_consumers_and_redelivery(
    clients: Clients, vhost: str, operator: Operator
) -> None:
    watching = clients.channel()
    watching.bind(watching.declare("seen"), "amq.rabbitmq.trace", "deliver.#")
    operator.trace(vhost, True)
    channel = clients.channel()
    channel.declare("q")
    channel.consume("q")
    channel.publish("q", b"m")
    channel.nack(channel.delivery().delivery_tag)
    channel.delivery()
    found = [watching.wait_get("seen") for _ in range(2)]
    operator.trace(vhost, False)
    assert [f.headers["redelivered"] for f in found] == [0, 1]


# -- alarms ----------------------------------------------------------------------------------------


def test_blocked_and_unblocked(node: LiveNode, clients: Clients) -> None:
    engine = node.node.engine
    publisher, consumer = clients.channel(), clients.channel()
    old = clients.channel(capabilities={})
    consumer.declare("q")
    consumer.consume("q", no_ack=True)
    node.call(lambda: engine.set_alarm("disk", True))
    try:
        # A connection that has not published yet is told at its first try.
        assert publisher.quiet(0.05)
        publisher.publish("q", b"1")
        blocked = publisher.expect("connection.blocked")
        assert blocked.reason == "low on disk"
        publisher.publish("q", b"2")
        old.publish("q", b"3")
        assert old.quiet(0.05)
        node.call(lambda: engine.set_alarm("disk", True))
        assert publisher.quiet(0.05)
        # Consumers go on as ever.
        consumer.connection.channel(2).declare("other")
    finally:
        node.call(lambda: engine.set_alarm("disk", False))
    assert publisher.next().name == "connection.unblocked"
    bodies = {consumer.delivery().body for _ in range(3)}
    assert bodies == {b"1", b"2", b"3"}


def test_unblocked_when_all_alarms_are_over(node: LiveNode, clients: Clients) -> None:
    engine = node.node.engine
    publisher = clients.channel()
    publisher.publish("nowhere", b"1")
    publisher.declare("q")
    node.call(lambda: engine.set_alarm("disk", True))
    publisher.publish("nowhere", b"2")
    assert publisher.expect("connection.blocked").reason == "low on disk"
    node.call(lambda: engine.set_alarm("memory", True))
    late = clients.channel()
    late.publish("nowhere", b"3")
    assert late.expect("connection.blocked").reason == "low on disk & memory"
    node.call(lambda: engine.set_alarm("disk", False))
    assert publisher.quiet(0.05)
    later = clients.channel()
    later.publish("nowhere", b"4")
    assert later.expect("connection.blocked").reason == "low on memory"
    # Those who are blocked already are not told again when the reasons change.
    assert late.quiet(0.05)
    node.call(lambda: engine.set_alarm("memory", False))
    for blocked in (publisher, late, later):
        blocked.expect("connection.unblocked")


def test_an_alarm_waits_for_the_next_publish(node: LiveNode, clients: Clients) -> None:
    """Whoever published once but only acknowledges now goes on being read."""
    engine = node.node.engine
    worker = clients.channel()
    worker.declare("q")
    worker.qos(1)
    for body in (b"1", b"2", b"3"):
        worker.publish("q", body)
    worker.wait_depth("q", 3)
    worker.consume("q")
    first = worker.delivery()
    node.call(lambda: engine.set_alarm("disk", True))
    try:
        assert worker.quiet(0.05)
        worker.ack(first.delivery_tag)
        worker.ack(worker.delivery().delivery_tag)
        assert worker.delivery().body == b"3"
        worker.publish("q", b"4")
        worker.expect("connection.blocked")
        worker.ack(3)
        assert worker.quiet(0.05)
    finally:
        node.call(lambda: engine.set_alarm("disk", False))
    worker.expect("connection.unblocked")
    assert worker.delivery().body == b"4"


# -- heartbeats ------------------------------------------------------------------------------------


def test_heartbeats_both_ways(clients: Clients, judge_time: Callable[[float, float], None]) -> None:
    """Ours come; a client that sends none is cut off, one that does stays."""
    silent, lively = clients.connect(heartbeat=1), clients.connect(heartbeat=1)
    started = time.monotonic()
    is_closed = False
    while not is_closed and time.monotonic() < started + 30:
        lively.socket.sendall(frame(8, 0, b""))
        try:
            silent.read(0.3)
        except TimeoutError:
            continue
        except SocketClosedError:
            is_closed = True
    assert is_closed
    took_s = time.monotonic() - started
    assert took_s > 1.5
    judge_time(took_s, 6)
    assert silent.heartbeats >= 1
    lively.channel().declare()
    assert lively.heartbeats >= 1


def test_heartbeat_frame_must_be_empty_and_on_channel_0(clients: Clients) -> None:
    connection = clients.connect()
    connection.socket.sendall(frame(8, 1, b""))
    assert connection.closed()[:2] == ("connection", 505)


# -- the broker ends connections -------------------------------------------------------------------


def test_connection_closed_by_the_operator(node: LiveNode, clients: Clients) -> None:
    from warren.model.errors import ConnectionForced

    connection = clients.connect()
    engine = node.node.engine
    reason = "CONNECTION_FORCED - Closed via management plugin"
    newest = node.call(lambda: list(engine.connections)[-1])
    node.call(lambda: newest.close(ConnectionForced("Closed via management plugin")))
    assert connection.closed() == Closed("connection", 320, reason)


# -- slow clients ----------------------------------------------------------------------------------


def test_consumer_that_does_not_read(clients: Clients, node: LiveNode) -> None:
    """Its messages wait in the queue, not in a buffer, and others are served meanwhile."""
    publisher, slow = clients.channel(), clients.channel()
    publisher.declare("q")
    slow.consume("q", no_ack=True)
    body = b"x" * 100_000
    count = 200
    for _ in range(count):
        publisher.publish("q", body)
    publisher.call("queue.declare", queue="q", passive=True)
    other = clients.channel()
    assert other.depth("q") > 0
    assert all(len(delivery.body) == len(body) for delivery in slow.deliveries(count))


def test_order_is_kept_for_a_slow_consumer(clients: Clients) -> None:
    publisher, slow = clients.channel(), clients.channel()
    publisher.declare("q")
    slow.qos(10)
    slow.consume("q")
    for number in range(300):
        publisher.publish("q", b"%d" % number)
    for number in range(300):
        found = slow.delivery()
        assert found.body == b"%d" % number
        slow.ack(found.delivery_tag)


def test_many_channels(channel: RawChannel) -> None:
    channels = [channel.connection.channel(number) for number in range(2, 200)]
    for other in channels:
        other.declare(f"q{other.number}", exclusive=True)
    for other in channels:
        other.publish(f"q{other.number}", b"%d" % other.number)
    for other in channels:
        assert other.wait_get(f"q{other.number}").body == b"%d" % other.number
