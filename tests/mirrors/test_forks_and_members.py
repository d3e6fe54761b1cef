"""A node whose forks are not merged yet is not reset or forgotten by the way."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from cluster_clients import Clients, drain, eventually, publish
from rings import await_ring, mirror

from warren.testing import Cluster, CtlFailed

pytestmark = pytest.mark.timeout(300)

QUEUE = "ha.parted"
OLD, FORKED = [b"old %d" % n for n in range(5)], [b"fork %d" % n for n in range(5)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config={"cluster_partition_handling": "autoheal"}) as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Clients]:
    with Clients(cluster) as made:
        yield made


def part(cluster: Cluster, clients: Clients) -> None:
    """Until the third node has confirmed something at a fork."""
    clients.channel(1).queue_declare(QUEUE, durable=True)
    publish(clients.confirming(1), QUEUE, OLD)
    await_ring(cluster, QUEUE, synchronised=[1, 2, 3])
    there = clients.confirming(3)
    cluster.isolate(3)
    publish(there, QUEUE, FORKED)


def refused(cluster: Cluster, node: int, *words: str) -> str:
    with pytest.raises(CtlFailed) as caught:
        cluster.ctl(node, *words)
    assert caught.value.status == 70
    return caught.value.output


def is_merged(cluster: Cluster) -> bool:
    shown = json.loads(cluster.ctl(3, "cluster_status", "--json"))
    return "forks" not in shown and shown["agreement"]["has_majority"]


def members(cluster: Cluster, node: int) -> list[str]:
    shown: list[str] = json.loads(cluster.ctl(node, "cluster_status", "--json"))["disk_nodes"]
    return shown


def all_is_there(cluster: Cluster, clients: Clients) -> None:
    eventually(lambda: is_merged(cluster), True, 60.0)
    await_ring(cluster, QUEUE, synchronised=[1, 2, 3])
    assert Counter(drain(clients.channel(2), QUEUE)) == Counter([*OLD, *FORKED])


def test_a_stopped_node_with_forks(cluster: Cluster, clients: Clients) -> None:
    part(cluster, clients)
    first, _, third = cluster.nodes
    cluster.ctl(3, "stop_app")
    said = refused(cluster, 3, "reset")
    assert f"forks of 1 queue ('{QUEUE}') that are not merged" in said
    assert f"warrenctl -n {third} start_app" in said
    cluster.heal()
    eventually(lambda: "has forks" in refused(cluster, 1, "forget_cluster_node", third), True)
    said = refused(cluster, 2, "forget_cluster_node", third)
    assert f"forks of 1 queue ('{QUEUE}') that are not merged" in said
    assert "--force" in said
    cluster.ctl(3, "start_app")
    all_is_there(cluster, clients)
    cluster.ctl(3, "stop_app")
    cluster.ctl(3, "reset")
    eventually(lambda: third in members(cluster, 1), False)
    assert first in members(cluster, 1)


def test_a_node_that_was_cut_off_and_is_gone(cluster: Cluster, clients: Clients) -> None:
    part(cluster, clients)
    third = cluster.nodes[2]
    cluster.kill(3)
    said = refused(cluster, 1, "forget_cluster_node", third)
    assert "may have served queues by itself" in said
    assert f"forget_cluster_node --force {third}" in said
    cluster.heal()
    cluster.start(3)
    all_is_there(cluster, clients)
    # It has been heard of until it died: it has nothing of its own, and has said so.
    time.sleep(2.0)
    cluster.kill(3)
    cluster.ctl(1, "forget_cluster_node", third)


def test_it_may_be_given_up(cluster: Cluster, clients: Clients) -> None:
    part(cluster, clients)
    third = cluster.nodes[2]
    cluster.kill(3)
    refused(cluster, 1, "forget_cluster_node", third)
    cluster.ctl(1, "forget_cluster_node", "--force", third)
    assert third not in members(cluster, 1)
    assert drain(clients.channel(1), QUEUE) == OLD
