"""Nodes are killed: the others go on, and what was confirmed comes back with them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from cluster_clients import (
    NODES,
    PERSISTENT,
    SOON_S,
    Clients,
    Inbox,
    can_connect,
    counts,
    counts_if_there,
    drain,
    eventually,
    is_gone,
    publish,
    refused,
    until_nacked,
)
from pika.adapters.blocking_connection import BlockingChannel

from warren.testing import Cluster

#: A killed node is known to be gone when its port refuses and the others have agreed on it.
#: Judged by `make timing`.
KILLED_S = 1.0


@pytest.mark.parametrize("dead", NODES)
def test_a_killed_node(
    cluster: Cluster,
    clients: Clients,
    name: str,
    dead: int,
    judge_time: Callable[[float, float], None],
) -> None:
    near, far = [node for node in NODES if node != dead]
    bodies = [b"%d" % i for i in range(50)]
    confirming = clients.confirming(near)
    for home in NODES:
        clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
        clients.channel(home).queue_declare(f"{name}.t{home}")
        clients.channel(home).queue_declare(f"{name}.e{home}", exclusive=True)
        publish(confirming, f"{name}.{home}", bodies)
    on_dead = Inbox(clients.channel(near), f"{name}.{dead}")
    on_far = Inbox(clients.channel(near), f"{name}.{far}")
    assert on_dead.wait(50) == on_far.wait(50) == bodies

    cluster.kill(dead)
    judge_time(until_nacked(confirming, f"{name}.{dead}"), KILLED_S)
    on_dead.wait_cancelled()
    for node in (near, far):
        reason = f"home node 'node{dead}@localhost' of durable queue '{name}.{dead}' in vhost '/'"
        acts: list[Callable[[BlockingChannel], object]] = [
            lambda c: c.queue_declare(f"{name}.{dead}", durable=True),
            lambda c: counts(c, f"{name}.{dead}"),
            lambda c: Inbox(c, f"{name}.{dead}"),
            lambda c: c.basic_get(f"{name}.{dead}"),
            lambda c: c.queue_delete(f"{name}.{dead}"),
            lambda c: c.queue_bind(f"{name}.{dead}", "amq.fanout"),
        ]
        for act in acts:
            channel = clients.channel(node)
            refused(404, f"{reason} is down or inaccessible", lambda a=act, c=channel: a(c))
        for sort in "te":
            assert is_gone(clients.channel(node), f"{name}.{sort}{dead}")
    # What lives elsewhere never noticed.
    publish(confirming, f"{name}.{far}", [b"more"])
    assert on_far.wait(51)[50:] == [b"more"]
    on_far.channel.basic_ack(0, multiple=True)
    assert counts(confirming, f"{name}.t{far}") == (0, 0)
    clients.channel(far).queue_declare(f"{name}.t{dead}")
    clients.channel(far).queue_declare(f"{name}.new")

    cluster.start(dead)
    cluster.wait_until_ready()
    assert counts(confirming, f"{name}.new") == (0, 0)
    eventually(lambda: counts(confirming, f"{name}.{dead}")[0] >= 50)
    again = Inbox(on_dead.channel, f"{name}.{dead}")
    assert again.wait(50)[:50] == bodies
    assert all(method.redelivered for method, _, _ in again.got[:50])
    on_dead.channel.basic_ack(0, multiple=True)
    publish(confirming, f"{name}.{dead}", [b"after"])
    again.listen(lambda: b"after" in again.bodies, SOON_S)
    assert set(again.bodies[50:]) <= {b"unsure", b"after"}
    assert again.bodies[-1] == b"after"
    publish(clients.confirming(dead), f"{name}.t{dead}", [b"from the one that was dead"])
    assert drain(clients.channel(near), f"{name}.t{dead}") == [b"from the one that was dead"]


def test_all_are_killed(cluster: Cluster, name: str) -> None:
    bodies = [b"%d" % i for i in range(100)]
    with Clients(cluster) as clients:
        channel = clients.confirming(1)
        channel.exchange_declare(name, "topic", durable=True)
        cluster.ctl(1, "add_user", name, name)
        cluster.ctl(1, "set_permissions", name, ".*", ".*", ".*")
        cluster.ctl(2, "set_policy", name, f"^{name}", '{"max-length":1000}')
        for home in NODES:
            clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
            clients.channel(home).queue_declare(f"{name}.t{home}")
            channel.queue_bind(f"{name}.{home}", name, "#")
        for body in bodies:
            channel.basic_publish(name, "k", body, PERSISTENT, mandatory=True)
        for node in NODES:
            cluster.kill(node)
    cluster.start_all()
    cluster.wait_until_ready()
    with Clients(cluster) as clients:
        for node in NODES:
            channel = clients.connection(node, name).channel()
            for home in NODES:
                if node == 1:
                    assert drain(channel, f"{name}.{home}") == bodies
                assert counts(channel, f"{name}.{home}") == (0, 0)
                assert is_gone(clients.channel(node), f"{name}.t{home}")
            channel.confirm_delivery()
            channel.basic_publish(name, "k", b"again", PERSISTENT, mandatory=True)
            for home in NODES:
                assert drain(channel, f"{name}.{home}") == [b"again"]
        assert name in cluster.ctl(3, "list_policies")


def test_one_alone_lets_nobody_in(cluster: Cluster, clients: Clients, name: str) -> None:
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(2), name, [b"kept"])
    cluster.kill(2)
    cluster.kill(3)
    eventually(lambda: can_connect(clients, 1), False)
    cluster.kill(1)
    cluster.start(1, wait=False)
    for _ in range(10):
        assert not can_connect(clients, 1)
        time.sleep(0.2)
    cluster.start(2)
    for node in (1, 2):
        eventually(lambda n=node: can_connect(clients, n))
        eventually(lambda n=node: counts_if_there(clients, n, name), (1, 0))
    cluster.start(3)
    cluster.wait_until_ready()
    assert drain(clients.channel(3), name) == [b"kept"]
