"""A live mirrored RabbitMQ cluster becomes one of Warren, as docs/migration.md has it: no loss.

Needs Debian's rabbitmq-server; it has node names, ports, home and directories of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.brokers import RabbitMQ
from bench.clusters import RabbitCluster

from management.api import Api
from shovel.test_shovels import eventually, status
from warren.testing import Cluster

pytestmark = [
    pytest.mark.skipif(RabbitMQ.missing() is not None, reason=str(RabbitMQ.missing())),
    pytest.mark.timeout(600),
]
PERSISTENT = pika.BasicProperties(delivery_mode=2)
#: Messages that wait in the old cluster when the move begins, at least.
BACKLOG = 500
WAIT_S = 120


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[RabbitCluster]:
    cluster = RabbitCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Client(threading.Thread):
    """Works for one broker, and from a moment on for another."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.other: str | None = None
        self.is_over = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                if self.other is not None:
                    self.url, self.other = self.other, None
                connection = pika.BlockingConnection(pika.URLParameters(self.url))
                self.work(connection)
                connection.close()
        except BaseException as error:
            self.fault = error

    def work(self, connection: pika.BlockingConnection) -> None:
        """Until it is to stop, or to go elsewhere."""
        raise NotImplementedError

    @property
    def goes_on(self) -> bool:
        return self.other is None and not self.is_over.is_set()

    def end(self) -> None:
        self.is_over.set()
        self.join(WAIT_S)
        assert self.fault is None, self.fault


class Publisher(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.confirmed: list[int] = []

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        while self.goes_on:
            number = len(self.confirmed)
            channel.basic_publish("orders", "new", str(number).encode(), PERSISTENT, mandatory=True)
            self.confirmed.append(number)
            time.sleep(0.001)


class Consumer(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.received: list[int] = []

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        for method, _, body in channel.consume("work", inactivity_timeout=0.1):
            if method is not None:
                self.received.append(int(body))
                channel.basic_ack(method.delivery_tag)
            if not self.goes_on:
                break
        channel.cancel()


def mirrors(api: Api) -> list[str]:
    found: list[str] = api.get("/queues/%2F/work").get("synchronised_slave_nodes", [])
    return found


def url_of(endpoint: str) -> str:
    return f"amqp://guest:guest@{endpoint}"


def waiting(endpoint: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(url_of(endpoint)))
    found: int = connection.channel().queue_declare("work", passive=True).method.message_count
    connection.close()
    return found


def test_a_live_mirrored_cluster_moves(rabbit: RabbitCluster, tmp_path: Path) -> None:
    endpoints = [node.endpoint for node in rabbit.nodes]
    rabbit._ctl(rabbit.nodes[0], "set_policy", "ha", "^work", '{"ha-mode": "all"}')
    connection = pika.BlockingConnection(pika.URLParameters(url_of(endpoints[0])))
    channel = connection.channel()
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "orders", "new")
    connection.close()
    publisher, consumer = Publisher(url_of(endpoints[0])), Consumer(url_of(endpoints[1]))
    publisher.start()
    consumer.start()
    eventually(lambda: len(consumer.received) > 50 or consumer.fault, WAIT_S)
    # 1. The definitions, with the policies.
    export = tmp_path / "rabbit.json"
    rabbit._ctl(rabbit.nodes[0], "export_definitions", str(export))
    with Cluster(3) as warren:
        api = Api(warren.management_url(1))
        warren.ctl(1, "import_definitions", str(export))
        shown = api.get("/queues/%2F/work")
        assert (shown["policy"], shown["durable"]) == ("ha", True)
        # Mirrored there as it is here.
        eventually(lambda: len(mirrors(api)) == 2, WAIT_S)
        # 2. Consumers go first; while they are on their way, messages pile up in the old cluster.
        consumer.end()
        eventually(lambda: waiting(endpoints[1]) >= BACKLOG or publisher.fault, WAIT_S)
        consumer_there = Consumer(warren.url(3))
        consumer_there.start()
        # 3. A shovel fetches what is there, and what still comes.
        value = {
            "src-uri": [url_of(endpoint) for endpoint in endpoints],
            "src-queue": "work",
            "dest-uri": "amqp://",
            "dest-queue": "work",
        }
        assert api.put("/parameters/shovel/%2F/from-rabbit", {"value": value}) == 201
        eventually(lambda: status(api, "from-rabbit").get("forwarded", 0) > BACKLOG, WAIT_S)
        # 4. Publishers follow.
        publisher.other = warren.url(2)
        before = len(publisher.confirmed)
        eventually(lambda: len(publisher.confirmed) > before + 100 or publisher.fault, WAIT_S)
        publisher.end()
        # 5. When the old cluster is empty, the shovel has done its work.
        eventually(lambda: waiting(endpoints[2]) == 0, WAIT_S)
        eventually(lambda: status(api, "from-rabbit").get("pending") == 0, WAIT_S)
        wanted = set(publisher.confirmed)
        seen = consumer.received + consumer_there.received
        eventually(lambda: api.get("/queues/%2F/work")["messages_ready"] == 0, WAIT_S)
        eventually(lambda: wanted <= {*seen, *consumer_there.received}, WAIT_S)
        api.delete("/shovels/vhost/%2F/from-rabbit")
        consumer_there.end()
