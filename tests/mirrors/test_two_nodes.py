"""Two nodes, as users of mirrored queues have set them up for years: step by step.

Two nodes have no majority without each other. Here the cluster prefers node one
(`pause_if_all_down`): it alone decides, so it goes on when node two dies. With a third node that
has no replicas, a witness, either of the two may die.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import aio_pika
import pika
import pytest
from cluster_clients import Clients, Inbox, counts, drain, eventually, is_gone, publish
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


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The two nodes, with the user, the virtual host and the policy of the walk-through."""
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


def test_the_walk_through_with_aio_pika(cluster: Cluster) -> None:
    asyncio.run(asyncio.wait_for(_walk_with_aio_pika(cluster), 100))


class Readers:
    """The five consumers, with connections that mend themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.connections: dict[int, aio_pika.abc.AbstractConnection] = {}
        self.got: dict[int, list[tuple[bytes, bool]]] = {number: [] for number in CONSUMERS}
        #: The consumers that do not acknowledge for now.
        self.holding: set[int] = set()

    def url(self, node: int) -> str:
        return self._cluster.url(node).replace("guest:guest", f"{USER}:{USER}") + f"/{VHOST}"

    async def consume(self, number: int) -> None:
        node, queue = CONSUMERS[number]
        connection = await aio_pika.connect_robust(self.url(node), reconnect_interval=0.2)
        self.connections[number] = connection
        channel = await connection.channel()

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            self.got[number].append((message.body, bool(message.redelivered)))
            if number not in self.holding:
                await message.ack()

        await (await channel.get_queue(QUEUES[queue][0])).consume(on_message)

    async def publish(self, node: int, key: str, *bodies: bytes) -> None:
        async with await aio_pika.connect(self.url(node)) as connection:
            exchange = await (await connection.channel()).get_exchange(EXCHANGE)
            for body in bodies:
                await exchange.publish(aio_pika.Message(body, delivery_mode=2), key)

    async def expect(self, number: int, *wanted: tuple[bytes, bool]) -> None:
        async with asyncio.timeout(LONG_S):
            while len(self.got[number]) < len(wanted):
                await asyncio.sleep(0.02)
        assert self.got[number] == list(wanted)
        self.got[number].clear()


async def _walk_with_aio_pika(cluster: Cluster) -> None:
    readers = Readers(cluster)
    await _declare_with_aio_pika(cluster, readers)
    for number in CONSUMERS:
        await readers.consume(number)
    for node in (1, 2):
        await readers.publish(node, KEY_1, b"to one")
        await readers.expect(1, (b"to one", False))
    await readers.publish(1, COMMON, b"to all")
    await readers.expect(2, (b"to all", False))
    await readers.expect(5, (b"to all", False))
    await readers.publish(1, KEY_2, b"1", b"2", b"3", b"4")
    async with asyncio.timeout(LONG_S):
        while len(readers.got[3]) < 2 or len(readers.got[4]) < 2:
            await asyncio.sleep(0.02)
    taken = [body for number in (3, 4) for body, _ in readers.got[number]]
    assert sorted(taken) == [b"1", b"2", b"3", b"4"]
    for number in (3, 4):
        readers.got[number].clear()
    # 7, and 6 with it: node two is the master, and dies before consumer 4 has acknowledged.
    await readers.connections[3].close()
    queue = QUEUES[3][0]
    await asyncio.to_thread(
        eventually, lambda: queue_row(cluster, 1, queue, VHOST)["messages"] == 0, None, LONG_S
    )
    readers.holding.add(4)
    await readers.publish(1, KEY_2, b"held")
    async with asyncio.timeout(LONG_S):
        while not readers.got[4]:
            await asyncio.sleep(0.02)
    readers.holding.clear()
    await asyncio.to_thread(cluster.kill, 2)
    await readers.expect(4, (b"held", False), (b"held", True))
    await asyncio.to_thread(await_ring, cluster, queue, master=1, synchronised=(1,), vhost=VHOST)
    await readers.publish(1, KEY_2, b"after the kill")
    await readers.expect(4, (b"after the kill", False))
    await asyncio.to_thread(cluster.start, 2)
    await asyncio.to_thread(await_ring, cluster, queue, master=1, synchronised=(1, 2), vhost=VHOST)
    # Consumer 5 has come back by itself.
    await readers.publish(2, COMMON, b"again")
    await readers.expect(5, (b"again", False))
    for connection in readers.connections.values():
        await connection.close()


async def _declare_with_aio_pika(cluster: Cluster, readers: Readers) -> None:
    """And 1: declared and bound once more on the other node, it is the same queue."""
    for node in (1, 2):
        async with await aio_pika.connect(readers.url(node)) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(EXCHANGE, "direct", durable=True)
            for name, home, key in QUEUES.values():
                if home == node:
                    await (await channel.declare_queue(name, durable=True)).bind(exchange, key)
            if node == 2:
                same = await channel.declare_queue(QUEUES[1][0], durable=True)
                await same.bind(exchange, KEY_2)
                await readers.publish(1, KEY_2, b"by the new binding")
                message = await same.get(timeout=LONG_S)
                await message.ack()
                assert message.body == b"by the new binding"
                await same.unbind(exchange, KEY_2)
    for name, home, _ in QUEUES.values():
        await asyncio.to_thread(
            await_ring, cluster, name, master=home, synchronised=(1, 2), vhost=VHOST
        )
    async with await aio_pika.connect(readers.url(1)) as connection:
        await (await (await connection.channel()).get_queue(QUEUES[3][0])).purge()
    assert len(api(cluster, 2, "GET", f"/queues/{VHOST}")) == len(QUEUES)


@pytest.mark.parametrize("dying", [1, 2])
def test_a_third_node_as_a_witness(dying: int) -> None:
    """8: two nodes have the queue, a third the deciding vote: either of the two may die."""
    other = 3 - dying
    with Cluster(3) as cluster, Clients(cluster) as clients:
        both = {"ha-mode": "nodes", "ha-params": cluster.nodes[:2], "ha-sync-mode": "automatic"}
        mirror(cluster, "^", {**both})
        clients.channel(dying).queue_declare("q", durable=True)
        await_ring(cluster, "q", master=dying, replicas=(1, 2), synchronised=(1, 2))
        publish(clients.confirming(other), "q", [b"before"])
        cluster.kill(dying)
        await_ring(cluster, "q", master=other, synchronised=(other,))
        publish(clients.confirming(other), "q", [b"meanwhile"])
        cluster.start(dying)
        await_ring(cluster, "q", master=other, replicas=(1, 2), synchronised=(1, 2))
        assert drain(clients.channel(dying), "q") == [b"before", b"meanwhile"]


def test_the_preferred_node_dies(cluster: Cluster) -> None:
    """8: the other does not go on without it; all is there when it is back."""
    with Clients(cluster) as clients:
        mirror(cluster, "^", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        clients.channel(2).queue_declare("q", durable=True)
        await_ring(cluster, "q", master=2, synchronised=(1, 2))
        publish(clients.confirming(2), "q", [b"kept"])
        held = clients.connection(2)
        cluster.kill(1)
        with pytest.raises(pika.exceptions.AMQPError):
            held.process_data_events(LONG_S)
        cluster.start(1)
        cluster.wait_until_ready()
        eventually(lambda: not is_gone(clients.channel(1), "q"), within_s=LONG_S)
        assert drain(clients.channel(1), "q") == [b"kept"]
