"""Nodes that are suspended or cut off: the majority goes on, the others wait, nothing is lost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from cluster_clients import (
    FAILOVER_S,
    NODES,
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
from rings import await_ring, mirror

from warren.testing import Cluster

#: A node without the others for so long sends its clients away, and it takes a moment to notice.
#: Judged by `make timing`.
PAUSED_S = 5.0


def the_node(cluster: Cluster, leads: bool) -> int:
    """The one that leads the agreement now, or one that does not."""
    leader = int(re.findall(r"> node(\d)@localhost leads", cluster.log(3))[-1])
    return leader if leads else leader % 3 + 1


def is_over(connection: Any) -> bool:
    """Whether the broker has ended the connection."""
    try:
        connection.process_data_events(0)
    except pika.exceptions.AMQPConnectionError:
        return True
    return not connection.is_open


@pytest.mark.parametrize("leads", [True, False])
def test_a_suspended_node(
    cluster: Cluster,
    clients: Clients,
    name: str,
    leads: bool,
    judge_time: Callable[[float, float], None],
) -> None:
    asleep = the_node(cluster, leads)
    near, far = [node for node in NODES if node != asleep]
    bodies = [b"%d" % i for i in range(20)]
    channel = clients.confirming(near)
    for home in (asleep, far):
        clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
        publish(channel, f"{name}.{home}", bodies)
    clients.channel(asleep).queue_declare(f"{name}.t")
    inbox = Inbox(clients.channel(near), f"{name}.{asleep}")
    inbox.wait(20)
    there = clients.connection(asleep)
    own = there.channel()
    own.confirm_delivery()
    publish(own, f"{name}.{far}", [b"own"])

    cluster.pause(asleep)
    began_s = time.monotonic()
    judge_time(until_nacked(channel, f"{name}.{asleep}"), FAILOVER_S)
    inbox.wait_cancelled()
    judge_time(time.monotonic() - began_s, 2 * FAILOVER_S)
    reason = f"home node 'node{asleep}@localhost' of durable queue"
    refused(404, reason, lambda: counts(clients.channel(far), f"{name}.{asleep}"))
    assert is_gone(clients.channel(near), f"{name}.t")
    clients.channel(far).queue_declare(f"{name}.made", durable=True)
    publish(channel, f"{name}.{far}", [b"meanwhile"])
    assert drain(channel, f"{name}.{far}") == [*bodies, b"own", b"meanwhile"]
    time.sleep(max(0.0, began_s + 5 - time.monotonic()))

    cluster.resume(asleep)
    eventually(lambda: is_over(there))
    cluster.wait_until_ready()
    eventually(lambda: counts(clients.channel(near), f"{name}.{asleep}")[0] >= 20)
    assert counts(clients.channel(asleep), f"{name}.made") == (0, 0)
    assert is_gone(clients.channel(asleep), f"{name}.t")
    left = drain(clients.channel(asleep), f"{name}.{asleep}")
    assert left[:20] == bodies
    assert set(left[20:]) <= {b"unsure"}
    publish(channel, f"{name}.{asleep}", [b"again"])
    assert drain(channel, f"{name}.{asleep}") == [b"again"]


def causes_of(cluster: Cluster, node: int) -> dict[str, str]:
    """Of the last event of each name that a node has noted and that has one."""
    events = [json.loads(line) for line in cluster.ctl(node, "events", "--json").splitlines()]
    told = {event["event"]: event["details"] for event in events}
    return {name: it["cause"] for name, it in told.items() if it.get("cause")}


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_that_is_cut_off(
    cluster: Cluster,
    clients: Clients,
    name: str,
    leads: bool,
    judge_time: Callable[[float, float], None],
) -> None:
    alone = the_node(cluster, leads)
    near, far = [node for node in NODES if node != alone]
    bodies = [b"%d" % i for i in range(20)]
    channel = clients.confirming(near)
    for home in (alone, far):
        clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
        publish(channel, f"{name}.{home}", bodies)
    there = clients.connection(alone)
    own = there.channel()
    own.confirm_delivery()
    publish(own, f"{name}.{alone}", [b"own"])

    cluster.isolate(alone)
    began_s = time.monotonic()
    judge_time(until_nacked(channel, f"{name}.{alone}"), FAILOVER_S)
    reason = f"home node 'node{alone}@localhost' of durable queue"
    refused(404, reason, lambda: counts(clients.channel(far), f"{name}.{alone}"))
    publish(channel, f"{name}.{far}", [b"meanwhile"])
    clients.channel(far).queue_declare(f"{name}.made", durable=True)
    eventually(lambda: is_over(there))
    judge_time(time.monotonic() - began_s, FAILOVER_S + PAUSED_S)
    eventually(lambda: can_connect(clients, alone), False)

    cluster.heal()
    cluster.wait_until_ready()
    assert drain(clients.channel(alone), f"{name}.{far}") == [*bodies, b"meanwhile"]
    causes = causes_of(cluster, alone)
    assert causes["cluster.no_majority"]
    assert causes["link.down"].startswith("nothing heard for ")
    assert causes_of(cluster, near)["node.down"].startswith("it was killed, is cut off")
    left = drain(clients.channel(near), f"{name}.{alone}")
    assert left[:21] == [*bodies, b"own"]
    assert set(left[21:]) <= {b"unsure"}
    assert counts(clients.channel(alone), f"{name}.made") == (0, 0)


def test_two_that_cannot_see_each_other(cluster: Cluster, clients: Clients, name: str) -> None:
    """Every node still is in a majority: whoever leads decides, and afterwards all is well."""
    for home in NODES:
        clients.channel(home).queue_declare(f"{name}.{home}", durable=True)
        publish(clients.confirming(home), f"{name}.{home}", [b"before"])
    cluster.partition(1, 2)
    third = clients.confirming(3)
    until_s = time.monotonic() + 6
    confirmed = 0
    while time.monotonic() < until_s:
        publish(third, f"{name}.3", [b"through"])
        confirmed += 1
        time.sleep(0.02)
    cluster.heal()
    cluster.wait_until_ready()
    for node in NODES:
        for home in NODES:
            publish(clients.confirming(node), f"{name}.{home}", [b"after"])
    for home in NODES:
        found = drain(clients.channel(home % 3 + 1), f"{name}.{home}")
        assert found[0] == b"before"
        assert found[-3:] == [b"after"] * 3
        assert found.count(b"through") == (confirmed if home == 3 else 0)


def test_partitions_that_are_ignored() -> None:
    ignoring = Cluster(3, config={"cluster_partition_handling": "ignore"})
    with ignoring as cluster, Clients(cluster) as clients:
        connection = clients.connection(1)
        channel = connection.channel()
        channel.queue_declare("here")
        channel.confirm_delivery()
        cluster.isolate(1)
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s:
            channel.basic_publish("", "here", b"x")
            time.sleep(0.05)
        assert can_connect(clients, 1)
        cluster.heal()
        # It never closed; what it answers is so on all nodes, though it had counted as down.
        clients.channel(1).queue_declare("new")
        for node in NODES:
            assert counts(clients.channel(node), "new") == (0, 0)


def test_a_ring_that_is_whole_goes_on_without_a_majority() -> None:
    """Nobody elsewhere can take its place: all who have everything are on this side."""
    ignoring = Cluster(4, config={"cluster_partition_handling": "ignore"})
    with ignoring as cluster, Clients(cluster) as clients:
        both = {"ha-mode": "nodes", "ha-params": cluster.nodes[:2], "ha-sync-mode": "automatic"}
        mirror(cluster, "^ha$", both)
        clients.channel(1).queue_declare("ha", durable=True)
        await_ring(cluster, "ha", master=1, synchronised=(1, 2))
        channel, elsewhere = clients.confirming(2), clients.confirming(4)
        publish(elsewhere, "ha", [b"0"])
        for one in (1, 2):
            for other in (3, 4):
                cluster.partition(one, other)
        # Two of four are no majority, on neither side.
        eventually(lambda: "has no part in a majority" in cluster.ctl(1, "explain", "ha"))
        assert "its master goes on" in cluster.ctl(1, "explain", "ha")
        bodies = [b"%d" % i for i in range(1, 50)]
        publish(channel, "ha", bodies)
        cluster.heal()
        cluster.wait_until_ready()
        await_ring(cluster, "ha", synchronised=(1, 2))
        publish(elsewhere, "ha", [b"50"])
        assert drain(clients.channel(3), "ha") == [b"0", *bodies, b"50"]


@pytest.mark.timeout(240)
def test_what_is_declared_right_after_a_heal_is_there_for_all() -> None:
    """Nobody is told of a queue before all others know that its node is back."""
    ignoring = Cluster(3, config={"cluster_partition_handling": "ignore"})
    with ignoring as cluster, Clients(cluster) as clients:
        connections = {node: clients.connection(node) for node in NODES}
        connections[2].channel().queue_declare("of-two", durable=True)
        for number in range(4):
            alone = number % 3 + 1
            others = [node for node in NODES if node != alone]
            cluster.isolate(alone)
            connections[alone].sleep(3.0)  # that the others take it for gone, which takes two
            cluster.heal()
            queue = f"new-{number}"
            connections[alone].channel().queue_declare(queue, durable=True)
            for node in others:
                channel = connections[node].channel()
                channel.confirm_delivery()
                publish(channel, queue, [b"from %d" % node])
                assert counts(channel, queue)[0] > 0
            eventually(lambda: counts_if_there(clients, 3, "of-two") is not None)


def test_two_nodes_of_which_one_is_preferred() -> None:
    handling = "cluster_partition_handling"
    preferred = {
        handling: "pause_if_all_down",
        f"{handling}.pause_if_all_down.nodes.1": "node1@localhost",
        f"{handling}.pause_if_all_down.recover": "ignore",
    }
    with Cluster(2, config=preferred) as cluster, Clients(cluster) as clients:
        channel = clients.channel(1)
        channel.queue_declare("before", durable=True)
        cluster.kill(2)
        # The preferred one decides alone.
        channel.queue_declare("alone", durable=True)
        cluster.start(2)
        assert counts(clients.channel(2), "alone") == (0, 0)
        cluster.kill(1)
        # The other cannot, and sends its clients away.
        eventually(lambda: not can_connect(clients, 2))
        cluster.start(1)
        eventually(lambda: can_connect(clients, 2))
        eventually(lambda: counts_if_there(clients, 2, "before"), (0, 0))
