"""Both sides of a partition go on (`autoheal`), and afterwards all of it is in the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_clients import Clients, can_connect, eventually, publish
from rings import api, await_ring, mirror

from warren.testing import Cluster

pytestmark = pytest.mark.timeout(300)

QUEUE = "ha.parted"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config={"cluster_partition_handling": "autoheal"}) as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Clients]:
    with Clients(cluster) as made:
        yield made


def forks(cluster: Cluster, node: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api(cluster, node, "GET", "/warren/cluster/status")["forks"]
    return found


def await_merged(cluster: Cluster, node: int) -> None:
    eventually(lambda: forks(cluster, node) == [], True, 60.0)


def bodies(word: str, count: int) -> list[bytes]:
    return [f"{word} {number}".encode() for number in range(count)]


def drain_all(channel: Any) -> list[tuple[bytes, bool, dict[str, Any]]]:
    """Body, flag and headers of all that is in the queue."""
    found = []
    while True:
        method, properties, body = channel.basic_get(QUEUE, auto_ack=True)
        if body is None:
            return found
        found.append((body, method.redelivered, properties.headers or {}))


def declared(cluster: Cluster, clients: Clients, master: int) -> None:
    clients.channel(master).queue_declare(QUEUE, durable=True)
    publish(clients.confirming(master), QUEUE, bodies("old", 10))
    await_ring(cluster, QUEUE, synchronised=[1, 2, 3])


def test_what_was_published_on_both_sides_is_there(cluster: Cluster, clients: Clients) -> None:
    declared(cluster, clients, 1)
    near, there = clients.confirming(2), clients.confirming(3)
    cluster.isolate(3)
    publish(near, QUEUE, bodies("majority", 20))
    publish(there, QUEUE, bodies("minority", 20))  # returns when the fork's disk has it
    (fork,) = forks(cluster, 3)
    assert (fork["state"], fork["queue"]) == ("open", QUEUE)
    assert "serves a fork of it" in cluster.ctl(3, "explain", QUEUE)
    assert forks(cluster, 1) == []
    for number in range(3):
        method, _, body = there.basic_get(QUEUE)
        assert (body, method.redelivered) == (f"old {number}".encode(), True)
        there.basic_ack(method.delivery_tag)
    held, _, _ = there.basic_get(QUEUE)
    assert held is not None
    for _ in range(6):
        there.basic_get(QUEUE, auto_ack=True)
    method, _, body = there.basic_get(QUEUE)
    assert body == b"minority 0"
    there.basic_ack(method.delivery_tag)

    cluster.heal()
    cluster.wait_until_ready()
    await_merged(cluster, 3)
    await_ring(cluster, QUEUE, synchronised=[1, 2, 3])
    found = drain_all(clients.channel(2))
    left = Counter(body for body, _, _ in found)
    assert left == Counter([b"old 3", *bodies("majority", 20), *bodies("minority", 20)[1:]])
    for body, redelivered, headers in found:
        is_merged = body.startswith(b"minority")
        assert headers.get("x-autoheal") == (fork["fork"] if is_merged else None)
        assert redelivered or not is_merged
    events = cluster.ctl(3, "events")
    assert "queue.fork_opened" in events
    assert "queue.fork_merged" in events


def test_a_master_that_is_cut_off_goes_on(cluster: Cluster, clients: Clients) -> None:
    declared(cluster, clients, 3)
    near, there = clients.confirming(1), clients.confirming(3)
    cluster.isolate(3)
    publish(there, QUEUE, bodies("minority", 20))
    publish(near, QUEUE, bodies("majority", 20))
    cluster.heal()
    cluster.wait_until_ready()
    await_merged(cluster, 3)
    await_ring(cluster, QUEUE, synchronised=[1, 2, 3])
    found = drain_all(clients.channel(2))
    # What the master had not answered when it was cut off may have come by both ways.
    left = {body for body, _, _ in found}
    assert left == {*bodies("old", 10), *bodies("majority", 20), *bodies("minority", 20)}
    assert all(headers for body, _, headers in found if body in bodies("minority", 20)[5:])


def test_listed_nodes_on_both_sides() -> None:
    """`pause_if_all_down` with `recover`: no side has a majority of those, and both go on."""
    listed = "cluster_partition_handling.pause_if_all_down"
    config = {
        "cluster_partition_handling": "pause_if_all_down",
        f"{listed}.nodes.1": "node1@localhost",
        f"{listed}.nodes.2": "node2@localhost",
        f"{listed}.recover": "autoheal",
    }
    with Cluster(3, config=config) as cluster, Clients(cluster) as clients:
        mirror(cluster, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        declared(cluster, clients, 1)
        one, other = clients.confirming(1), clients.confirming(3)
        cluster.isolate(1)
        publish(one, QUEUE, bodies("one", 20))
        publish(other, QUEUE, bodies("other", 20))
        cluster.heal()
        cluster.wait_until_ready()
        for node in cluster.numbers:
            await_merged(cluster, node)
        await_ring(cluster, QUEUE, synchronised=[1, 2, 3])
        left = {body for body, _, _ in drain_all(clients.channel(2))}
        assert left == {*bodies("old", 10), *bodies("one", 20), *bodies("other", 20)}
        # Who reaches none of those that are listed still waits.
        cluster.isolate(3)
        eventually(lambda: can_connect(clients, 3), False)
        assert can_connect(clients, 1)
        cluster.heal()
        cluster.wait_until_ready()


def test_a_node_that_is_killed_brings_its_fork_back(cluster: Cluster, clients: Clients) -> None:
    declared(cluster, clients, 1)
    there = clients.confirming(3)
    cluster.isolate(3)
    publish(there, QUEUE, bodies("minority", 50))
    cluster.kill(3)
    publish(clients.confirming(1), QUEUE, bodies("majority", 20))
    cluster.heal()
    cluster.start(3)
    cluster.wait_until_ready()
    await_merged(cluster, 3)
    found = Counter(body for body, _, _ in drain_all(clients.channel(2)))
    assert found == Counter(bodies("old", 10) + bodies("majority", 20) + bodies("minority", 50))
