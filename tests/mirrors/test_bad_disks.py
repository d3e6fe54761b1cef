"""One disk goes bad: the others have everything, and nothing that was confirmed is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from bad_disks import fill_disk, flip_bit
from cluster_clients import Clients, drain, eventually, is_gone, publish
from rings import await_ring

from warren.testing import Cluster

LONG_S = 60.0
NODES = (1, 2, 3)


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d " % i + b"x" * 200 for i in range(first, last)]


def test_a_flipped_bit(cluster: Cluster, clients: Clients, ha: str) -> None:
    """The node with the damage begins anew as a mirror; it leads nobody, and lacks nothing."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    publish(clients.confirming(2), ha, bodies(0, 500))
    cluster.kill(1)
    where = flip_bit(cluster, 1, random.Random(5))
    publish(clients.confirming(2), ha, bodies(500, 600))
    cluster.start(1)
    ring = await_ring(cluster, ha, synchronised=NODES)
    assert ring.master != cluster.nodes[0], where
    # It is the only one for a while: what it has now, it has from the others.
    for node in (2, 3):
        cluster.kill(node)
    cluster.start_all()
    eventually(lambda: not is_gone(clients.channel(1), ha), within_s=LONG_S)
    assert drain(clients.channel(1), ha) == bodies(0, 600)


def test_a_full_disk(cluster: Cluster, clients: Clients, ha: str) -> None:
    """The master cannot write: it goes, another takes over, and every publish is answered."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    channel = clients.confirming(2)
    publish(channel, ha, bodies(0, 50))
    fill_disk(cluster, 1)
    publish(channel, ha, bodies(50, 100))
    ring = await_ring(cluster, ha, synchronised=(2, 3))
    assert ring.master != cluster.nodes[0]
    eventually(lambda: 1 not in cluster.running, within_s=LONG_S)
    cluster.start(1)
    await_ring(cluster, ha, synchronised=NODES)
    assert drain(clients.channel(1), ha) == bodies(0, 100)
