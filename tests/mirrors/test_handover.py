"""A master is handed over while clients on a third node hold messages of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pika
import pytest
from cluster_clients import NODES, PERSISTENT, Clients, Inbox, counts, eventually
from rings import await_ring, make_master, queue_row

from warren.testing import Cluster

LONG_S = 60.0
PREFETCH = 10


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


class Publishing:
    """Publishes without a pause until it is ended; what was confirmed, and what went wrong."""

    def __init__(self, clients: Clients, node: int, queue: str) -> None:
        self.confirmed: list[bytes] = []
        self.failed: list[str] = []
        self.queue = queue
        self._channel = clients.confirming(node)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            body = b"%d" % (len(self.confirmed) + len(self.failed))
            try:
                self._channel.basic_publish("", self.queue, body, PERSISTENT, mandatory=True)
            except pika.exceptions.AMQPError as error:
                self.failed.append(repr(error))
                return
            self.confirmed.append(body)

    def end(self) -> None:
        self._over.set()
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()


class Holder(Inbox):
    """A consumer that keeps as much as it may, and acknowledges in order when it is told to."""

    def __init__(self, clients: Clients, node: int, queue: str) -> None:
        channel = clients.channel(node)
        channel.basic_qos(prefetch_count=PREFETCH)
        super().__init__(channel, queue)
        self.acked = 0
        self.wait(PREFETCH, LONG_S)

    def ack(self, count: int) -> None:
        """So many more, when they have come."""
        for _ in range(count):
            self.acked += 1
            self.wait(self.acked, LONG_S)
            self.channel.basic_ack(self.got[self.acked - 1][0].delivery_tag)


def finish(cluster: Cluster, clients: Clients, holder: Holder, published: Publishing) -> None:
    """All that was confirmed has come once, in order, unflagged, and is acknowledged."""
    published.end()
    assert published.failed == []
    holder.ack(len(published.confirmed) - holder.acked)
    assert holder.bodies == published.confirmed
    assert [body for method, _, body in holder.got if method.redelivered] == []
    holder.channel.close()
    queue = published.queue
    eventually(lambda: queue_row(cluster, 3, queue).get("messages") == 0, within_s=LONG_S)
    assert counts(clients.channel(2), queue) == (0, 0)


@pytest.mark.parametrize("holder", [3, 2])
def test_a_transfer_delivers_nothing_again(
    cluster: Cluster, clients: Clients, ha: str, holder: int
) -> None:
    """There and back again, several times; the consumer is on a third node, or on the next."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, synchronised=NODES)
    make_master(cluster, ha, 1)
    published = Publishing(clients, 3, ha)
    inbox = Holder(clients, holder, ha)
    for master in (2, 1, 2, 1, 2):
        make_master(cluster, ha, master)
        inbox.ack(3)
        eventually(lambda: unacked_at_rest(cluster, ha), PREFETCH, LONG_S)
        eventually(lambda: queue_row(cluster, 3, ha).get("consumers"), 1, LONG_S)
    finish(cluster, clients, inbox, published)


def unacked_at_rest(cluster: Cluster, queue: str) -> int | None:
    """What is out: never more than the consumer may have."""
    unacked: int | None = queue_row(cluster, 3, queue).get("messages_unacknowledged")
    assert unacked is None or unacked <= PREFETCH, unacked
    return unacked


def test_a_planned_stop_delivers_nothing_again(cluster: Cluster, clients: Clients, ha: str) -> None:
    """The node of the master stops; publishers and consumers of others notice nothing."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, synchronised=NODES)
    make_master(cluster, ha, 1)
    published = Publishing(clients, 2, ha)
    inbox = Holder(clients, 3, ha)
    cluster.stop(1)
    inbox.ack(5)
    eventually(lambda: unacked_at_rest(cluster, ha), PREFETCH, LONG_S)
    finish(cluster, clients, inbox, published)


@pytest.mark.timeout(400)
def test_a_rolling_restart_under_load(cluster: Cluster, clients: Clients, ha: str) -> None:
    """All nodes in turn, each with a master; clients of the others notice nothing."""
    queues = {home: f"{ha}.{home}" for home in NODES}
    for home, queue in queues.items():
        clients.channel(home).queue_declare(queue, durable=True)
        await_ring(cluster, queue, synchronised=NODES)
    for node in NODES:
        make_master(cluster, queues[node], node)
        near, far = (other for other in NODES if other != node)
        published = [Publishing(clients, near, queue) for queue in queues.values()]
        inboxes = [Holder(clients, far, queue) for queue in queues.values()]
        cluster.stop(node)
        for inbox in inboxes:
            inbox.ack(5)
        cluster.start(node)
        for inbox, queue in zip(inboxes, queues.values(), strict=True):
            ring = await_ring(cluster, queue, synchronised=NODES)
            # It is back as a mirror.
            assert ring.master != cluster.nodes[node - 1]
            inbox.ack(5)
        for inbox, publishing in zip(inboxes, published, strict=True):
            finish(cluster, clients, inbox, publishing)
