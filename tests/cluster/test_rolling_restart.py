"""All nodes are restarted one after the other, and nobody on the others notices."""

from __future__ import annotations

import threading
import time
from typing import Any

import pika
from cluster_clients import NODES, SOON_S, Clients, counts, eventually

from warren.testing import Cluster

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Load(threading.Thread):
    """Publishes with confirms from one node and consumes on another, until it is stopped."""

    def __init__(self, cluster: Cluster, queue: str, publishing: int, consuming: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._queue = queue
        self._nodes = (publishing, consuming)
        self._stopping = False
        self.error: Exception | None = None
        self.confirmed: list[bytes] = []
        self.got: list[tuple[bytes, bool]] = []
        self.slowest_s = 0.0

    def run(self) -> None:
        try:
            with Clients(self._cluster) as clients:
                self._work(clients)
        except Exception as error:
            self.error = error

    def _work(self, clients: Clients) -> None:
        publisher, consumer = clients.confirming(self._nodes[0]), clients.channel(self._nodes[1])
        consumer.basic_qos(prefetch_count=10)
        consumer.add_on_cancel_callback(self._on_cancel)
        consumer.basic_consume(self._queue, self._on_message)
        while not self._stopping:
            body = b"%d" % len(self.confirmed)
            began_s = time.monotonic()
            publisher.basic_publish("", self._queue, body, PERSISTENT, mandatory=True)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
            self.confirmed.append(body)
            consumer.connection.process_data_events(0)
        until_s = time.monotonic() + SOON_S
        while len(self.got) < len(self.confirmed) and time.monotonic() < until_s:
            consumer.connection.process_data_events(0.05)

    def _on_message(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.got.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)

    def _on_cancel(self, _frame: Any) -> None:
        self.error = RuntimeError("the consumer was cancelled")

    def wait(self, count: int) -> None:
        """Until so many of its publishes are confirmed, or it has failed."""
        eventually(lambda: len(self.confirmed) >= count or self.error is not None)

    def finish(self) -> None:
        """Stop it; everything it did must have gone well, in order and once."""
        self._stopping = True
        self.join()
        if self.error is not None:
            raise self.error
        assert self.got == [(body, False) for body in self.confirmed]


def test_a_rolling_restart(cluster: Cluster, clients: Clients, name: str) -> None:
    for home in NODES:
        clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
        clients.confirming(home).basic_publish("", f"{name}.{home}", b"0", PERSISTENT)
    for node in NODES:
        near, far = [other for other in NODES if other != node]
        for home in (near, far):
            clients.channel(home).queue_purge(f"{name}.{home}")
        loads = [
            Load(cluster, f"{name}.{near}", far, near),
            Load(cluster, f"{name}.{far}", far, near),
        ]
        for load in loads:
            load.start()
        for load in loads:
            load.wait(20)
        cluster.stop(node)
        for load in loads:
            load.wait(len(load.confirmed) + 20)
        cluster.start(node)
        cluster.wait_until_ready()
        for load in loads:
            load.wait(len(load.confirmed) + 20)
            load.finish()
            assert load.slowest_s < SOON_S
    for home in NODES:
        assert counts(clients.channel(1), f"{name}.{home}") == (0, 0)
