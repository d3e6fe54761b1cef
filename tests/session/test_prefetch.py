"""Limits on what a consumer may have unacknowledged hold wherever the messages come from."""

from __future__ import annotations

from pair import Client, make_engine, method, publish


def deliveries(client: Client, data: bytes) -> list[int]:
    """The delivery tags that come back."""
    return [f["delivery_tag"] for f in client.exchange(data) if f.name == "basic.deliver"]


def consuming(limit: int, shared: bool) -> Client:
    """One channel that consumes from queues a and b."""
    client = Client(make_engine(), channels=1)
    client.call(1, "basic.qos", 0, limit, shared)
    for name in "ab":
        client.call(1, "queue.declare", 0, name)
        client.call(1, "basic.consume", 0, name, name)
    return client


def test_shared_limit_counts_all_queues() -> None:
    client = consuming(1, shared=True)
    assert deliveries(client, publish(1, "", "a")) == [1]
    assert deliveries(client, publish(1, "", "b")) == []
    assert deliveries(client, publish(1, "", "a")) == []
    assert deliveries(client, method(1, "basic.ack", 1)) == [2]
    assert deliveries(client, method(1, "basic.ack", 2)) == [3]
    assert deliveries(client, method(1, "basic.ack", 3)) == []


def test_own_limit_is_each_consumers() -> None:
    client = consuming(1, shared=False)
    assert deliveries(client, publish(1, "", "a") * 2) == [1]
    assert deliveries(client, publish(1, "", "b") * 2) == [2]
    assert deliveries(client, method(1, "basic.ack", 2)) == [3]
    assert deliveries(client, method(1, "basic.nack", 0, True, True)) == [4, 5]


def test_limit_shrinks_while_consuming() -> None:
    client = consuming(0, shared=True)
    assert deliveries(client, publish(1, "", "a") * 3) == [1, 2, 3]
    client.call(1, "basic.qos", 0, 2, True)
    assert deliveries(client, publish(1, "", "b")) == []
    assert deliveries(client, method(1, "basic.ack", 1)) == []
    assert deliveries(client, method(1, "basic.ack", 3, True)) == [4]


def test_a_peer_that_does_not_read_gets_no_more() -> None:
    """What is sent in vain is bounded: what stalls it, and one message for each consumer."""
    client = Client(make_engine(), channels=1)
    for name in "abcd":
        client.call(1, "queue.declare", 0, name)
        client.call(1, "basic.consume", 0, name, name, False, True)
    body = bytes(100_000)
    for _ in range(20):
        for name in "abcd":
            client.send(publish(1, "", name, body))
    assert client.peer.outlet.pending_bytes < 262_144 + 5 * 100_100
    tags = 0
    while client.peer.outlet.pending_bytes:
        tags += sum(f.name == "basic.deliver" for f in client.frames())
        client.peer.became_writable()
    assert tags == 80
