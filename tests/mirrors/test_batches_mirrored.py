"""Batches of producers into mirrored queues: whole, and once, whoever dies meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from cluster_clients import Clients, counts, drain, eventually, publish
from rings import await_ring, await_that, make_master, ring_of

from warren.spark.blocks import from_batch
from warren.spark.client import Client
from warren.spark.errors import Refused
from warren.spark.options import read_options
from warren.testing import Cluster

NODES = (1, 2, 3)
LONG_S = 60.0


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


@pytest.fixture
def api(cluster: Cluster) -> Client:
    return client_of(cluster)


def client_of(cluster: Cluster) -> Client:
    urls = ",".join(cluster.management_url(n) for n in NODES)
    return Client(read_options({"endpoints": urls, "retries": "120", "retryIntervalMs": "250"}))


def block_of(queues: list[str], first: int, end: int, size: int = 0) -> bytes:
    """Messages with these numbers, to each of the queues in turn."""
    keys = [queues[n % len(queues)] for n in range(first, end)]
    bodies = [b"%d" % n + b" " * size for n in range(first, end)]
    columns = {
        "exchange": pa.array([""] * len(keys)),
        "routing_key": pa.array(keys),
        "body": pa.array(bodies, pa.binary()),
    }
    return from_batch(pa.RecordBatch.from_pydict(columns))


def stage(api: Client, batch: int, block: bytes, attempt: str = "a") -> list[Any]:
    """All of a batch in one part."""
    return ["0", attempt, api.stage("p", batch, "0", attempt, block)["staged"]]


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body) for body in bodies]


def test_a_batch_is_committed_once(
    cluster: Cluster, clients: Clients, ha: str, name: str, api: Client
) -> None:
    """Into a mirrored queue and one that is not, through a node that has neither's master."""
    clients.channel(1).queue_declare(ha, durable=True)
    clients.channel(2).queue_declare(name, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    part = stage(api, 1, block_of([ha, name], 0, 100))
    assert sum(part[2].values()) == 100
    assert all(counts(clients.channel(3), queue)[0] == 0 for queue in (ha, name))
    assert api.commit("p", 1, [part])["published"] == 100
    # The answer was lost: the same again, from the same stage and from a new one.
    assert api.commit("p", 1, [part])["published"] == 100
    again = stage(api, 1, block_of([ha, name], 0, 100), "b")
    told = api.commit("p", 1, [again])
    assert (told["published"], told["duplicates"]) == (0, 2)
    assert numbers(drain(clients.channel(3), ha)) == list(range(0, 100, 2))
    assert numbers(drain(clients.channel(3), name)) == list(range(1, 100, 2))


def test_a_batch_is_staged_where_the_next_master_is(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """The master dies between the parts and the commit; after the commit every node knows it."""
    clients.channel(2).queue_declare(ha, durable=True)
    make_master(cluster, ha, 1)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    publish(clients.confirming(2), ha, [b"-1"])
    part = stage(api, 5, block_of([ha], 0, 1000))
    cluster.kill(1)
    assert api.commit("p", 5, [part])["published"] == 1000
    await_that(cluster, ha, lambda it: it.master in cluster.nodes[1:], "another master")
    cluster.start(1)
    await_ring(cluster, ha, synchronised=NODES)
    for node in NODES:
        make_master(cluster, ha, node)
        told = api.commit("p", 5, [stage(api, 5, block_of([ha], 0, 1000), f"again{node}")])
        assert (told["published"], told["duplicates"]) == (0, 1)
    assert numbers(drain(clients.channel(3), ha)) == [-1, *range(1000)]


def test_masters_die_during_batches(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """A producer that goes on until it is told; somebody looks all the time: no half of a batch."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, synchronised=NODES)
    api.open_cursor(ha, "look", {})
    size, batches = 600, 12
    seen: set[int] = set()
    is_over = threading.Event()

    def look() -> None:
        mine = client_of(cluster)
        while not is_over.is_set():
            seen.add(int(mine.range_info(ha)["end"]))
            time.sleep(0.005)

    def produce() -> None:
        mine = client_of(cluster)
        for batch in range(batches):
            for attempt in range(100):
                try:
                    # 300 kB: more than one frame of the ring.
                    block = block_of([ha], batch * size, (batch + 1) * size, 500)
                    told = mine.commit("p", batch, [stage(mine, batch, block, str(attempt))])
                    assert told["refused"] == told["unroutable"] == 0
                    break
                except Refused as error:
                    # It was staged on nodes that are not the same any more: as Spark does it.
                    if error.word not in {"not_staged", "moved"}:
                        raise
            else:
                raise AssertionError(f"batch {batch} is never taken")

    looking, producing = threading.Thread(target=look), threading.Thread(target=produce)
    looking.start()
    producing.start()
    dice = random.Random(9)
    while producing.is_alive():
        time.sleep(dice.random())
        now = ring_of(cluster, ha)
        if now is None or now.master is None or not producing.is_alive():
            continue
        victim = cluster.nodes.index(now.master) + 1
        cluster.kill(victim)
        time.sleep(dice.random() * 2)
        cluster.start(victim)
        cluster.wait_until_ready()
        await_ring(cluster, ha, synchronised=NODES)
    producing.join()
    is_over.set()
    looking.join()
    assert numbers(drain(clients.channel(2), ha)) == list(range(batches * size))
    # Positions are given out anew where a batch was cut off; what could be read was whole.
    ends = sorted(seen)
    assert all((end - ends[0]) % size == 0 for end in ends), ends


def test_what_waits_for_its_mirrors_is_not_published_again(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """A commit that takes too long is asked for again: the batch is in the queue, unseen."""
    clients.channel(1).queue_declare(ha, durable=True)
    make_master(cluster, ha, 1)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    part = stage(api, 1, block_of([ha], 0, 50))
    mirrors = [2, 3]
    for node in mirrors:
        cluster.pause(node)
    asking = [threading.Thread(target=api.commit, args=("p", 1, [part])) for _ in range(2)]
    try:
        for thread in asking:
            thread.start()
            time.sleep(0.3)
    finally:
        for node in mirrors:
            cluster.resume(node)
    for thread in asking:
        thread.join(LONG_S)
        assert not thread.is_alive()
    eventually(lambda: counts(clients.channel(1), ha)[0], 50, LONG_S)
    assert numbers(drain(clients.channel(1), ha)) == list(range(50))


def test_a_batch_of_which_a_part_is_lost_is_published_nowhere(
    cluster: Cluster, clients: Clients, name: str, api: Client
) -> None:
    """Two queues without mirrors on two nodes, one of which is started again before the commit."""
    first, second = f"{name}.first", f"{name}.second"
    clients.channel(1).queue_declare(first, durable=True)
    clients.channel(2).queue_declare(second, durable=True)
    part = stage(api, 41, block_of([first, second], 0, 100))
    cluster.kill(2)
    cluster.start(2)
    cluster.wait_until_ready()
    with pytest.raises(Refused, match=f"at node {cluster.nodes[1]} .*publish it again") as refusal:
        api.commit("p", 41, [part])
    assert refusal.value.word == "not_staged"
    assert [counts(clients.channel(3), queue)[0] for queue in (first, second)] == [0, 0]
    # What Spark does when the query is started again.
    assert api.commit("p", 41, [stage(api, 41, block_of([first, second], 0, 100), "b")])
    assert numbers(drain(clients.channel(3), first)) == list(range(0, 100, 2))
    assert numbers(drain(clients.channel(3), second)) == list(range(1, 100, 2))


def test_a_long_row_is_published_from_any_node(
    cluster: Cluster, clients: Clients, ha: str, name: str
) -> None:
    """As long as the API takes it, wherever its queue is."""
    clients.channel(2).queue_declare(name, durable=True)
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    for number, node in enumerate(NODES):
        mine = Client(read_options({"endpoints": cluster.management_url(node), "retries": "20"}))
        block = block_of([name, ha], 2 * number, 2 * number + 2, 9 << 20)
        told = mine.commit("p", 50 + number, [stage(mine, 50 + number, block)])
        assert told["published"] == 2
        with pytest.raises(Refused, match="too large") as refusal:
            mine.stage("p", 60, "0", "a", block_of([name], 0, 1, 20_000_000))
        assert refusal.value.word == "payload_too_large"
    for queue, offset in ((name, 0), (ha, 1)):
        got = drain(clients.channel(3), queue)
        assert [int(body.split()[0]) for body in got] == [offset, 2 + offset, 4 + offset]
        assert {len(body) for body in got} == {1 + (9 << 20)}
