"""Of the acceptance list: many nodes that die at once, locators, and queues as shards."""

from __future__ import annotations

import threading
import time
from urllib.parse import quote

import pika
import pika.exceptions
import pytest
from cluster_clients import Clients, Inbox, drain, eventually, is_gone, refused
from rings import (
    Refused,
    Ring,
    api,
    await_ring,
    await_that,
    clear_policy,
    make_master,
    mirror,
    ring_of,
)

from warren.testing import Cluster

LONG_S = 60.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class _Publisher(threading.Thread):
    """Publishes as fast as it is confirmed, until it is told to end or its node lets it go."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(daemon=True)
        self._url, self._queue = url, queue
        self.confirmed: list[bytes] = []
        self.sent = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        try:
            connection = pika.BlockingConnection(pika.URLParameters(self._url))
            channel = connection.channel()
            channel.confirm_delivery()
            while not self.is_over.is_set():
                body = b"%d" % self.sent
                self.sent += 1
                channel.basic_publish("", self._queue, body, PERSISTENT, mandatory=True)
                self.confirmed.append(body)
        except (pika.exceptions.AMQPError, OSError):
            return


def test_four_of_six_die_at_once(name: str) -> None:
    """List B, 3: the master and the next three mirrors, within 50 to 100 ms of each other."""
    with Cluster(6) as cluster, Clients(cluster) as clients:
        mirror(cluster, "^", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        clients.channel(1).queue_declare(name, durable=True)
        ring = await_ring(cluster, name, synchronised=(1, 2, 3, 4, 5, 6))
        order = [cluster.nodes.index(node) + 1 for node in ring.replicas]
        assert ring.master == cluster.nodes[order[0] - 1]
        publisher = _Publisher(cluster.url(order[5]), name)
        publisher.start()
        eventually(lambda: len(publisher.confirmed) >= 200, within_s=LONG_S)
        for node in order[:4]:
            cluster.kill(node)
            time.sleep(0.07)
        cluster.start_all()
        cluster.wait_until_ready()
        eventually(lambda: not is_gone(clients.channel(order[4]), name), within_s=LONG_S)
        publisher.is_over.set()
        publisher.join(LONG_S)
        assert not publisher.is_alive()
        await_ring(cluster, name, synchronised=(1, 2, 3, 4, 5, 6))
        found = drain(clients.channel(order[0]), name)
        assert len(set(found)) == len(found)
        assert set(publisher.confirmed) <= set(found)
        assert set(found) <= {b"%d" % i for i in range(publisher.sent)}
        assert found == sorted(found, key=int)


def test_locators(cluster: Cluster, clients: Clients, name: str) -> None:
    """List B, 13: by argument, and by policy, of mirrored queues; what is none is refused."""
    names = [f"ha.{name}.{i}" for i in range(6)]
    before = masters(cluster)
    arguments = {"x-queue-master-locator": "min-masters"}
    for queue in names[:3]:
        clients.channel(1).queue_declare(queue, durable=True, arguments=arguments)
    # Whoever has the fewest gets the next: with equal numbers before, each node gets one.
    spread = [ring.master for queue in names[:3] if (ring := await_three(cluster, queue))]
    after = [before[node] + spread.count(node) for node in cluster.nodes]
    assert max(after) - min(after) <= max(1, max(before.values()) - min(before.values()) - 1)
    pattern = rf"^ha\.{name}\.[345]$"
    mirror(cluster, pattern, {"ha-mode": "all", "queue-master-locator": "client-local"})
    for queue in names[3:]:
        clients.channel(2).queue_declare(queue, durable=True)
        assert await_three(cluster, queue).master == cluster.nodes[1]
    refused(
        406,
        "locator",
        lambda: clients.channel(1).queue_declare(
            f"ha.{name}.x", durable=True, arguments={"x-queue-master-locator": "best"}
        ),
    )
    with pytest.raises(Refused, match="queue-master-locator"):
        mirror(cluster, f"^{name}-x$", {"queue-master-locator": "best"})
    clear_policy(cluster, pattern)
    for queue in names:
        api(cluster, 1, "DELETE", f"/queues/%2F/{quote(queue, safe='')}")


def await_three(cluster: Cluster, queue: str) -> Ring:
    return await_that(cluster, queue, lambda ring: len(ring.synchronised) == 3, "three")


def masters(cluster: Cluster) -> dict[str, int]:
    """How many queues each node has."""
    rows = api(cluster, 1, "GET", "/queues?columns=node")
    return {node: sum(row["node"] == node for row in rows) for node in cluster.nodes}


def test_queues_as_shards(cluster: Cluster, clients: Clients, ha: str) -> None:
    """List B, 17: three masters on three nodes; whoever knows one node only uses all of them."""
    shards = [f"{ha}.{i}" for i in (1, 2, 3)]
    channel = clients.confirming(1)
    channel.exchange_declare(ha, "x-consistent-hash", durable=True)
    for node, shard in enumerate(shards, start=1):
        channel.queue_declare(shard, durable=True)
        channel.queue_bind(shard, ha, "1")
        await_ring(cluster, shard, synchronised=(1, 2, 3))
        make_master(cluster, shard, node)
    rings = [ring_of(cluster, shard) for shard in shards]
    assert [ring.master for ring in rings if ring is not None] == cluster.nodes
    consumers = clients.channel(3)
    inboxes = [Inbox(consumers, shard) for shard in shards]
    sent = [b"%d" % i for i in range(300)]
    for body in sent:
        channel.basic_publish(ha, body.decode(), body, PERSISTENT, mandatory=True)

    def count() -> int:
        return sum(len(inbox.bodies) for inbox in inboxes)

    inboxes[0].listen(lambda: count() >= len(sent), LONG_S)
    found = [body for inbox in inboxes for body in inbox.bodies]
    assert sorted(found, key=int) == sent
    assert all(inbox.bodies for inbox in inboxes)
    for inbox in inboxes:
        assert inbox.bodies == sorted(inbox.bodies, key=int)
