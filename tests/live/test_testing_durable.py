"""The broker for tests with a data directory: what is durable outlives it."""

from __future__ import annotations

import time
from pathlib import Path

import amqp
import pika
import pytest

from warren.node.errors import StartError
from warren.testing import Broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def open_channel(broker: Broker) -> pika.adapters.blocking_connection.BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(broker.url)).channel()


def test_a_restart_brings_back_what_is_durable(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.set_policy("short", "^p", {"max-length": 2})
        channel = open_channel(broker)
        channel.confirm_delivery()
        channel.exchange_declare("x", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_declare("gone")
        channel.queue_bind("q", "x", "a.#")
        for n in range(5):
            channel.basic_publish("x", "a.b", b"%d" % n, PERSISTENT)
        channel.basic_publish("x", "a.b", b"transient")
        for _ in range(2):
            channel.basic_get("q")
        broker.restart()
        assert [q.name for q in broker.queues()] == ["q"]
        channel = open_channel(broker)
        found = [channel.basic_get("q", auto_ack=True) for _ in range(6)]
        assert [body for _, _, body in found] == [b"0", b"1", b"2", b"3", b"4", None]
        flags = [m.redelivered for m, _, _ in found if m is not None]
        assert flags == [True, True, False, False, False]
        channel.queue_declare("p1", durable=True)
        assert broker.queue("p1").policy == "short"


def test_times_to_live_go_on_while_the_broker_is_down(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        channel = open_channel(broker)
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.confirm_delivery()
        brief = pika.BasicProperties(delivery_mode=2, expiration="200")
        channel.basic_publish("", "q", b"brief", brief)
        channel.basic_publish("", "q", b"long", PERSISTENT)
        broker.restart(down_s=0.3)
        channel = open_channel(broker)
        assert channel.basic_get("q", auto_ack=True)[2] == b"long"
        assert channel.basic_get("dead", auto_ack=True)[2] == b"brief"


def test_what_waits_in_a_delayed_exchange_comes_back_with_its_time(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        channel = open_channel(broker)
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
        )
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "later", "#")
        channel.confirm_delivery()
        for delay_ms in (2500, 800, 100):
            headers = {"x-delay": delay_ms, "CC": ["other"]}
            persistent = pika.BasicProperties(delivery_mode=2, headers=headers)
            channel.basic_publish("later", "k", b"%d" % delay_ms, persistent)
        transient = pika.BasicProperties(headers={"x-delay": 900})
        channel.basic_publish("later", "k", b"transient", transient)
        began_s = time.monotonic()
        broker.restart(down_s=0.2)
        channel = open_channel(broker)
        arrived = {}
        while len(arrived) < 3 and time.monotonic() < began_s + 30:
            method, _, body = channel.basic_get("q", auto_ack=True)
            if method is not None:
                arrived[body] = time.monotonic() - began_s
            time.sleep(0.01)
        assert list(arrived) == [b"100", b"800", b"2500"]
        assert arrived[b"2500"] >= 2.4
        assert broker.call(lambda node: node.engine.delayed_messages) == 0
        channel.exchange_delete("later")
        assert broker.call(lambda node: len(node.store.journal.queues)) == 1


def test_who_deletes_a_queue_hears_of_that_before_of_its_consumers(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    with broker, amqp.Connection(f"{broker.host}:{broker.port}") as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, auto_delete=False)
        channel.basic_consume("q")
        # A cancellation that comes first would be raised here.
        assert channel.queue_delete("q") == 0
        with pytest.raises(amqp.ConsumerCancelled):
            connection.drain_events(timeout=30)


def test_one_broker_at_a_time_has_a_directory(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), pytest.raises(StartError, match="in use"):
        Broker(data_dir=tmp_path).start()
    with Broker(data_dir=tmp_path):
        pass
