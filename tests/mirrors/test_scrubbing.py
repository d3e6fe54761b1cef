"""A bit is turned round in what a checkpoint covers: another replica mends it, on real clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_clients import Clients, Inbox, drain, eventually, is_gone, publish
from rings import await_ring, make_master

from warren.testing import Cluster

LONG_S = 60.0
NODES = (1, 2, 3)
COUNT = 400
#: Not in the first chunk, which a new master reads; and not the newest, of which a mirror that is
#: stopped at once does not know yet that all have it: such a one is no part of its copy.
SPOILED = (130, 150, 151, 390)


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


@pytest.fixture
def queue(cluster: Cluster, clients: Clients, ha: str) -> str:
    """Its master is on the first node, and all nodes have all of it."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    publish(clients.confirming(2), ha, bodies(ha))
    return ha


def bodies(queue: str) -> list[bytes]:
    return [b"%s-%d " % (queue.encode(), i) + b"x" * 200 for i in range(COUNT)]


def spoil(cluster: Cluster, node: int, queue: str) -> None:
    """Change a bit of the bodies of some messages, wherever the log of a node has them."""
    found = 0
    for path in (cluster.data_dir(node) / "log").glob("*.wal"):
        data = path.read_bytes()
        with path.open("r+b") as file:
            for number in SPOILED:
                word = b"%s-%d x" % (queue.encode(), number)
                place = data.find(word)
                while place >= 0:
                    file.seek(place)
                    file.write(bytes([data[place] ^ 1]))
                    found += 1
                    place = data.find(word, place + 1)
    assert found >= len(SPOILED)


def mended(cluster: Cluster, node: int, queue: str) -> int:
    return cluster.log(node).count(f"queue.mended: '{queue}'")


def test_a_mirror_mends_what_nobody_has_read(
    cluster: Cluster, clients: Clients, queue: str
) -> None:
    """It is in sync when it has everything, and then leads the queue by itself."""
    cluster.stop(3)
    spoil(cluster, 3, queue)
    cluster.start(3)
    ring = await_ring(cluster, queue, synchronised=NODES)
    assert ring.master != cluster.nodes[2]
    assert mended(cluster, 3, queue) == len(SPOILED)
    # It is the only one for a while: what it has now, it has by itself.
    for node in (1, 2):
        cluster.kill(node)
    cluster.start_all()
    eventually(lambda: not is_gone(clients.channel(3), queue), within_s=LONG_S)
    await_ring(cluster, queue, master=3)
    assert drain(clients.channel(3), queue) == bodies(queue)
    assert "queue.damaged" not in cluster.log(3)


def test_all_were_down(cluster: Cluster, clients: Clients, queue: str) -> None:
    """Who has the damage is in sync from the start, and mends it all the same, unasked."""
    for node in NODES:
        cluster.stop(node)
    spoil(cluster, 2, queue)
    cluster.start_all()
    await_ring(cluster, queue, synchronised=NODES)
    eventually(lambda: mended(cluster, 2, queue), len(SPOILED), LONG_S)
    make_master(cluster, queue, 2)
    assert drain(clients.channel(1), queue) == bodies(queue)
    assert mended(cluster, 2, queue) == len(SPOILED)


def test_a_consumer_comes_to_it(cluster: Cluster, clients: Clients, queue: str) -> None:
    """The disk of the master spoils what it has read over: whoever is given it waits a moment."""
    cluster.stop(3)
    cluster.start(3)
    await_ring(cluster, queue, synchronised=NODES)
    make_master(cluster, queue, 3)
    spoil(cluster, 3, queue)
    inbox = Inbox(clients.channel(2), queue, auto_ack=True)
    assert inbox.wait(COUNT, LONG_S) == bodies(queue)
    eventually(lambda: mended(cluster, 3, queue), len(SPOILED), LONG_S)
