"""Shards and replicas: masters spread evenly, publishes across them, one consumer for all."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from urllib.parse import quote

import pika
from cluster_clients import Clients, Inbox, counts, eventually
from rings import api, await_ring, make_master, ring_of

from warren.testing import Cluster

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def masters(cluster: Cluster, names: list[str]) -> Counter[str | None]:
    return Counter(getattr(ring_of(cluster, name), "master", None) for name in names)


def test_spread_publish_and_drain(cluster: Cluster, clients: Clients, ha: str) -> None:
    names = [f"{ha}.shard.{n}" for n in range(6)]
    channel = clients.channel(1)
    channel.exchange_declare(ha, "x-modulus-hash", durable=True)
    for name in names:
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, ha, "")
        await_ring(cluster, name, synchronised=(1, 2, 3))
        make_master(cluster, name, 1)
    pattern = f"^{ha}\\.shard"
    planned = cluster.ctl(2, "-q", "spread", "--dry-run", pattern)
    assert len([line for line in planned.splitlines() if cluster.nodes[0] in line]) == 4
    assert masters(cluster, names) == {cluster.nodes[0]: 6}
    publisher = clients.confirming(3)
    keys = itertools.count()
    for _ in range(30):
        publisher.basic_publish(ha, f"key {next(keys)}", b"before")
    assert "4 of 4 masters have moved" in cluster.ctl(3, "spread", pattern)
    assert masters(cluster, names) == dict.fromkeys(cluster.nodes, 2)
    inbox = Inbox(clients.channel(2), ha)
    for _ in range(60):
        publisher.basic_publish(ha, f"key {next(keys)}", b"after")
    inbox.wait(90)
    assert Counter(inbox.bodies) == {b"before": 30, b"after": 60}
    assert not any(method.redelivered for method, _, _ in inbox.got)
    assert {method.consumer_tag for method, _, _ in inbox.got} == {inbox.tag}
    # Nothing is left to be done.
    assert "No master has to move" in cluster.ctl(3, "spread", pattern)
    inbox.channel.basic_cancel(inbox.tag)
    eventually(lambda: [counts(clients.channel(1), it)[1] for it in names], [0] * 6, 30)


def test_a_shard_that_comes_back_is_drained_again(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """Not mirrored: while its node is down it is not there, and its messages wait for it."""
    channel = clients.channel(1)
    channel.exchange_declare(name, "x-modulus-hash", durable=True)
    homes = {}
    for node in (1, 2, 3):
        queue = f"{name}.{node}"
        clients.channel(node).queue_declare(queue, durable=True)
        channel.queue_bind(queue, name, "")
        homes[node] = queue
    inbox = Inbox(clients.channel(1), name)
    eventually(lambda: [counts(clients.channel(1), it)[1] for it in homes.values()], [1, 1, 1], 30)
    cluster.kill(3)
    time.sleep(0.5)
    clients.confirming(1).basic_publish("", homes[2], b"others go on")
    inbox.wait(1)
    cluster.start(3)
    clients.confirming(3).basic_publish("", homes[3], b"back")
    inbox.wait(2, 30)
    assert sorted(inbox.bodies) == [b"back", b"others go on"]
    assert not inbox.cancelled
    api(cluster, 1, "DELETE", f"/exchanges/%2F/{name}")


def test_gets_and_passive_declares_know_the_name(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """The shards are on three nodes, and each node answers for all of them."""
    channel = clients.channel(1)
    channel.exchange_declare(name, "x-modulus-hash", durable=True)
    shards = [f"{name}.{node}" for node in (1, 2, 3)]
    for node, queue in enumerate(shards, 1):
        clients.channel(node).queue_declare(queue, durable=True)
        channel.queue_bind(queue, name, "")
    publisher = clients.confirming(2)
    bodies = [b"%d" % n for n in range(30)]
    for body in bodies:
        publisher.basic_publish(name, f"key {body.decode()}", body)
    for node in (1, 2, 3):
        declared = clients.channel(node).queue_declare(name, passive=True).method
        assert (declared.queue, declared.message_count) == (name, 30)
    got = []
    for turn in range(30):
        taking = clients.channel(turn % 3 + 1)
        method, _, body = taking.basic_get(name)
        assert not method.redelivered
        taking.basic_ack(method.delivery_tag)
        got.append(body)
    assert sorted(got) == sorted(bodies)
    for node in (1, 2, 3):
        assert clients.channel(node).basic_get(name) == (None, None, None)
    eventually(lambda: counts(clients.channel(3), name)[0], 0, 30)
    # One that is down is passed over.
    for queue in shards:
        publisher.basic_publish("", queue, b"left", PERSISTENT)
    cluster.kill(3)
    found = []
    while (got_one := clients.channel(1).basic_get(name, auto_ack=True))[0] is not None:
        found.append(got_one[2])
    assert found == [b"left"] * 2
    cluster.start(3)
    eventually(lambda: counts(clients.channel(1), name)[0], 1, 30)
    api(cluster, 1, "DELETE", f"/exchanges/%2F/{name}")


def shards_of(cluster: Cluster, name: str) -> dict[str, str]:
    """The queues that a policy has made, and where they are."""
    rows = api(cluster, 1, "GET", "/queues/%2F")
    return {
        row["name"]: row["node"] for row in rows if row["name"].startswith(f"sharding: {name} -")
    }


def test_shards_by_policy(cluster: Cluster, clients: Clients, name: str) -> None:
    """On all nodes, also on one that comes later; more of them when the policy says so; none go."""
    channel = clients.channel(1)
    channel.exchange_declare(name, "x-modulus-hash", durable=True)
    cluster.kill(3)
    policy = {
        "pattern": f"^{name}$",
        "apply-to": "exchanges",
        "definition": {"shards-per-node": 2, "routing-key": "1234"},
    }
    path = f"/policies/%2F/{name}"
    api(cluster, 1, "PUT", path, policy)

    def wanted(count: int, nodes: tuple[int, ...]) -> dict[str, str]:
        names = [cluster.nodes[node - 1] for node in nodes]
        return {f"sharding: {name} - {it} - {n}": it for it in names for n in range(count)}

    eventually(lambda: shards_of(cluster, name), wanted(2, (1, 2)), 30)
    cluster.start(3)
    eventually(lambda: shards_of(cluster, name), wanted(2, (1, 2, 3)), 60)

    def bound() -> set[tuple[str, str]]:
        rows = api(cluster, 1, "GET", f"/exchanges/%2F/{name}/bindings/source")
        return {(row["destination"], row["routing_key"]) for row in rows}

    eventually(bound, {(it, "1234") for it in wanted(2, (1, 2, 3))}, 30)
    publisher = clients.confirming(2)
    for n in range(60):
        publisher.basic_publish(name, f"key {n}", b"%d" % n)
    inbox = Inbox(clients.channel(3), name)
    inbox.wait(60)
    assert sorted(inbox.bodies) == sorted(b"%d" % n for n in range(60))
    # More of them, then fewer: those that are there stay, and are bound.
    policy["definition"] = {"shards-per-node": 3, "routing-key": "1234"}
    api(cluster, 1, "PUT", path, policy)
    eventually(lambda: shards_of(cluster, name), wanted(3, (1, 2, 3)), 30)
    eventually(lambda: len(bound()), 9, 30)
    policy["definition"] = {"shards-per-node": 1, "routing-key": "1234"}
    api(cluster, 1, "PUT", path, policy)
    api(cluster, 1, "DELETE", path)
    time.sleep(2.5)
    assert shards_of(cluster, name) == wanted(3, (1, 2, 3))
    assert len(bound()) == 9
    for queue in wanted(3, (1, 2, 3)):
        api(cluster, 1, "DELETE", f"/queues/%2F/{quote(queue, safe='')}")
    api(cluster, 1, "DELETE", f"/exchanges/%2F/{name}")
