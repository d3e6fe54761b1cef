"""Mirrors by an operator's word, on top of any policy or none."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from cluster_clients import Clients, drain, publish
from rings import Refused, api, await_ring, await_that, clear_policy, make_master, mirror, queue_row

from warren.testing import Cluster, CtlFailed


def bodies(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def test_a_mirror_without_any_policy(cluster: Cluster, clients: Clients, name: str) -> None:
    """It gets what was there before, takes over when the master dies, and outlives restarts."""
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(2), name, bodies(30))
    second = cluster.nodes[1]
    cluster.ctl(3, "add_queue_mirror_link", name, second)
    # The command has waited until it has everything.
    ring = await_ring(cluster, name, master=1, replicas=(1, 2), synchronised=(1, 2))
    assert [row["explicit"] for row in ring.shown["replicas"]] == [False, True]
    assert any("an operator wants it" in line for line in ring.shown["explain"])
    assert queue_row(cluster, 3, name)["explicit_mirror_nodes"] == [second]
    shown = cluster.ctl(3, "mirrors", name)
    assert "explicit" in shown
    assert second in cluster.ctl(1, "explain", name)
    cluster.kill(1)
    await_ring(cluster, name, master=2, replicas=(1, 2))
    cluster.start(1)
    # Where the master is by now changes nothing: the home has its replica, and gets it in sync.
    await_ring(cluster, name, master=2, replicas=(1, 2), synchronised=(1, 2))
    for node in (2, 1):
        cluster.restart(node)
        await_ring(cluster, name, replicas=(1, 2), synchronised=(1, 2))
    make_master(cluster, name, 1)
    cluster.ctl(2, "remove_queue_mirror_link", name, second)
    await_ring(cluster, name, master=1, replicas=(1,))
    assert drain(clients.channel(3), name) == bodies(30)


def test_on_top_of_policies_that_come_and_go(cluster: Cluster, clients: Clients, name: str) -> None:
    pattern = f"^{name}$"
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(2), name, bodies(10))
    cluster.ctl(1, "add_queue_mirror_link", name, cluster.nodes[2])
    await_ring(cluster, name, synchronised=(1, 3))
    two = {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"}
    mirror(cluster, pattern, dict(two))
    await_ring(cluster, name, replicas=(1, 2, 3), synchronised=(1, 2, 3))
    mirror(cluster, pattern, {"ha-mode": "nodes", "ha-params": [cluster.nodes[0]]})
    await_ring(cluster, name, replicas=(1, 3), synchronised=(1, 3))
    clear_policy(cluster, pattern)
    await_ring(cluster, name, replicas=(1, 3), synchronised=(1, 3))
    api(cluster, 2, "DELETE", f"/queues/%2F/{name}")
    clients.channel(1).queue_declare(name, durable=True)
    # Another queue of the same name.
    assert queue_row(cluster, 2, name).get("explicit_mirror_nodes", []) == []


def test_what_is_refused(cluster: Cluster, clients: Clients, name: str) -> None:
    first, second, third = cluster.nodes
    clients.channel(1).queue_declare(name, durable=True)
    with pytest.raises(CtlFailed, match="not in the cluster"):
        cluster.ctl(1, "add_queue_mirror_link", name, "nobody@nowhere")
    with pytest.raises(CtlFailed, match="is the master"):
        cluster.ctl(2, "add_queue_mirror_link", name, first)
    with pytest.raises(CtlFailed, match="no queue 'none'"):
        cluster.ctl(2, "add_queue_mirror_link", "none", first)
    with pytest.raises(CtlFailed, match="no explicit mirror"):
        cluster.ctl(2, "remove_queue_mirror_link", name, second)
    cluster.ctl(2, "add_queue_mirror_link", name, second)
    with pytest.raises(CtlFailed, match="already"):
        cluster.ctl(3, "add_queue_mirror_link", name, second)
    make_master(cluster, name, 2)
    with pytest.raises(CtlFailed, match=f"transfer_master '{name}' {first}"):
        cluster.ctl(3, "remove_queue_mirror_link", name, second)
    clients.channel(1).queue_declare(f"ha.{name}", durable=True)
    await_ring(cluster, f"ha.{name}", synchronised=(1, 2, 3))
    with pytest.raises(CtlFailed, match=r"already, by policy '\^ha"):
        cluster.ctl(2, "add_queue_mirror_link", f"ha.{name}", third)
    exclusive = clients.channel(1)
    exclusive.queue_declare(f"{name}.own", exclusive=True)
    with pytest.raises(Refused, match="exclusive"):
        api(cluster, 1, "PUT", f"/queues/%2F/{quote(name)}.own/mirrors/{second}")


def test_a_node_that_is_down_gets_its_mirror_later(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(1), name, bodies(5))
    cluster.stop(3)
    cluster.ctl(1, "add_queue_mirror_link", name, cluster.nodes[2])
    await_ring(cluster, name, replicas=(1, 3), synchronised=(1,))
    cluster.start(3)
    await_ring(cluster, name, replicas=(1, 3), synchronised=(1, 3))


def test_events_say_who_and_where(cluster: Cluster, clients: Clients, name: str) -> None:
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(1), name, [b"%d" % i for i in range(20)])
    cluster.ctl(1, "add_queue_mirror_link", name, cluster.nodes[1])
    await_that(cluster, name, lambda it: len(it.synchronised) == 2, "two replicas")
    lines = cluster.ctl(1, "events", "--json", "--queue", name).splitlines()
    of_queue = {it["event"]: it["details"] for it in map(json.loads, lines)}
    assert of_queue["queue.mirror_link.added"]["node"] == cluster.nodes[1]
    assert of_queue["queue.sync_started"]["cause"] == "it is synchronised by itself"
