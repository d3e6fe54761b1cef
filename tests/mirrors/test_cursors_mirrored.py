"""Cursors of mirrored queues: what they keep, and how far they are, is on every replica."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pyarrow as pa
import pytest
from cluster_clients import Clients, counts, drain, eventually, publish, refused
from rings import await_ring, await_that, clear_policy, make_master, mirror

from warren.spark.blocks import Block
from warren.spark.client import Client
from warren.spark.errors import Refused
from warren.spark.options import read_options
from warren.testing import Cluster

LONG_S = 60.0
NODES = (1, 2, 3)
TRANSIENT = pika.BasicProperties(delivery_mode=1)


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


@pytest.fixture
def api(cluster: Cluster) -> Client:
    """Any node will do, as for the connector."""
    urls = ",".join(cluster.management_url(n) for n in NODES)
    return Client(read_options({"endpoints": urls, "retries": "60"}))


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


def read(api: Client, queue: str, first: int, end: int) -> list[tuple[Any, ...]]:
    """A range as a reader gets it: position, time, whether it may have been delivered, body."""
    found: list[tuple[Any, ...]] = []
    while first < end:
        block = Block(api.read_range(queue, {"from": first, "to": end, "cursor": "c"}))
        assert block.end > first, f"{queue} ends at {first}"
        assert block.head["missing"] == 0
        columns = (("seq", pa.int64()), ("enqueued_at", pa.int64()), ("redelivered_hint", None))
        rows = [block.column(name, kind or pa.bool_()).to_pylist() for name, kind in columns]
        found += zip(*rows, block.column("body", pa.binary()).to_pylist(), strict=True)
        first = block.end
    return found


def shown(api: Client, queue: str) -> dict[str, Any]:
    row: dict[str, Any] = api.call("GET", f"/queues/%2F/{queue}/cursors/c")
    return {key: row[key] for key in ("mode", "start", "position", "retained", "end")}


def test_a_follower_outlives_masters(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """Its start, token and position, and what is kept for it, when the master dies or is moved."""
    channel = clients.channel(1)
    channel.queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    publish(clients.confirming(2), ha, bodies(0, 300))
    told = api.open_cursor(ha, "c", {"start": "earliest"})
    publish(clients.confirming(2), ha, bodies(300, 500))
    assert [channel.basic_get(ha, auto_ack=True)[2] for _ in range(400)] == bodies(0, 400)
    api.trim(ha, "c", {"token": told["token"], "upto": 100})
    before = read(api, ha, 100, 500)
    assert [row[-1] for row in before] == bodies(100, 500)
    eventually(lambda: shown(api, ha)["retained"], 300)

    cluster.kill(1)
    await_that(cluster, ha, lambda ring: ring.master in cluster.nodes[1:], "another master")
    assert read(api, ha, 100, 500) == before
    again = api.open_cursor(ha, "c", {"token": told["token"]})
    assert [again[key] for key in ("token", "start", "position", "incarnation")] == [
        told["token"], 0, 100, told["incarnation"],
    ]  # fmt: skip
    with pytest.raises(Refused, match="another query"):
        api.open_cursor(ha, "c", {"start": "earliest"})
    # What happens without the node that died, it hears of afterwards.
    api.trim(ha, "c", {"token": told["token"], "upto": 200})
    publish(clients.confirming(2), ha, bodies(500, 600))
    assert drain(clients.channel(3), ha) == bodies(400, 600)

    cluster.start(1)
    await_ring(cluster, ha, synchronised=NODES)
    make_master(cluster, ha, 1)
    assert read(api, ha, 200, 500) == before[100:]
    assert [row[-1] for row in read(api, ha, 500, 600)] == bodies(500, 600)
    assert shown(api, ha) == {
        "mode": "follow", "start": 0, "position": 200, "retained": 400, "end": 600,
    }  # fmt: skip
    api.drop_cursor(ha, "c")
    for node in NODES:
        make_master(cluster, ha, node)
        with pytest.raises(Refused, match="no cursor 'c'"):
            api.call("GET", f"/queues/%2F/{ha}/cursors/c")
        assert api.range_info(ha)["first"] == 600


def test_a_queue_that_gets_mirrors_keeps_its_cursors(
    cluster: Cluster, clients: Clients, name: str, api: Client
) -> None:
    """Copies have what is kept for cursors, and so does a node's log after a restart."""
    pattern = f"^{name}$"
    channel = clients.channel(1)
    channel.queue_declare(name, durable=True)
    sender = clients.confirming(2)
    for body in bodies(0, 100):
        # In memory only, until there are mirrors.
        sender.basic_publish("", name, body, TRANSIENT)
    told = api.open_cursor(name, "c", {"start": "earliest"})
    publish(sender, name, bodies(100, 300))
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(250)] == bodies(0, 250)
    before = read(api, name, 0, 300)
    assert [row[-1] for row in before] == bodies(0, 300)
    mirror(cluster, pattern, {"ha-mode": "all", "ha-sync-mode": "automatic"})
    await_ring(cluster, name, synchronised=NODES)
    for node in (2, 3):
        make_master(cluster, name, node)
        assert read(api, name, 0, 300) == before
        eventually(lambda: counts(clients.channel(3), name)[0], 50, LONG_S)
    cluster.restart(1)
    await_ring(cluster, name, synchronised=NODES)
    make_master(cluster, name, 1)
    assert read(api, name, 0, 300) == before
    assert api.open_cursor(name, "c", {"token": told["token"]})["position"] == 0
    assert shown(api, name)["retained"] == 250
    assert drain(clients.channel(3), name) == bodies(250, 300)
    clear_policy(cluster, pattern)


def test_a_mirrored_queue_is_drained(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """What a drain has trimmed is gone on all replicas, the rest is not, and nobody else may."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    told = api.open_cursor(ha, "c", {"start": "earliest", "mode": "drain"})
    publish(clients.confirming(3), ha, bodies(0, 400))
    api.trim(ha, "c", {"token": told["token"], "upto": 150})
    refused(403, "drained", lambda: clients.channel(2).basic_consume(ha, print))
    before = read(api, ha, 150, 400)
    cluster.kill(1)
    await_that(cluster, ha, lambda ring: ring.master in cluster.nodes[1:], "another master")
    assert read(api, ha, 150, 400) == before
    assert shown(api, ha)["position"] == 150
    eventually(lambda: counts(clients.channel(2), ha)[0], 250, LONG_S)
    refused(403, "drained", lambda: clients.channel(3).basic_consume(ha, print))
    api.trim(ha, "c", {"token": told["token"], "upto": 400})
    eventually(lambda: counts(clients.channel(2), ha)[0], 0, LONG_S)
    cluster.start(1)
    await_ring(cluster, ha, synchronised=NODES)
    make_master(cluster, ha, 1)
    assert shown(api, ha)["position"] == 400
    assert counts(clients.channel(2), ha)[0] == 0


def range_at(cluster: Cluster, node: int, queue: str, end: int) -> tuple[str, list[Any]]:
    """Who has served it, and all columns of all its rows, as one node is asked."""
    urls = cluster.management_url(node)
    mine = Client(read_options({"endpoints": urls, "retries": "20"}))
    block = Block(mine.read_range(queue, {"from": 0, "to": end, "cursor": "c"}))
    kinds = {
        "seq": pa.int64(), "enqueued_at": pa.int64(), "redelivered_hint": pa.bool_(),
        "routing_key": pa.string(), "delivery_mode": pa.int8(), "body": pa.binary(),
    }  # fmt: skip
    assert block.end == end
    return block.head["node"], [block.column(n, kind).to_pylist() for n, kind in kinds.items()]


def test_every_replica_in_sync_serves_ranges(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """Each node for itself, and the same rows; or the master, where that is wanted."""
    channel = clients.channel(1)
    channel.queue_declare(ha, durable=True)
    make_master(cluster, ha, 1)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    api.open_cursor(ha, "c", {"start": "earliest"})
    publish(clients.confirming(2), ha, bodies(0, 400))
    assert [channel.basic_get(ha, auto_ack=True)[2] for _ in range(150)] == bodies(0, 150)

    def served() -> list[str]:
        return [range_at(cluster, node, ha, 400)[0] for node in NODES]

    # A mirror hears a moment later what is committed.
    eventually(served, cluster.nodes, LONG_S)
    rows = [range_at(cluster, node, ha, 400)[1] for node in NODES]
    assert rows[0] == rows[1] == rows[2]
    assert rows[0][-1] == bodies(0, 400)
    asked = {"from": 0, "to": 400, "cursor": "c", "master": "true"}
    assert Block(api.read_range(ha, asked)).head["node"] == cluster.nodes[0]
    spared = {"from": 0, "to": 400, "cursor": "c", "mirror": "true"}
    for node in NODES:
        mine = Client(read_options({"endpoints": cluster.management_url(node), "retries": "20"}))
        block = Block(mine.read_range(ha, spared))
        assert block.head["node"] == cluster.nodes[max(node, 2) - 1]
        assert block.column("body", pa.binary()).to_pylist() == bodies(0, 400)


def test_the_master_answers_where_a_mirror_is_wanted_and_none_can(
    clients: Clients, name: str, api: Client
) -> None:
    clients.channel(1).queue_declare(name, durable=True)
    api.open_cursor(name, "c", {})
    publish(clients.confirming(1), name, bodies(0, 5))
    block = Block(api.read_range(name, {"from": 0, "to": 5, "cursor": "c", "mirror": "true"}))
    assert block.column("body", pa.binary()).to_pylist() == bodies(0, 5)


def test_who_uses_a_cursor_outlives_the_master(
    cluster: Cluster, clients: Clients, ha: str, api: Client
) -> None:
    """A second query that knows the token is refused by the next master, too, until the first one
    ends or is silent for long."""
    clients.channel(1).queue_declare(ha, durable=True)
    make_master(cluster, ha, 1)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    token = api.open_cursor(ha, "c", {"owner": "first"})["token"]
    with pytest.raises(Refused, match="in use by another query"):
        api.open_cursor(ha, "c", {"owner": "second", "token": token})
    cluster.kill(1)
    await_that(cluster, ha, lambda ring: ring.master in cluster.nodes[1:], "another master")
    for said in ({"owner": "second", "token": token}, {"owner": "second"}):
        with pytest.raises(Refused, match="in use by another query") as refusal:
            api.open_cursor(ha, "c", said)
        assert refusal.value.word == "cursor_in_use"
    with pytest.raises(Refused, match="in use by another query"):
        api.trim(ha, "c", {"owner": "second", "token": token, "upto": 0})
    assert api.poll(ha, "c", {"owner": "first", "token": token})["token"] == token
    api.release(ha, "c", "first")
    cluster.start(1)
    await_ring(cluster, ha, synchronised=NODES)
    make_master(cluster, ha, 1)
    assert api.open_cursor(ha, "c", {"owner": "second", "token": token})["token"] == token
    with pytest.raises(Refused, match="in use by another query"):
        api.poll(ha, "c", {"owner": "first", "token": token})


def test_long_messages_are_read_from_any_node(
    cluster: Cluster, clients: Clients, name: str, api: Client
) -> None:
    """Longer than what nodes tell each other in one piece."""
    clients.channel(2).queue_declare(name, durable=True)
    api.open_cursor(name, "c", {})
    long = [bytes([n]) * (11 << 20) for n in range(3)]
    publish(clients.confirming(2), name, long)
    for node in NODES:
        mine = Client(read_options({"endpoints": cluster.management_url(node), "retries": "20"}))
        for position, body in enumerate(long):
            block = Block(mine.read_range(name, {"from": position, "to": 3, "rows": 1}))
            assert block.column("body", pa.binary()).to_pylist() == [body]
