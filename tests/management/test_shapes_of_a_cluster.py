"""The JSON of a mirrored cluster beside that of a mirrored RabbitMQ cluster: on every node.

What a node by itself lacks of the captures, those who hold copies, is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pika
import pytest

from management.api import Api
from management.test_shapes import CAPTURES, differences
from warren.testing import Cluster

ROUTES = {
    "queue_mirrored.json": "/queues/%2F/ha.orders",
    "queue_two.json": "/queues/%2F/two.billing",
    "queue_plain.json": "/queues/%2F/plain",
    "queues.json": "/queues",
    "queues_paged.json": "/queues?page=1&page_size=2&name=orders",
    "nodes.json": "/nodes",
    "overview.json": "/overview",
    "policies.json": "/policies",
    "connections.json": "/connections",
    "channels.json": "/channels",
    "consumers.json": "/consumers",
    "bindings.json": "/bindings",
    "definitions.json": "/definitions",
}


@pytest.fixture(scope="module")
def apis() -> Iterator[list[Api]]:
    """All nodes of a cluster with traffic like that of the captured one."""
    with Cluster(3) as cluster:
        cluster.ctl(1, "set_policy", "ha-all", r"^ha\.", '{"ha-mode": "all"}')
        cluster.ctl(1, "set_policy", "two", r"^two\.", '{"ha-mode": "exactly", "ha-params": 2}')
        connection = pika.BlockingConnection(pika.URLParameters(cluster.url(1)))
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in ("ha.orders", "two.billing", "plain"):
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 1000})
        channel.exchange_declare("ev", "topic", durable=True)
        channel.queue_bind("ha.orders", "ev", "o.#", arguments={"k": "v"})
        for _ in range(20):
            channel.basic_publish("ev", "o.1", b"x", pika.BasicProperties(delivery_mode=2))
            channel.basic_publish("", "plain", b"hi")
        consuming = connection.channel()
        consuming.basic_qos(prefetch_count=10)
        consuming.basic_consume("ha.orders", lambda *_: None, consumer_tag="ctag1")
        connection.process_data_events(0.1)
        found = [Api(cluster.management_url(number)) for number in cluster.numbers]
        until_s = time.monotonic() + 30
        while "publish" not in found[0].get("/queues/%2F/ha.orders").get("message_stats", {}):
            assert time.monotonic() < until_s
            connection.process_data_events(0.1)
        yield found
        connection.close()


@pytest.mark.parametrize("name", ROUTES)
def test_shape_on_every_node(apis: list[Api], name: str) -> None:
    theirs = json.loads((CAPTURES / name).read_text())
    for api in apis:
        assert set(differences([theirs], [api.get(ROUTES[name])], "")) == set()


def test_copies_are_told_by_every_node(apis: list[Api]) -> None:
    for api in apis:
        shown = api.get("/queues/%2F/ha.orders")
        assert len({shown["node"], *shown["slave_nodes"]}) == 3
        assert len(api.get("/queues/%2F/two.billing")["slave_nodes"]) == 1
