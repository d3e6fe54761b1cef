"""Policies come, change and go: the replicas follow, and the messages stay."""

from __future__ import annotations

import time

from cluster_clients import Clients, counts, drain, eventually, publish
from rings import await_ring, await_that, clear_policy, mirror, queue_row

from warren.testing import Cluster

LONG_S = 60.0


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


def test_a_walk_through_policies(cluster: Cluster, clients: Clients, name: str) -> None:
    """List B, 8."""
    pattern = f"^{name}$"
    publisher = clients.confirming(2)
    clients.channel(1).queue_declare(name, durable=True)
    publish(publisher, name, bodies(0, 20))
    count = 20
    steps: list[tuple[tuple[int, ...] | str | None, tuple[int, ...]]] = [
        ("all", (1, 2, 3)),
        ((1, 2), (1, 2)),
        ((1, 3), (1, 3)),
        (None, (1,)),
        ((2, 3), (2, 3)),
    ]
    for wanted, expected in steps:
        if wanted is None:
            clear_policy(cluster, pattern)
        elif wanted == "all":
            mirror(cluster, pattern, {"ha-mode": "all", "ha-sync-mode": "automatic"})
        else:
            names = [cluster.nodes[int(n) - 1] for n in wanted]
            definition = {"ha-mode": "nodes", "ha-params": names, "ha-sync-mode": "automatic"}
            mirror(cluster, pattern, dict(definition))
        publish(publisher, name, bodies(count, count + 10))
        count += 10
        await_ring(cluster, name, replicas=expected, synchronised=expected)
    ring = await_that(cluster, name, lambda it: it.master in cluster.nodes[1:], "master 2 or 3")
    assert queue_row(cluster, 1, name)["node"] == ring.master
    eventually(lambda: counts(clients.channel(1), name)[0], count, LONG_S)
    assert drain(clients.channel(1), name) == bodies(0, count)
    clear_policy(cluster, pattern)


def test_the_last_of_many_policies_wins(cluster: Cluster, clients: Clients, name: str) -> None:
    pattern = f"^{name}$"
    publisher = clients.confirming(3)
    clients.channel(1).queue_declare(name, durable=True)
    for turn in range(12):
        names = [cluster.nodes[turn % 3], cluster.nodes[(turn + 1) % 3]]
        definition = {"ha-mode": "nodes", "ha-params": names, "ha-sync-mode": "automatic"}
        mirror(cluster, pattern, dict(definition), node=turn % 3 + 1)
        publish(publisher, name, bodies(turn * 5, turn * 5 + 5))
    await_ring(cluster, name, replicas=(3, 1), synchronised=(3, 1))
    assert drain(clients.channel(2), name) == bodies(0, 60)
    clear_policy(cluster, pattern)


def test_the_master_stays_until_one_of_those_that_are_listed_has_everything(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(2), name, bodies(0, 20))
    listed = {"ha-mode": "nodes", "ha-params": cluster.nodes[1:], "ha-sync-mode": "manual"}
    mirror(cluster, f"^{name}$", listed)
    ring = await_ring(cluster, name, master=1, replicas=(1, 2, 3), synchronised=(1,))
    assert f"{cluster.nodes[0]} goes as soon as" in "\n".join(ring.shown["explain"])
    time.sleep(3)
    await_ring(cluster, name, master=1, replicas=(1, 2, 3), synchronised=(1,), within_s=1)
    publish(clients.confirming(3), name, bodies(20, 25))
    cluster.ctl(3, "sync_queue", name)
    ring = await_ring(cluster, name, replicas=(2, 3), synchronised=(2, 3))
    assert ring.master in cluster.nodes[1:]
    channel = clients.channel(1)
    found = [channel.basic_get(name, auto_ack=True) for _ in range(25)]
    assert [body for _, _, body in found] == bodies(0, 25)
    assert not any(method.redelivered for method, _, _ in found)
    clear_policy(cluster, f"^{name}$")


def test_an_operator_policy_mirrors_and_goes_before_a_weaker_one(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """Of `ha-mode` the stronger counts; what is transient is mirrored, what is exclusive is not."""
    pattern, owner = f"^{name}", clients.channel(1)
    owner.queue_declare(f"{name}.own", exclusive=True)
    clients.channel(1).queue_declare(name)
    cluster.ctl(2, "set_operator_policy", name, pattern, '{"ha-mode": "exactly", "ha-params": 2}')
    await_that(cluster, name, lambda it: len(it.synchronised) == 2, "two replicas")
    mirror(cluster, pattern, {"ha-mode": "nodes", "ha-params": cluster.nodes[:1]})
    cluster.ctl(3, "set_operator_policy", name, pattern, '{"ha-mode": "all"}')
    await_ring(cluster, name, synchronised=(1, 2, 3))
    cluster.ctl(1, "clear_operator_policy", name)
    await_ring(cluster, name, replicas=(1,))
    shown = queue_row(cluster, 2, f"{name}.own")
    assert not shown.get("slave_nodes")
    clear_policy(cluster, pattern)


def test_exactly(name: str) -> None:
    """List B, 9: on five nodes, of which two come later."""
    with Cluster(5) as cluster, Clients(cluster) as clients:
        for node in (4, 5):
            cluster.stop(node)
        mirror(cluster, "^", {"ha-mode": "exactly", "ha-params": 4, "ha-sync-mode": "automatic"})
        clients.channel(1).queue_declare(name, durable=True)
        publish(clients.confirming(2), name, bodies(0, 30))
        await_ring(cluster, name, synchronised=(1, 2, 3))
        cluster.start(4)
        cluster.start(5)
        ring = await_that(cluster, name, lambda it: len(it.synchronised) == 4, "four replicas")
        fourth = 4 if cluster.nodes[3] in ring.synchronised else 5
        cluster.stop(fourth)
        fifth = 9 - fourth
        await_ring(cluster, name, synchronised=(1, 2, 3, fifth))
        assert drain(clients.channel(fifth), name) == bodies(0, 30)
