"""What else queues can do, in forks and when these are merged: limits, times, dead letters."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from cluster_clients import Clients, eventually, publish
from rings import api, await_ring, mirror

from warren.testing import Cluster

pytestmark = pytest.mark.timeout(300)

ALL = {"ha-mode": "all", "ha-sync-mode": "automatic"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config={"cluster_partition_handling": "autoheal"}) as nodes:
        mirror(nodes, r"^ha\.", dict(ALL))
        yield nodes


def declared(cluster: Cluster, clients: Clients, queue: str, **arguments: Any) -> None:
    """With its master on the first node, and mirrors that have everything."""
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    clients.channel(1).queue_declare(queue, durable=True, arguments=named)
    await_ring(cluster, queue, master=1, synchronised=[1, 2, 3])


def forks(cluster: Cluster, node: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api(cluster, node, "GET", "/warren/cluster/status")["forks"]
    return found


def cut_off(cluster: Cluster) -> None:
    """The third node; a mirror hears some milliseconds after the publisher that all have it."""
    time.sleep(0.3)
    cluster.isolate(3)


def await_fork(cluster: Cluster, queue: str) -> None:
    def is_open() -> bool:
        return any((it["queue"], it["state"]) == (queue, "open") for it in forks(cluster, 3))

    eventually(is_open, True, 60.0)


def heal(cluster: Cluster, queue: str) -> None:
    """Until the third node's forks are merged."""
    cluster.heal()
    cluster.wait_until_ready()
    eventually(lambda: forks(cluster, 3), [], 60.0)
    await_ring(cluster, queue, synchronised=[1, 2, 3])


def drained(channel: Any, queue: str) -> list[tuple[bytes, dict[str, Any]]]:
    found = []
    while True:
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        if body is None:
            return found
        found.append((body, properties.headers or {}))


def bodies_of(channel: Any, queue: str) -> list[bytes]:
    return [body for body, _ in drained(channel, queue)]


def died_of(headers: dict[str, Any]) -> str:
    """Why a dead letter is one; each died once only."""
    (death,) = headers["x-death"]
    assert death["count"] == 1
    return str(death["reason"])


def with_priority(channel: Any, queue: str, priority: int, body: bytes) -> None:
    properties = pika.BasicProperties(delivery_mode=2, priority=priority)
    channel.basic_publish("", queue, body, properties)


def test_priorities(cluster: Cluster, clients: Clients, ha: str) -> None:
    declared(cluster, clients, ha, x_max_priority=3)
    near, there = clients.confirming(2), clients.confirming(3)
    for priority in (0, 2):
        for number in range(4):
            with_priority(near, ha, priority, f"old {priority} {number}".encode())
    cut_off(cluster)
    await_fork(cluster, ha)
    for priority in (3, 0, 2, 1):
        for number in range(3):
            with_priority(there, ha, priority, f"fork {priority} {number}".encode())
    with_priority(near, ha, 3, b"majority 3")
    # The fork gives out its highest first, and what it lets go of is named by its level.
    assert [there.basic_get(ha, auto_ack=True)[2] for _ in range(4)] == [
        *(f"fork 3 {number}".encode() for number in range(3)),
        b"old 2 0",
    ]
    heal(cluster, ha)
    assert bodies_of(clients.channel(1), ha) == [
        b"majority 3",
        *(f"old 2 {number}".encode() for number in range(1, 4)),
        *(f"fork 2 {number}".encode() for number in range(3)),
        *(f"fork 1 {number}".encode() for number in range(3)),
        *(f"old 0 {number}".encode() for number in range(4)),
        *(f"fork 0 {number}".encode() for number in range(3)),
    ]


def test_times_to_live_go_on(cluster: Cluster, clients: Clients, ha: str) -> None:
    """What a fork has lived counts, whether it is a time of its own or that of the queue."""
    declared(cluster, clients, ha, x_message_ttl=25_000)
    there = clients.confirming(3)
    cut_off(cluster)
    await_fork(cluster, ha)
    for expiration, body in (("1", b"over in the fork"), ("20000", b"own"), (None, b"the queue's")):
        there.basic_publish(
            "", ha, body, pika.BasicProperties(delivery_mode=2, expiration=expiration)
        )
    published_s = time.monotonic()
    time.sleep(8)
    heal(cluster, ha)
    assert time.monotonic() - published_s < 18, "too slow to tell"
    channel = clients.channel(1)
    assert channel.queue_declare(ha, passive=True).method.message_count == 2
    eventually(lambda: channel.queue_declare(ha, passive=True).method.message_count, 1)
    own_s = time.monotonic() - published_s
    eventually(lambda: channel.queue_declare(ha, passive=True).method.message_count, 0)
    all_s = time.monotonic() - published_s
    assert (own_s, all_s) == (pytest.approx(20, abs=2), pytest.approx(25, abs=2))


def test_what_is_over_when_it_is_merged_is_a_dead_letter(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """The node is down when it expires; a consumer that waits is not given it."""
    clients.channel(1).queue_declare(f"{ha}.dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{ha}.dead"}
    clients.channel(1).queue_declare(ha, durable=True, arguments=dead)
    await_ring(cluster, ha, master=1, synchronised=[1, 2, 3])
    await_ring(cluster, f"{ha}.dead", synchronised=[1, 2, 3])
    there = clients.confirming(3)
    cut_off(cluster)
    await_fork(cluster, ha)
    properties = pika.BasicProperties(delivery_mode=2, expiration="3000")
    there.basic_publish("", ha, b"over", properties)
    there.basic_publish("", ha, b"lasts", pika.BasicProperties(delivery_mode=2))
    cluster.kill(3)
    consumer = clients.channel(2)
    got: list[bytes] = []
    consumer.basic_consume(ha, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    time.sleep(4)
    cluster.heal()
    cluster.start(3)
    heal(cluster, ha)
    consumer.connection.process_data_events(1)
    assert got == [b"lasts"]
    ((body, headers),) = drained(clients.channel(1), f"{ha}.dead")
    assert (body, died_of(headers)) == (b"over", "expired")


def test_what_is_rejected_in_a_fork_is_a_dead_letter(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """Once, whether it was there before or was published to the fork; the queue has it no more."""
    clients.channel(1).queue_declare(f"{ha}.dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{ha}.dead"}
    clients.channel(1).queue_declare(ha, durable=True, arguments=dead)
    await_ring(cluster, ha, master=1, synchronised=[1, 2, 3])
    await_ring(cluster, f"{ha}.dead", synchronised=[1, 2, 3])
    near, there = clients.confirming(1), clients.confirming(3)
    publish(near, ha, [b"old bad", b"old good"])
    cut_off(cluster)
    await_fork(cluster, ha)
    await_fork(cluster, f"{ha}.dead")
    publish(there, ha, [b"fork bad", b"fork good"])
    held = [there.basic_get(ha) for _ in range(4)]
    for method, _, body in held:
        there.basic_reject(method.delivery_tag, requeue=not body.endswith(b"bad"))
    heal(cluster, ha)
    eventually(lambda: forks(cluster, 3), [], 60.0)
    assert bodies_of(clients.channel(2), ha) == [b"old good", b"fork good"]
    found = drained(clients.channel(2), f"{ha}.dead")
    assert [(body, died_of(headers)) for body, headers in found] == [
        (b"old bad", "rejected"),
        (b"fork bad", "rejected"),
    ]


def test_what_has_lost_its_queue_is_put_aside(cluster: Cluster, clients: Clients, ha: str) -> None:
    """The queue is deleted, and another declared, while its fork is published to."""
    declared(cluster, clients, ha)
    near, there = clients.confirming(1), clients.confirming(3)
    publish(near, ha, [b"old"])
    cut_off(cluster)
    await_fork(cluster, ha)
    publish(there, ha, [b"fork 0", b"fork 1"])
    near.queue_delete(ha)
    near.queue_declare(ha, durable=True)
    publish(near, ha, [b"of another"])
    heal(cluster, ha)
    pieces = [row for row in api(cluster, 1, "GET", "/warren/salvage") if row["queue"] == ha]
    (piece,) = pieces
    assert (piece["node"], piece["messages"]) == (cluster.nodes[2], 2)
    assert "has lost its queue" in piece["reason"]
    cluster.ctl(1, "salvage", "republish", piece["file"])
    assert bodies_of(clients.channel(2), ha) == [b"of another", b"fork 0", b"fork 1"]


def test_lengths(cluster: Cluster, clients: Clients, ha: str) -> None:
    """The oldest go, in the fork and at the merge, and each is a dead letter once."""
    clients.channel(1).queue_declare(f"{ha}.dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{ha}.dead"}
    clients.channel(1).queue_declare(ha, durable=True, arguments={**dead, "x-max-length": 10})
    await_ring(cluster, ha, master=1, synchronised=[1, 2, 3])
    await_ring(cluster, f"{ha}.dead", synchronised=[1, 2, 3])
    near, there = clients.confirming(1), clients.confirming(3)
    publish(near, ha, [b"old %d" % number for number in range(10)])
    cut_off(cluster)
    await_fork(cluster, ha)
    await_fork(cluster, f"{ha}.dead")
    publish(there, ha, [b"fork %d" % number for number in range(4)])
    publish(near, ha, [b"majority %d" % number for number in range(2)])
    assert there.queue_declare(ha, passive=True).method.message_count == 10
    heal(cluster, ha)
    left = bodies_of(clients.channel(2), ha)
    dead_ones = drained(clients.channel(2), f"{ha}.dead")
    assert {died_of(headers) for _, headers in dead_ones} == {"maxlen"}
    # The first four left the fork, the first two the majority's queue: it has had room since.
    assert left[-4:] == [b"fork %d" % number for number in range(4)]
    assert len(left) == 10
    all_there = Counter(left) + Counter({body for body, _ in dead_ones})
    wanted = [b"old %d" % n for n in range(10)] + [b"fork %d" % n for n in range(4)]
    assert all_there == Counter([*wanted, b"majority 0", b"majority 1"])


def test_a_full_queue_takes_what_it_has_room_for(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    """With reject-publish the merge waits for room, says so, and drops nothing."""
    declared(cluster, clients, ha, x_max_length=5, x_overflow="reject-publish")
    near, there = clients.confirming(1), clients.confirming(3)
    cut_off(cluster)
    await_fork(cluster, ha)
    publish(there, ha, [b"fork %d" % number for number in range(5)])
    with pytest.raises(pika.exceptions.NackError):
        publish(there, ha, [b"one too many"])
    publish(near, ha, [b"majority %d" % number for number in range(3)])
    cluster.heal()
    cluster.wait_until_ready()
    eventually(lambda: [it["messages"] for it in forks(cluster, 3)], [3], 60.0)
    (waiting,) = forks(cluster, 3)
    assert waiting["waits_for"] == "the queue is full"
    assert "the queue is full" in cluster.ctl(3, "explain", ha)
    assert "the queue is full" in cluster.ctl(3, "cluster_status")
    told = json.loads(cluster.ctl(3, "cluster_status", "--json"))
    assert told["forks"][0]["waits_for"] == "the queue is full"
    found: list[bytes] = []
    taking = clients.channel(2)

    def all_came() -> int:
        found.extend(bodies_of(taking, ha))
        return len(found)

    eventually(all_came, 8)
    assert found == [b"majority %d" % n for n in range(3)] + [b"fork %d" % n for n in range(5)]
    heal(cluster, ha)
