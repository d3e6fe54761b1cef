"""With `ignore`, publishes for queues on the other side of a partition wait for it to heal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aio_pika
import pytest
from cluster_clients import SOON_S, Clients, counts_if_there, drain, eventually, until_nacked

from warren.testing import Cluster

HANDLING = "cluster_partition_handling"
#: The others count a node that is silent as down after two seconds.
KNOWN_DOWN_S = 4.0
MIB = 1024 * 1024
PLAIN, MIRRORED = "plain", "mirrored"


@pytest.fixture
def ignoring() -> Iterator[Cluster]:
    with Cluster(3, config={HANDLING: "ignore"}, proxied_links=True) as cluster:
        yield cluster


def declare(cluster: Cluster, clients: Clients, home: int = 1) -> None:
    """On one node: a plain queue, and one with a view whose only replica is there."""
    nodes = f'{{"ha-mode": "nodes", "ha-params": ["node{home}@localhost"]}}'
    cluster.ctl(1, "set_policy", "m", f"^{MIRRORED}$", nodes)
    channel = clients.channel(home)
    channel.queue_declare(PLAIN, durable=True)
    channel.queue_declare(MIRRORED, durable=True)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 3 * SOON_S))  # type: ignore[arg-type]


def unconfirmed(channel: Any, queue: str, bodies: list[bytes]) -> list[asyncio.Task[Any]]:
    exchange = channel.default_exchange

    async def one(body: bytes) -> Any:
        return await exchange.publish(aio_pika.Message(body, delivery_mode=2), queue)

    return [asyncio.ensure_future(one(body)) for body in bodies]


@pytest.mark.parametrize("queue", [PLAIN, MIRRORED])
@pytest.mark.parametrize("gateway", [1, 3])
def test_publishes_wait_for_the_heal(ignoring: Cluster, queue: str, gateway: int) -> None:
    """From the minority to the majority, and the other way."""
    home = 1 if gateway == 3 else 2
    bodies = [(b"%06d" % i).ljust(2000, b".") for i in range(3000)]
    with Clients(ignoring) as clients:
        declare(ignoring, clients, home)

    async def main() -> None:
        connection = await aio_pika.connect(ignoring.url(gateway))
        plain = await connection.channel(publisher_confirms=False)
        channel = await connection.channel()
        ignoring.isolate(1)
        waiting = unconfirmed(channel, queue, bodies[:10])
        await asyncio.sleep(KNOWN_DOWN_S)
        waiting += unconfirmed(channel, queue, bodies[10:])
        for body in (b"no", b"confirms"):
            await plain.default_exchange.publish(aio_pika.Message(body), queue)
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        ignoring.heal()
        await asyncio.gather(*waiting)
        await connection.close()

    run(main)
    with Clients(ignoring) as clients:
        # The home has to hear first that it was down, and that it is back.
        eventually(lambda: counts_if_there(clients, home, queue))
        found = drain(clients.channel(home), queue)
    assert [body for body in found if len(body) == 2000] == bodies
    assert [body for body in found if len(body) < 2000] == [b"no", b"confirms"]


def test_a_home_that_was_killed_gets_them_when_it_is_back(ignoring: Cluster) -> None:
    bodies = [(b"%06d" % i).ljust(2000, b".") for i in range(2000)]
    with Clients(ignoring) as clients:
        declare(ignoring, clients)

    async def main() -> None:
        connection = await aio_pika.connect(ignoring.url(3))
        channel = await connection.channel()
        ignoring.kill(1)
        await asyncio.sleep(KNOWN_DOWN_S)
        waiting = unconfirmed(channel, PLAIN, bodies)
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        await asyncio.to_thread(ignoring.start, 1)
        await asyncio.gather(*waiting)
        await connection.close()

    run(main)
    with Clients(ignoring) as clients:
        assert drain(clients.channel(2), PLAIN) == bodies


def test_a_node_that_is_forgotten_is_waited_for_no_longer(ignoring: Cluster) -> None:
    with Clients(ignoring) as clients:
        declare(ignoring, clients)

    async def main() -> None:
        connection = await aio_pika.connect(ignoring.url(3))
        channel = await connection.channel()
        ignoring.kill(1)
        await asyncio.sleep(KNOWN_DOWN_S)
        (waiting,) = unconfirmed(channel, PLAIN, [b"x"])
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await asyncio.to_thread(ignoring.ctl, 3, "forget_cluster_node", "node1@localhost")
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await waiting
        await connection.close()

    run(main)


def test_a_full_stash_blocks_publishers_and_says_so() -> None:
    config = {HANDLING: "ignore", f"{HANDLING}.ignore.stash_limit": "2MB"}
    with Cluster(3, config=config, proxied_links=True) as cluster, Clients(cluster) as clients:
        declare(cluster, clients)
        told: list[str] = []
        connection = clients.connection(3)
        connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = connection.channel()
        cluster.isolate(1)
        sent = 0
        until_s = time.monotonic() + SOON_S
        while not told:
            assert time.monotonic() < until_s, "nobody was told"
            channel.basic_publish("", PLAIN, (b"%06d" % sent).ljust(10_000, b"."))
            sent += 1
            connection.process_data_events(0)
        assert told == ["blocked"]
        # Who publishes to other queues of this node is not concerned.
        other = clients.confirming(2)
        other.queue_declare("other")
        other.basic_publish("", "other", b"x")
        cluster.heal()
        eventually(lambda: connection.process_data_events(0.05) or told, ["blocked", "unblocked"])
        reader = clients.channel(1)
        found: list[bytes] = []
        eventually(lambda: found.extend(drain(reader, PLAIN)) or len(found), sent)
        assert [int(body[:6]) for body in found] == list(range(sent))


def test_nothing_waits_with_other_ways_to_handle_partitions(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    channel = clients.channel(1)
    channel.queue_declare(name, durable=True)
    publisher = clients.confirming(3)
    cluster.kill(1)
    try:
        until_nacked(publisher, name)
    finally:
        cluster.start(1)
