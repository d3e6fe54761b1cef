"""Publishing for the tests of the connector: confirmed, numbered messages."""

from __future__ import annotations

import pika

from warren.spark.client import Client
from warren.spark.options import read_options
from warren.testing import Broker

KEPT = pika.BasicProperties(delivery_mode=2, content_type="text/plain", headers={"from": "test"})


def publish(broker: Broker, queue: str, first: int, end: int) -> None:
    """Messages whose bodies are numbers; all are confirmed when it returns."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.tx_select()
    for number in range(first, end):
        channel.basic_publish("", queue, b"%d" % number, KEPT)
    channel.tx_commit()
    connection.close()


def take_all(broker: Broker, queue: str) -> list[int]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            break
        found.append(int(body))
    connection.close()
    return found


def client_of(broker: Broker) -> Client:
    return Client(read_options({"endpoints": broker.http_url, "retries": "3"}))
