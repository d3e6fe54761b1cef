"""What users write: the broker seen through pika."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from conftest import Server
from pika.adapters.blocking_connection import BlockingChannel


@pytest.fixture
def parameters(server: Server, vhost: str) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(server.host, server.port, vhost, heartbeat=0)


@pytest.fixture
def pika_channel(parameters: pika.ConnectionParameters) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def test_work_queue(pika_channel: BlockingChannel) -> None:
    channel = pika_channel
    channel.confirm_delivery()
    channel.queue_declare("tasks", durable=True)
    for number in range(20):
        channel.basic_publish("", "tasks", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    channel.basic_qos(prefetch_count=5)
    done: list[bytes] = []

    def work(ch: BlockingChannel, method: Any, _properties: Any, body: bytes) -> None:
        done.append(body)
        ch.basic_ack(method.delivery_tag)
        if len(done) == 20:
            ch.stop_consuming()

    channel.basic_consume("tasks", work)
    channel.start_consuming()
    assert done == [b"%d" % number for number in range(20)]


def test_publish_and_subscribe(pika_channel: BlockingChannel) -> None:
    channel = pika_channel
    channel.exchange_declare("logs", "topic")
    queues = {}
    for key in ("*.error", "app.#"):
        queues[key] = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queues[key], "logs", key)
    channel.basic_publish("logs", "app.error", b"1")
    channel.basic_publish("logs", "db.error", b"2")
    channel.basic_publish("logs", "app.x.y", b"3")
    found = {
        key: [body for _, _, body in iter(lambda q=q: channel.basic_get(q, True), (None,) * 3)]
        for key, q in queues.items()
    }
    assert found == {"*.error": [b"1", b"2"], "app.#": [b"1", b"3"]}


def test_unroutable(pika_channel: BlockingChannel) -> None:
    pika_channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        pika_channel.basic_publish("", "nowhere", b"m", mandatory=True)


def test_nacked(pika_channel: BlockingChannel) -> None:
    pika_channel.confirm_delivery()
    pika_channel.queue_declare("q", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    with pytest.raises(pika.exceptions.NackError):
        pika_channel.basic_publish("", "q", b"m")


def test_channel_closed_by_broker(pika_channel: BlockingChannel, vhost: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
        pika_channel.queue_declare("missing", passive=True)
    assert raised.value.reply_code == 404
    assert raised.value.reply_text == f"NOT_FOUND - no queue 'missing' in vhost '{vhost}'"
    assert pika_channel.connection.channel().queue_declare("q").method.queue == "q"


def test_wrong_password(parameters: pika.ConnectionParameters) -> None:
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_rpc_by_direct_reply(parameters: pika.ConnectionParameters) -> None:
    ready = threading.Event()

    def serve() -> None:
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("rpc")

        def answer(ch: BlockingChannel, _m: Any, properties: Any, body: bytes) -> None:
            ch.basic_publish("", properties.reply_to, body.upper())
            ch.stop_consuming()

        channel.basic_consume("rpc", answer, auto_ack=True)
        ready.set()
        channel.start_consuming()
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(5)
    connection = pika.BlockingConnection(parameters)
    pending: list[bytes] = []
    channel = connection.channel()
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _c, _m, _p, body: pending.append(body),
        auto_ack=True,
    )
    channel.basic_publish(
        "", "rpc", b"ping", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    )
    while not pending:
        connection.process_data_events(1)
    assert pending == [b"PING"]
    thread.join(5)
    connection.close()


def test_transactions(pika_channel: BlockingChannel) -> None:
    pika_channel.queue_declare("q")
    pika_channel.tx_select()
    pika_channel.basic_publish("", "q", b"1")
    pika_channel.tx_rollback()
    pika_channel.basic_publish("", "q", b"2")
    pika_channel.tx_commit()
    assert pika_channel.basic_get("q", True)[2] == b"2"
    assert pika_channel.basic_get("q", True)[2] is None


def test_consumer_cancelled(pika_channel: BlockingChannel) -> None:
    pika_channel.queue_declare("q")
    cancelled: list[str] = []
    pika_channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = pika_channel.basic_consume("q", lambda *_: None)
    pika_channel.queue_delete("q")
    pika_channel.connection.process_data_events(0.2)
    assert cancelled == [tag]


def test_delay_by_dead_letter(pika_channel: BlockingChannel) -> None:
    """The usual way to retry later: a queue nobody consumes, whose dead go back to work."""
    channel = pika_channel
    channel.queue_declare("work")
    channel.queue_declare(
        "later",
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"},
    )
    channel.basic_publish("", "later", b"again", pika.BasicProperties(expiration="50"))
    for method, properties, body in channel.consume("work", inactivity_timeout=5):
        assert method is not None
        assert body == b"again"
        assert properties.headers["x-death"][0]["reason"] == "expired"
        assert properties.headers["x-death"][0]["count"] == 1
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()
