"""Networks that fail on the links themselves: cut both ways or one, slow, or full of resets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import aio_pika
import pytest
from cluster_clients import (
    NODES,
    PERSISTENT,
    SOON_S,
    Clients,
    can_connect,
    counts,
    counts_if_there,
    drain,
    eventually,
    publish,
    refused,
    until_nacked,
)

from warren.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes with proxies between them; tests leave them whole."""
    with Cluster(3, proxied_links=True) as nodes:
        yield nodes


def mend(cluster: Cluster) -> None:
    cluster.heal()
    cluster.wait_until_ready()


def check_all_reach_all(clients: Clients, name: str) -> None:
    """Every node serves every queue."""
    for node in NODES:
        for home in NODES:
            queue = f"{name}.{home}"
            eventually(lambda n=node, q=queue: counts_if_there(clients, n, q) is not None)
            publish(clients.confirming(node), queue, [b"after %d" % node])
    for home in NODES:
        found = drain(clients.channel(home % 3 + 1), f"{name}.{home}")
        assert found[-3:] == [b"after 1", b"after 2", b"after 3"]


def declare_one_on_each(clients: Clients, name: str) -> None:
    for home in NODES:
        clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
        publish(clients.confirming(home), f"{name}.{home}", [b"before"])


def test_links_go_through_the_proxies(cluster: Cluster) -> None:
    for a in NODES:
        for b in NODES:
            if a != b:
                eventually(lambda a=a, b=b: cluster.links.connections(a, b) == 1)


@pytest.mark.parametrize("ways", ["both", "what it says", "what it hears"])
def test_a_node_behind_a_broken_network(
    cluster: Cluster, clients: Clients, name: str, ways: str
) -> None:
    """Cut off in one direction only it is cut off all the same, and so do the others see it."""
    alone, near, far = 3, 1, 2
    declare_one_on_each(clients, name)
    confirming = clients.confirming(near)
    for other in (near, far):
        if ways != "what it hears":
            cluster.links.cut_one_way(alone, other)
        if ways != "what it says":
            cluster.links.cut_one_way(other, alone)
    until_nacked(confirming, f"{name}.{alone}")
    reason = f"home node 'node{alone}@localhost' of durable queue"
    refused(404, reason, lambda: counts(clients.channel(far), f"{name}.{alone}"))
    clients.channel(far).queue_declare(f"{name}.made", durable=True)
    publish(confirming, f"{name}.{far}", [b"meanwhile"])
    eventually(lambda: can_connect(clients, alone), False)

    mend(cluster)
    eventually(lambda: counts_if_there(clients, alone, f"{name}.made"), (0, 0))
    check_all_reach_all(clients, name)


def test_aio_pika_behind_a_broken_network(cluster: Cluster, clients: Clients, name: str) -> None:
    """Clients of the node that is cut off are sent away and come back; the others go on."""
    alone, near = 3, 1
    declare_one_on_each(clients, name)

    async def until(look: Callable[[], object]) -> None:
        await asyncio.to_thread(eventually, look)

    async def main() -> list[bytes]:
        got: list[bytes] = []

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                got.append(message.body)

        there = await aio_pika.connect_robust(cluster.url(alone), reconnect_interval=0.2)
        async with there, await aio_pika.connect(cluster.url(near)) as here:
            queue = await (await there.channel()).get_queue(f"{name}.2")
            await queue.consume(on_message)
            await until(lambda: got == [b"before"])
            exchange = (await here.channel()).default_exchange
            for other in (1, 2):
                cluster.links.cut(alone, other)
            await until(lambda: not can_connect(clients, alone))
            await exchange.publish(aio_pika.Message(b"meanwhile", delivery_mode=2), f"{name}.2")
            with pytest.raises(aio_pika.exceptions.DeliveryError):
                await exchange.publish(
                    aio_pika.Message(b"lost", delivery_mode=2), f"{name}.{alone}"
                )
            await asyncio.to_thread(mend, cluster)
            await until(lambda: b"meanwhile" in got)
            await exchange.publish(aio_pika.Message(b"after", delivery_mode=2), f"{name}.2")
            await until(lambda: b"after" in got)
        return got

    got = asyncio.run(asyncio.wait_for(main(), 4 * SOON_S))
    assert got == [b"before", b"meanwhile", b"after"]
    check_all_reach_all(clients, name)


def test_two_whose_cable_is_cut(cluster: Cluster, clients: Clients, name: str) -> None:
    """Each of them still reaches the third, which goes on serving."""
    declare_one_on_each(clients, name)
    cluster.links.cut(1, 2)
    third = clients.confirming(3)
    # For longer than any silence may last: whatever is decided, is decided meanwhile.
    for _ in range(100):
        publish(third, f"{name}.3", [b"through"])
        third.connection.sleep(0.05)
    mend(cluster)
    found = drain(clients.channel(3), f"{name}.3")
    assert found == [b"before", *[b"through"] * 100]
    check_all_reach_all(clients, name)


def test_resets_lose_double_and_reorder_nothing(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """Links break again and again under publishes and deliveries across nodes."""
    clients.channel(2).queue_declare(name, durable=True)
    count = 600
    errors: list[Exception] = []

    def publish_all() -> None:
        try:
            with Clients(cluster) as own:
                publish(own.confirming(1), name, [b"%d" % i for i in range(count)])
        except Exception as error:
            errors.append(error)

    publishing = threading.Thread(target=publish_all)
    publishing.start()
    channel = clients.channel(3)
    channel.basic_qos(prefetch_count=20)
    first: list[bytes] = []
    flagged: set[bytes] = set()

    def on_message(_channel: object, method: object, _properties: object, body: bytes) -> None:
        if body not in first:
            first.append(body)
        else:
            # An acknowledgement was lost with a link: it comes again, and says so.
            assert method.redelivered  # type: ignore[attr-defined]
            flagged.add(body)
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    channel.basic_consume(name, on_message)
    resets = 0

    def step() -> bool:
        nonlocal resets
        channel.connection.process_data_events(0.05)
        if resets < 12 and len(first) >= resets * 40:
            cluster.links.reset(*((1, 2) if resets % 2 else (2, 3)))
            resets += 1
        return len(first) == count or bool(errors)

    eventually(step)
    publishing.join()
    assert not errors
    assert first == [b"%d" % i for i in range(count)]
    assert resets == 12


def test_a_slow_network_is_no_partition(cluster: Cluster, clients: Clients, name: str) -> None:
    declare_one_on_each(clients, name)
    logs = [len(cluster.log(node)) for node in NODES]
    for a in NODES:
        for b in NODES:
            if a != b:
                cluster.links.delay(a, b, 0.1)
    channel = clients.confirming(1)
    for i in range(5):
        channel.queue_declare(f"{name}.slow.{i}")
        channel.basic_publish("", f"{name}.2", b"%d" % i, PERSISTENT, mandatory=True)
    for i in range(5):
        assert counts(clients.channel(3), f"{name}.slow.{i}") == (0, 0)
    assert drain(clients.channel(3), f"{name}.2") == [b"before", *[b"%d" % i for i in range(5)]]
    cluster.heal()
    for node, before in zip(NODES, logs, strict=True):
        said = cluster.log(node)[before:]
        assert " is down" not in said


def test_one_of_the_two_links_is_lost(cluster: Cluster) -> None:
    """The other node notices nothing, and has to tell again what it is."""
    links = cluster.links

    def reset() -> None:
        for connection in list(links._connections[1, 2]):
            connection.reset()

    links._do(reset)

    def knows_nothing() -> bool:
        shown = cluster._control(1).get("/warren/cluster/status")
        return any(row["name"] == cluster.nodes[1] and not row["running"] for row in shown["nodes"])

    eventually(knows_nothing)
    cluster.wait_until_ready(30)
