"""x-modulus-hash: publishes go across the queues, a consumer on its name takes from all."""

from __future__ import annotations

import time
from typing import Any

import pika
import pika.exceptions
import pytest

from warren.testing import Broker


@pytest.fixture
def channel(amqp_broker: Broker) -> Any:
    with pika.BlockingConnection(pika.URLParameters(amqp_broker.url)) as connection:
        yield connection.channel()


def make_shards(channel: Any, name: str, count: int) -> list[str]:
    channel.exchange_declare(name, "x-modulus-hash")
    names = [f"{name}.{n}" for n in range(count)]
    for queue in names:
        channel.queue_declare(queue)
        channel.queue_bind(queue, name, "")
    return names


def listen(channel: Any, enough: Any, within_s: float = 10.0) -> None:
    until_s = time.monotonic() + within_s
    while not enough():
        assert time.monotonic() < until_s
        channel.connection.process_data_events(0.05)


def test_a_consumer_on_the_name_drains_all(channel: Any) -> None:
    names = make_shards(channel, "events", 3)
    for n in range(60):
        channel.basic_publish("events", f"key {n}", b"%d" % n)
    counts = [channel.queue_declare(it, passive=True).method.message_count for it in names]
    assert sum(counts) == 60
    assert min(counts) > 0
    got: list[tuple[str, bytes]] = []
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))

    def on_message(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        got.append((method.consumer_tag, body))
        channel.basic_ack(method.delivery_tag)

    tag = channel.basic_consume("events", on_message)
    listen(channel, lambda: len(got) == 60)
    assert {it for it, _ in got} == {tag}
    assert {body for _, body in got} == {b"%d" % n for n in range(60)}
    # A queue that is bound later is taken from, too.
    channel.queue_declare("late")
    channel.queue_bind("late", "events", "")
    channel.basic_publish("", "late", b"late")
    listen(channel, lambda: (tag, b"late") in got)
    # One that goes is missed by nobody, until it was the last.
    for name in names:
        channel.queue_delete(name)
    channel.basic_publish("", "late", b"still")
    listen(channel, lambda: (tag, b"still") in got)
    assert cancelled == []
    channel.queue_delete("late")
    listen(channel, lambda: cancelled == [tag])


def test_cancelling_ends_all_members(channel: Any) -> None:
    names = make_shards(channel, "orders", 3)
    tag = channel.basic_consume("orders", lambda *_: None)
    listen(channel, lambda: [consumers(channel, it) for it in names] == [1, 1, 1])
    channel.basic_cancel(tag)
    assert [consumers(channel, it) for it in names] == [0, 0, 0]
    other = channel.connection.channel()
    other.basic_consume("orders", lambda *_: None)
    listen(channel, lambda: [consumers(channel, it) for it in names] == [1, 1, 1])
    other.close()
    assert [consumers(channel, it) for it in names] == [0, 0, 0]


def consumers(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.consumer_count)


@pytest.mark.parametrize(("name", "exclusive", "code"), [("none", False, 404), ("s", True, 530)])
def test_what_is_refused(channel: Any, name: str, exclusive: bool, code: int) -> None:
    make_shards(channel, "s", 2)
    channel.exchange_declare("none", "x-modulus-hash")
    closed = (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker)
    with pytest.raises(closed) as refused:
        channel.basic_consume(name, lambda *_: None, exclusive=exclusive)
    assert refused.value.reply_code == code
    if code == 530:
        return
    # An exchange of another type is no name of queues.
    again = channel.connection.channel()
    with pytest.raises(closed):
        again.basic_consume("amq.fanout", lambda *_: None)


def test_a_get_on_the_name_takes_from_all(channel: Any) -> None:
    names = make_shards(channel, "polled", 3)
    for n in range(30):
        channel.basic_publish("polled", f"key {n}", b"%d" % n)
    declared = channel.queue_declare("polled", passive=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == ("polled", 30, 0)
    got, first = [], set()
    for _ in range(30):
        method, _, body = channel.basic_get("polled")
        got.append(body)
        if len(got) <= 3:
            first.add(
                tuple(channel.queue_declare(it, passive=True).method.message_count for it in names)
            )
        channel.basic_ack(method.delivery_tag)
    assert {*got} == {b"%d" % n for n in range(30)}
    # Each has a turn, none is emptied first.
    assert len(first) == 3
    assert channel.basic_get("polled") == (None, None, None)
    assert channel.queue_declare("polled", passive=True).method.message_count == 0
    channel.basic_consume("polled", lambda *_: None)
    assert channel.queue_declare("polled", passive=True).method.consumer_count == 1
