"""Consuming: prefetch, settlement, priorities, exclusive and single active consumers, cancels."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Clients
from live_broker import Operator
from raw_client import Closed, RawChannel


def refused(code: int, text: str, scope: str = "channel") -> Closed:
    return Closed(scope, code, text)


def fill(channel: RawChannel, queue: str, count: int, **properties: Any) -> None:
    for number in range(count):
        channel.publish(queue, b"%d" % number, **properties)
    channel.wait_depth(queue, count)


# -- prefetch --------------------------------------------------------------------------------------


def test_prefetch_is_per_consumer(channel: RawChannel) -> None:
    for queue in ("a", "b"):
        channel.declare(queue)
        fill(channel, queue, 10)
    channel.qos(2)
    channel.consume("a", "a")
    assert len(channel.deliveries(2)) == 2
    assert channel.quiet()
    channel.qos(3)
    channel.consume("b", "b")
    found = channel.deliveries(3)
    assert {delivery.consumer_tag for delivery in found} == {"b"}
    assert channel.quiet()
    channel.ack(found[0].delivery_tag)
    assert channel.delivery().consumer_tag == "b"
    assert channel.quiet()


def test_global_prefetch_is_shared(channel: RawChannel) -> None:
    channel.qos(3, shared=True)
    for queue in ("a", "b"):
        channel.consume(channel.declare(queue))
    for _ in range(10):
        channel.publish("a")
        channel.publish("b")
    found = channel.deliveries(3)
    assert channel.quiet()
    channel.ack(found[-1].delivery_tag, multiple=True)
    channel.deliveries(3)
    assert channel.quiet()
    channel.qos(5, shared=True)
    channel.deliveries(2)
    channel.qos(0, shared=True)
    assert len(channel.deliveries(12)) == 12


def test_both_limits_hold(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 10)
    channel.qos(2)
    channel.qos(3, shared=True)
    channel.consume("q", "a")
    channel.deliveries(2)
    channel.consume("q", "b")
    assert channel.delivery().consumer_tag == "b"
    assert channel.quiet()


def test_prefetch_zero_is_unlimited(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 50)
    channel.qos(0)
    channel.consume("q")
    assert len(channel.deliveries(50)) == 50


def test_prefetch_does_not_limit_get_or_no_ack(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 6)
    channel.qos(1)
    channel.qos(1, shared=True)
    for _ in range(3):
        assert channel.get("q", no_ack=False) is not None
    channel.consume("q", no_ack=True)
    assert len(channel.deliveries(3)) == 3


def test_prefetch_size_is_not_implemented(channel: RawChannel) -> None:
    assert channel.refused("basic.qos", prefetch_size=10) == refused(
        540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)", "connection"
    )


# -- consuming -------------------------------------------------------------------------------------


def test_deliver_fields(channel: RawChannel) -> None:
    channel.bind(channel.declare("q"), "amq.direct", "k")
    tag = channel.consume("q")
    assert tag.startswith("amq.ctag-")
    for number in range(2):
        channel.publish("k", b"%d" % number, "amq.direct")
    first, second = channel.deliveries(2)
    assert first.values == {
        "consumer_tag": tag,
        "delivery_tag": 1,
        "redelivered": False,
        "exchange": "amq.direct",
        "routing_key": "k",
    }
    assert second.delivery_tag == 2


def test_consume_missing_queue(channel: RawChannel, vhost: str) -> None:
    assert channel.refused("basic.consume", queue="q") == refused(
        404, f"NOT_FOUND - no queue 'q' in vhost '{vhost}'"
    )


def test_duplicate_tag(clients: Clients) -> None:
    channel = clients.channel()
    channel.declare("q")
    channel.consume("q", "t")
    other = channel.connection.channel(2)
    other.consume("q", "t")
    assert channel.refused("basic.consume", queue="q", consumer_tag="t") == refused(
        530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", "connection"
    )


def test_consume_no_wait(channel: RawChannel) -> None:
    channel.declare("q")
    channel.send("basic.consume", queue="q", consumer_tag="t", no_ack=True, no_wait=True)
    channel.publish("q", b"m")
    assert channel.delivery().consumer_tag == "t"
    channel.send("basic.cancel", consumer_tag="t", no_wait=True)
    channel.publish("q", b"n")
    channel.wait_depth("q", 1)


def test_cancel(channel: RawChannel) -> None:
    channel.declare("q")
    channel.consume("q", "t")
    channel.publish("q", b"1")
    delivery = channel.delivery()
    assert channel.call("basic.cancel", consumer_tag="t").consumer_tag == "t"
    channel.publish("q", b"2")
    channel.wait_depth("q", 1)
    # What is out stays out and can still be settled.
    channel.ack(delivery.delivery_tag)
    channel.call("basic.cancel", consumer_tag="unknown")
    assert channel.bodies("q") == [b"2"]


def test_round_robin(clients: Clients) -> None:
    channel = clients.channel()
    channel.declare("q")
    for tag in ("a", "b", "c"):
        channel.consume("q", tag)
    for number in range(9):
        channel.publish("q", b"%d" % number)
    found = channel.deliveries(9)
    assert sorted(d.consumer_tag for d in found) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert [d.body for d in found] == [b"%d" % number for number in range(9)]


def test_exclusive_consumer(clients: Clients, vhost: str) -> None:
    channel = clients.channel()
    channel.declare("q")
    channel.consume("q", "a", exclusive=True)
    text = f"ACCESS_REFUSED - queue 'q' in vhost '{vhost}' in exclusive use"
    assert clients.channel().refused("basic.consume", queue="q") == refused(403, text)
    assert clients.channel().refused("basic.consume", queue="q", exclusive=True) == refused(
        403, text
    )
    channel.call("basic.cancel", consumer_tag="a")
    other = clients.channel()
    other.consume("q", "b")
    assert channel.refused("basic.consume", queue="q", exclusive=True) == refused(403, text)


def test_consumer_priority(channel: RawChannel) -> None:
    channel.declare("q")
    channel.qos(2)
    channel.consume("q", "low", arguments={"x-priority": -1})
    channel.consume("q", "none")
    channel.consume("q", "high", arguments={"x-priority": 10})
    for _ in range(6):
        channel.publish("q")
    found = channel.deliveries(6)
    assert [d.consumer_tag for d in found] == ["high"] * 2 + ["none"] * 2 + ["low"] * 2
    channel.ack(found[0].delivery_tag)
    channel.ack(found[4].delivery_tag)
    channel.publish("q")
    assert channel.delivery().consumer_tag == "high"


@pytest.mark.parametrize("value", ["high", 1.5, True])
def test_consumer_priority_of_wrong_type(channel: RawChannel, vhost: str, value: object) -> None:
    channel.declare("q")
    kind = {str: "longstr", float: "double", bool: "bool"}[type(value)]
    assert channel.refused("basic.consume", queue="q", arguments={"x-priority": value}) == refused(
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '{vhost}': "
        f'"expected integer, got {kind}"',
    )


def test_single_active_consumer(warren_only: None, clients: Clients, vhost: str) -> None:
    owner = clients.channel()
    owner.declare("q", {"x-single-active-consumer": True})
    first, second, third = (clients.channel() for _ in range(3))
    for number, channel in enumerate((first, second, third)):
        channel.qos(1)
        channel.consume("q", f"c{number}")
    for number in range(3):
        owner.publish("q", b"%d" % number)
    held = first.delivery()
    assert held.body == b"0"
    assert first.quiet()
    assert second.quiet()
    first.ack(held.delivery_tag)
    assert first.delivery().body == b"1"
    first.close()
    found = second.delivery()
    assert (found.body, found.redelivered) == (b"1", True)
    assert third.quiet()
    second.call("basic.cancel", consumer_tag="c1")
    owner.publish("q", b"3")
    assert third.delivery().body == b"2"
    assert owner.refused("basic.consume", queue="q", exclusive=True) == refused(
        403, f"ACCESS_REFUSED - queue 'q' in vhost '{vhost}' in exclusive use"
    )


def test_cancel_notify(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    old = clients.channel(capabilities={})
    channel.declare("q")
    channel.consume("q", "t")
    old.consume("q", "t")
    other.call("queue.delete", queue="q")
    cancel = channel.expect("basic.cancel")
    assert (cancel.consumer_tag, cancel.no_wait) == ("t", True)
    assert old.quiet()
    channel.declare("q")
    channel.consume("q", "t")


def test_cancel_notify_answered(channel: RawChannel, node: object) -> None:
    """Some clients answer, though it asks for no answer."""
    channel.declare("q")
    channel.consume("q", "t")
    channel.connection.channel(2).call("queue.delete", queue="q")
    channel.expect("basic.cancel")
    channel.send("basic.cancel-ok", consumer_tag="t")
    channel.declare("q")


def test_consumer_timeout_by_policy(
    clients: Clients, vhost: str, operator: Operator, node: object
) -> None:
    channel = clients.channel()
    channel.declare("q")
    operator.set_policy(vhost, "t", "^q$", {"consumer-timeout": 100}, apply_to="queues")
    channel.consume("q", "slow")
    channel.publish("q", b"1")
    channel.delivery()
    refusal = channel.connection.closed(1)
    assert refusal[:2] == ("channel", 406)
    assert refusal.text.startswith(
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. "
        "Timeout value used: 100 ms. "
    )
    again = clients.channel().wait_get("q")
    assert (again.body, again.redelivered) == (b"1", True)


def test_consumer_timeout_counts_from_the_delivery(
    clients: Clients, vhost: str, operator: Operator, node: object
) -> None:
    """Not from when the consumer's connection was last heard of."""
    idle, publisher = clients.channel(), clients.channel()
    idle.declare("q")
    operator.set_policy(vhost, "t", "^q$", {"consumer-timeout": 400}, apply_to="queues")
    idle.consume("q")
    assert idle.quiet(0.5)
    publisher.publish("q", b"1")
    started = time.monotonic()
    idle.delivery()
    assert idle.connection.closed(1)[:2] == ("channel", 406)
    assert time.monotonic() - started >= 0.4


def test_a_dying_connection_delivers_nothing_to_itself(
    clients: Clients, channel: RawChannel
) -> None:
    """Its channels end together: one return counts once against the delivery limit."""
    channel.declare("q", {"x-delivery-limit": 2})
    channel.publish("q", b"m")
    channel.wait_depth("q", 1)
    dying = clients.connect()
    for number in range(1, 6):
        dying.channel(number).consume("q")
    channel.wait_depth("q", 0)
    dying.drop()
    channel.wait_depth("q", 1)
    again = channel.get("q", no_ack=False)
    assert again is not None
    assert (again.body, again.redelivered) == (b"m", True)
    channel.nack(again.delivery_tag)
    assert channel.depth("q") == 1


# -- settling --------------------------------------------------------------------------------------


def test_get(channel: RawChannel, vhost: str) -> None:
    channel.bind(channel.declare("q"), "amq.direct", "k")
    assert channel.get("q") is None
    for number in range(3):
        channel.publish("k", b"%d" % number, "amq.direct")
    channel.wait_depth("q", 3)
    found = channel.get("q", no_ack=False)
    assert found is not None
    assert found.values == {
        "delivery_tag": 1,
        "redelivered": False,
        "exchange": "amq.direct",
        "routing_key": "k",
        "message_count": 2,
    }
    assert channel.refused("basic.get", queue="missing") == refused(
        404, f"NOT_FOUND - no queue 'missing' in vhost '{vhost}'"
    )


@pytest.mark.parametrize("method", ["basic.ack", "basic.nack", "basic.reject"])
@pytest.mark.parametrize("tag", [0, 1, 99, 2**63])
def test_unknown_tag(channel: RawChannel, method: str, tag: int) -> None:
    assert channel.refused(method, delivery_tag=tag) == refused(
        406, f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    )


def test_settled_tag(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 3)
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.ack(2)
    assert channel.refused("basic.ack", delivery_tag=2) == refused(
        406, "PRECONDITION_FAILED - unknown delivery tag 2"
    )


def test_tag_of_a_no_ack_delivery(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 1)
    channel.get("q", no_ack=True)
    assert channel.refused("basic.ack", delivery_tag=1).code == 406


def test_tag_of_another_channel(connection: Any) -> None:
    first, second = connection.channel(1), connection.channel(2)
    first.declare("q")
    fill(first, "q", 1)
    first.get("q", no_ack=False)
    assert second.refused("basic.ack", delivery_tag=1).code == 406


@pytest.mark.parametrize("tag", [0, 3])
def test_multiple(clients: Clients, tag: int) -> None:
    channel = clients.channel()
    channel.declare("q")
    fill(channel, "q", 3)
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.ack(1)
    channel.ack(tag, multiple=True)
    # All of nothing is no error.
    channel.ack(0, multiple=True)
    channel.declare("other")
    channel.close()
    assert clients.channel().depth("q") == 0


def test_requeue_to_the_original_place(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 5)
    for _ in range(4):
        channel.get("q", no_ack=False)
    channel.nack(3)
    channel.reject(1, requeue=True)
    channel.ack(2)
    channel.nack(4, requeue=False)
    channel.wait_depth("q", 3)
    found = [channel.get("q") for _ in range(3)]
    assert [(m.body, m.redelivered) for m in found if m is not None] == [
        (b"0", True),
        (b"2", True),
        (b"4", False),
    ]


@pytest.mark.parametrize("tag", [0, 3])
def test_nack_multiple(channel: RawChannel, tag: int) -> None:
    channel.declare("q")
    fill(channel, "q", 3)
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.nack(tag, multiple=True)
    channel.wait_depth("q", 3)
    assert channel.bodies("q") == [b"0", b"1", b"2"]


def test_channel_end_requeues(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    channel.declare("q")
    fill(channel, "q", 3)
    channel.consume("q")
    channel.deliveries(3)
    channel.ack(2)
    channel.close()
    other.wait_depth("q", 2)
    found = [other.get("q") for _ in range(2)]
    assert [(m.body, m.redelivered) for m in found if m is not None] == [
        (b"0", True),
        (b"2", True),
    ]


def test_lost_connection_requeues(clients: Clients) -> None:
    channel, other = clients.channel(), clients.channel()
    channel.declare("q")
    fill(channel, "q", 3)
    channel.consume("q")
    channel.deliveries(3)
    other.consume("q")
    channel.connection.drop()
    assert [(d.body, d.redelivered) for d in other.deliveries(3)] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
    ]


def test_recover(clients: Clients) -> None:
    channel = clients.channel()
    channel.declare("q")
    fill(channel, "q", 2)
    channel.consume("q")
    channel.deliveries(2)
    channel.send("basic.recover", requeue=True)
    found = [channel.next() for _ in range(3)]
    assert sorted(f.name for f in found) == ["basic.deliver", "basic.deliver", "basic.recover-ok"]
    again = [f for f in found if f.name == "basic.deliver"]
    assert [(d.body, d.redelivered, d.delivery_tag) for d in again] == [
        (b"0", True, 3),
        (b"1", True, 4),
    ]
    channel.send("basic.recover-async", requeue=True)
    assert len(channel.deliveries(2)) == 2
    assert channel.refused("basic.recover", requeue=False) == refused(
        540, "NOT_IMPLEMENTED - requeue=false", "connection"
    )


def test_reject_requeue_goes_on_to_another_consumer(clients: Clients) -> None:
    first, second = clients.channel(), clients.channel()
    first.declare("q")
    for channel in (first, second):
        channel.qos(1)
        channel.consume("q")
    first.publish("q", b"m")
    held = first.delivery()
    first.reject(held.delivery_tag, requeue=True)
    found = second.delivery()
    assert (found.body, found.redelivered) == (b"m", True)


def test_order_holds_through_requeues(channel: RawChannel) -> None:
    channel.declare("q")
    fill(channel, "q", 20)
    channel.qos(5)
    channel.consume("q")
    taken: list[bytes] = []
    held = channel.deliveries(5)
    channel.nack(held[-1].delivery_tag, multiple=True)
    while len(taken) < 20:
        found = channel.delivery()
        taken.append(found.body)
        channel.ack(found.delivery_tag)
    assert taken == [b"%d" % number for number in range(20)]


# -- priority queues -------------------------------------------------------------------------------


def test_priority_queue(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-priority": 5})
    for priority in (None, 1, 5, 9, 0, 3, 5):
        properties = {} if priority is None else {"priority": priority}
        channel.publish("q", str(priority).encode(), **properties)
    channel.wait_depth("q", 7)
    assert channel.bodies("q") == [b"5", b"9", b"5", b"3", b"1", b"None", b"0"]


def test_priority_queue_requeues_in_place(channel: RawChannel) -> None:
    channel.declare("q", {"x-max-priority": 2})
    for priority in (1, 2, 1, 2):
        channel.publish("q", b"%d" % priority, priority=priority)
    channel.wait_depth("q", 4)
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.nack(0, multiple=True)
    channel.wait_depth("q", 4)
    assert channel.bodies("q") == [b"2", b"2", b"1", b"1"]


def test_priority_is_ignored_by_other_queues(channel: RawChannel) -> None:
    channel.declare("q")
    for priority in (1, 9):
        channel.publish("q", b"%d" % priority, priority=priority)
    channel.wait_depth("q", 2)
    assert channel.bodies("q") == [b"1", b"9"]
