"""Two nodes, as users of mirrored queues have set them up for years: step by step.

Two nodes have no majority without each other. Here the cluster prefers node one
(`pause_if_all_down`): it alone decides, so it goes on when node two dies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from cluster_clients import Clients, Inbox, counts, eventually
from rings import api, await_ring, mirror, queue_row

from warren.testing import Cluster

LONG_S = 60.0
VHOST, USER, EXCHANGE = "cluster", "api_management", "cluster"
KEY_1, KEY_2, COMMON = "clusterRabbit1key", "clusterRabbit2key", "clusterRabbitCommonKey"
QUEUES = {
    1: ("clusterRabbit1Queue1", 1, KEY_1),
    2: ("clusterRabbit1Queue2", 1, COMMON),
    3: ("clusterRabbit2Queue1", 2, KEY_2),
    4: ("clusterRabbit2Queue2", 2, COMMON),
}
#: Consumer -> its node and the number of its queue.
CONSUMERS = {1: (1, 1), 2: (1, 2), 3: (2, 3), 4: (1, 3), 5: (2, 4)}
PREFERRED = {
    "cluster_partition_handling": "pause_if_all_down",
    "cluster_partition_handling.pause_if_all_down.nodes.1": "node1@localhost",
    "cluster_partition_handling.pause_if_all_down.recover": "ignore",
}


class Walk:
    """The cluster of the walk-through with its clients."""

    def __init__(self, cluster: Cluster, clients: Clients) -> None:
        self.cluster, self.clients = cluster, clients
        self.inboxes: dict[int, Inbox] = {}

    def channel(self, node: int) -> Any:
        return self.clients.connection(node, USER, VHOST).channel()

    def consume(self, number: int) -> Inbox:
        node, queue = CONSUMERS[number]
        inbox = self.inboxes[number] = Inbox(self.channel(node), QUEUES[queue][0])
        return inbox

    def publish(self, node: int, key: str, *bodies: bytes) -> None:
        channel = self.channel(node)
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish(EXCHANGE, key, body, mandatory=True)
        channel.connection.close()

    def expect(self, number: int, *bodies: bytes) -> None:
        """Those come to a consumer and are acknowledged; nothing else has."""
        inbox = self.inboxes[number]
        assert inbox.wait(len(bodies), LONG_S) == list(bodies)
        inbox.channel.basic_ack(0, multiple=True)
        inbox.got.clear()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, config=PREFERRED) as nodes:
        api(nodes, 1, "PUT", f"/vhosts/{VHOST}")
        api(nodes, 1, "PUT", f"/users/{USER}", {"password": USER, "tags": "administrator"})
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        for user in (USER, "guest"):
            api(nodes, 1, "PUT", f"/permissions/{VHOST}/{user}", every)
        mirror(nodes, "^", {"ha-mode": "all", "ha-sync-mode": "automatic"}, vhost=VHOST)
        yield nodes


def test_the_walk_through(cluster: Cluster) -> None:
    with Clients(cluster) as clients:
        walk = Walk(cluster, clients)
        _declare(walk)
        _bind_from_the_other_node(walk)
        for number in CONSUMERS:
            walk.consume(number)
        # 2 and 3: to the consumer of queue 1, whichever node is published to.
        for node in (1, 2):
            walk.publish(node, KEY_1, b"to one")
            walk.expect(1, b"to one")
        # 4: a common key reaches a queue of each node.
        walk.publish(1, COMMON, b"to all")
        walk.expect(2, b"to all")
        walk.expect(5, b"to all")
        # 5: two consumers of a queue take turns, on whichever node they are.
        walk.publish(1, KEY_2, b"1", b"2", b"3", b"4")
        third, fourth = walk.inboxes[3], walk.inboxes[4]
        assert len(third.wait(2, LONG_S)) == len(fourth.wait(2, LONG_S)) == 2
        assert sorted(third.bodies + fourth.bodies) == [b"1", b"2", b"3", b"4"]
        for inbox in (third, fourth):
            inbox.channel.basic_ack(0, multiple=True)
            inbox.got.clear()
        _kill_node_two(walk)
        _kill_node_two_before_the_ack(walk)


def _declare(walk: Walk) -> None:
    channel = walk.channel(1)
    channel.exchange_declare(EXCHANGE, "direct", durable=True)
    for name, node, key in QUEUES.values():
        walk.channel(node).queue_declare(name, durable=True)
        channel.queue_bind(name, EXCHANGE, key)
        await_ring(walk.cluster, name, master=node, synchronised=(1, 2), vhost=VHOST)


def _bind_from_the_other_node(walk: Walk) -> None:
    """1: the same queue is meant on every node."""
    channel = walk.channel(2)
    name = QUEUES[1][0]
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, EXCHANGE, KEY_2)
    bindings = api(walk.cluster, 1, "GET", f"/queues/{VHOST}/{name}/bindings")
    assert {row["routing_key"] for row in bindings} == {name, KEY_1, KEY_2}
    assert len(api(walk.cluster, 2, "GET", f"/queues/{VHOST}")) == len(QUEUES)
    channel.queue_unbind(name, EXCHANGE, KEY_2)


def _kill_node_two(walk: Walk) -> None:
    """6: its clients are disconnected, the others are not; node one is master of all."""
    # Acknowledgements are not answered: what is still on its way is lost with the node.
    for name, _, _ in QUEUES.values():
        eventually(
            lambda queue=name: queue_row(walk.cluster, 1, queue, VHOST)["messages"] == 0,
            within_s=LONG_S,
        )
    walk.cluster.kill(2)
    for number in (3, 5):
        with pytest.raises(pika.exceptions.AMQPError):
            walk.inboxes[number].listen(lambda: False, LONG_S)
    walk.publish(1, KEY_2, b"after the kill")
    walk.expect(4, b"after the kill")
    assert not walk.inboxes[4].cancelled
    for number in (3, 4):
        await_ring(walk.cluster, QUEUES[number][0], master=1, synchronised=(1,), vhost=VHOST)
    walk.cluster.start(2)
    for number in (3, 4):
        await_ring(walk.cluster, QUEUES[number][0], master=1, synchronised=(1, 2), vhost=VHOST)


def _kill_node_two_before_the_ack(walk: Walk) -> None:
    """7: what was not acknowledged comes again, and says so."""
    cluster, queue = walk.cluster, QUEUES[3][0]

    def move() -> bool:
        with contextlib.suppress(Exception):
            asked = {"action": "transfer_leader", "node": cluster.nodes[1]}
            api(cluster, 1, "POST", f"/queues/{VHOST}/{queue}/actions", asked)
        with contextlib.suppress(AssertionError):
            await_ring(cluster, queue, master=2, vhost=VHOST, within_s=2)
            return True
        return False

    eventually(move, within_s=LONG_S)
    inbox = walk.inboxes[4]
    walk.publish(1, KEY_2, b"held")
    assert inbox.wait(1, LONG_S) == [b"held"]
    assert not inbox.got[0][0].redelivered
    cluster.kill(2)
    inbox.wait(2, LONG_S)
    assert inbox.bodies == [b"held", b"held"]
    assert inbox.got[1][0].redelivered
    assert not inbox.cancelled
    inbox.channel.basic_ack(inbox.got[1][0].delivery_tag)
    channel = walk.channel(1)
    eventually(lambda: counts(channel, queue), (0, 1), LONG_S)
    cluster.start(2)
    await_ring(cluster, queue, master=1, synchronised=(1, 2), vhost=VHOST)
