"""Exchanges that are not durable outlive any node, and end when all were stopped at a time."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest
from cluster_clients import NODES, Clients, counts, drain, eventually, is_gone, publish, refused

from warren.testing import Cluster


def knows(clients: Clients, node: int, exchange: str) -> bool:
    try:
        clients.channel(node).exchange_declare(exchange, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        return error.reply_code != 404
    return True


def declare(clients: Clients, name: str) -> None:
    """A transient exchange, and a durable queue on each node that it leads to."""
    clients.channel(2).exchange_declare(name, "fanout")
    for home in NODES:
        channel = clients.channel(home)
        channel.queue_declare(f"{name}.{home}", durable=True)
        channel.queue_bind(f"{name}.{home}", name)


def test_a_rolling_restart_keeps_them(cluster: Cluster, name: str) -> None:
    with Clients(cluster) as clients:
        declare(clients, name)
    for node in NODES:
        cluster.kill(node)
        cluster.start(node)
        cluster.wait_until_ready()
    with Clients(cluster) as clients:
        for node in NODES:
            assert knows(clients, node, name)
        channel = clients.confirming(1)
        channel.basic_publish(name, "", b"x", mandatory=True)
        for home in NODES:
            assert drain(channel, f"{name}.{home}") == [b"x"]


@pytest.mark.parametrize("end", [Cluster.kill, Cluster.stop])
def test_a_stop_of_all_ends_them(
    cluster: Cluster, name: str, end: Callable[[Cluster, int], None]
) -> None:
    with Clients(cluster) as clients:
        declare(clients, name)
        for home in NODES:
            publish(clients.confirming(1), f"{name}.{home}", [b"kept"])
    for node in NODES:
        end(cluster, node)
    cluster.start_all()
    # Nobody is let in before it is so.
    with Clients(cluster) as clients:
        for node in NODES:
            assert not knows(clients, node, name)
        # A new one of that name leads nowhere.
        channel = clients.confirming(3)
        channel.exchange_declare(name, "fanout")
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(name, "", b"x", mandatory=True)
        for home in NODES:
            assert drain(channel, f"{name}.{home}") == [b"kept"]


def test_two_of_three_come_back(cluster: Cluster, name: str) -> None:
    """Those that are back cannot know of the third at once, and wait until they do."""
    with Clients(cluster) as clients:
        declare(clients, name)
    for node in NODES:
        cluster.kill(node)
    cluster.start(1, wait=False)
    cluster.start(2)
    with Clients(cluster) as clients:
        assert not knows(clients, 2, name)
    cluster.start(3)
    cluster.wait_until_ready()
    with Clients(cluster) as clients:
        for node in NODES:
            assert not knows(clients, node, name)
            for home in NODES:
                assert counts(clients.channel(node), f"{name}.{home}") == (0, 0)
        refused(404, "no exchange", lambda: clients.channel(1).queue_bind(f"{name}.1", name))


@pytest.mark.parametrize("node", NODES)
def test_what_lives_with_one_node_goes_with_it(cluster: Cluster, name: str, node: int) -> None:
    """Queues that are not durable, also auto-delete and exclusive ones, and what led to them."""
    with Clients(cluster) as clients:
        channel = clients.channel(node)
        channel.queue_declare(f"{name}.t", arguments={"x-queue-master-locator": "client-local"})
        channel.queue_declare(f"{name}.a", auto_delete=True)
        channel.queue_declare(f"{name}.e", exclusive=True)
        channel.queue_declare(f"{name}.d", durable=True, auto_delete=True)
        # One that goes with its last binding, and one that does not.
        channel.exchange_declare(f"{name}.x", "fanout", durable=True, auto_delete=True)
        channel.exchange_declare(f"{name}.y", "fanout", durable=True)
        for exchange in (f"{name}.x", f"{name}.y"):
            channel.queue_bind(f"{name}.t", exchange)
    with Clients(cluster) as clients:
        clients.channel(node).queue_declare(f"{name}.e", exclusive=True)
        cluster.kill(node)
        others = [other for other in NODES if other != node]
        for other in others:
            for kind in "tae":
                eventually(lambda o=other, k=kind: is_gone(clients.channel(o), f"{name}.{k}"))
            assert not knows(clients, other, f"{name}.x")
            assert knows(clients, other, f"{name}.y")
        cluster.start(node)
        cluster.wait_until_ready()
        for any_node in NODES:
            for kind in "tae":
                assert is_gone(clients.channel(any_node), f"{name}.{kind}")
            assert not knows(clients, any_node, f"{name}.x")
            assert counts(clients.channel(any_node), f"{name}.d") == (0, 0)
        channel = clients.confirming(others[0])
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(f"{name}.y", "", b"x", mandatory=True)
