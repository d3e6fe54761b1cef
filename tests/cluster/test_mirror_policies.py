"""Mirrors go where policies want them, on real nodes: the last policy wins, nothing gets lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_clients import (
    NODES,
    Clients,
    counts,
    drain,
    eventually,
    is_gone,
    publish,
    refused,
)

from warren.testing import Cluster
from warren.testing.cluster import CtlFailed

#: What a busy machine may take for anything that is sure to happen.
LONG_S = 30.0
BODIES = [b"%d" % number for number in range(40)]


class Rings:
    """Policies for the queues of one test, and the rings that come of them."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def node(self, number: int) -> str:
        return self.cluster.nodes[number - 1]

    def set(self, mode: str, params: Any = None, via: int = 1, **more: Any) -> None:
        """Params of `nodes` are the numbers of nodes."""
        definition: dict[str, Any] = {"ha-mode": mode, "ha-sync-mode": "automatic"}
        if mode == "nodes":
            params = [self.node(number) for number in params]
        if params is not None:
            definition["ha-params"] = params
        definition |= {key.replace("_", "-"): value for key, value in more.items()}
        self.cluster.ctl(via, "set_policy", self.name, f"^{self.name}$", json.dumps(definition))

    def clear(self, via: int = 1) -> None:
        self.cluster.ctl(via, "clear_policy", self.name)

    def ring(self, via: int = 1) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.cluster.ctl(via, "mirrors", self.name, "--json"))
        return shown

    def in_sync(self, via: int = 1) -> list[int]:
        """Numbers of the nodes that have everything; nobody while others are there, too."""
        rows = [row for row in self.ring(via)["replicas"] if row["online"]]
        if not all(row["synchronised"] for row in rows):
            return []
        return sorted(self.cluster.nodes.index(row["node"]) + 1 for row in rows)

    def master(self, via: int = 1) -> int:
        name = self.ring(via)["master"]
        return 0 if name is None else self.cluster.nodes.index(name) + 1

    def settle(self, nodes: list[int], via: int = 1) -> None:
        eventually(lambda: self.in_sync(via), nodes, LONG_S)


@pytest.fixture
def rings(cluster: Cluster, name: str) -> Iterator[Rings]:
    """Whatever a test did to the nodes is mended after it."""
    made = Rings(cluster, name)
    yield made
    cluster.start_all()
    cluster.wait_until_ready()
    made.set("all")
    made.clear()


def test_replicas_follow_the_policy(clients: Clients, rings: Rings, name: str) -> None:
    channel = clients.confirming(1)
    channel.queue_declare(name, durable=True)
    publish(channel, name, BODIES[:20])
    assert rings.in_sync() == [1]
    rings.set("all")
    rings.settle([1, 2, 3])
    rings.set("exactly", 2, via=2)
    eventually(lambda: len(rings.in_sync()), 2, LONG_S)
    assert rings.master() == 1
    # The master goes when one of those that are listed has everything, and not before.
    rings.set("nodes", [2, 3], via=3)
    rings.settle([2, 3])
    assert rings.master(via=2) in {2, 3}
    publish(channel, name, BODIES[20:])
    rings.set("nodes", [3])
    rings.settle([3])
    rings.clear()
    rings.set("nodes", [1])
    rings.settle([1])
    rings.clear()
    eventually(lambda: rings.ring()["wanted"], [rings.node(1)], LONG_S)
    assert drain(clients.channel(2), name) == BODIES


def test_policies_in_quick_succession(clients: Clients, rings: Rings, name: str) -> None:
    channel = clients.confirming(2)
    channel.queue_declare(name, durable=True)
    publish(channel, name, BODIES)
    for via in NODES:
        rings.set("all", via=via)
        rings.set("exactly", 2, via=via)
        rings.clear(via=via)
        rings.set("nodes", [via], via=via)
        rings.set("exactly", 1, via=via)
    rings.set("nodes", [1, 3], via=2)
    rings.settle([1, 3])
    for node in NODES:
        assert eventually(lambda node=node: rings.master(via=node), within_s=LONG_S) in {1, 3}  # type: ignore[misc]
    assert drain(clients.channel(1), name) == BODIES


@pytest.mark.parametrize("home", NODES)
def test_what_is_confirmed_right_after_declaring_outlives_the_node(
    cluster: Cluster, clients: Clients, rings: Rings, name: str, home: int
) -> None:
    other = home % 3 + 1
    rings.set("all")
    channel = clients.confirming(home)
    channel.queue_declare(name, durable=home != 2)
    publish(channel, name, BODIES[:1])
    cluster.kill(home)
    survivor = clients.confirming(other)
    eventually(lambda: counts(survivor, name), (1, 0), LONG_S)
    assert rings.master(via=other) not in {0, home}
    publish(survivor, name, BODIES[1:])
    assert drain(survivor, name) == BODIES
    cluster.start(home)
    rings.settle([1, 2, 3], via=other)
    assert rings.master(via=other) != home


def test_a_lost_replica_is_replaced(
    cluster: Cluster, clients: Clients, rings: Rings, name: str
) -> None:
    rings.set("exactly", 2)
    channel = clients.confirming(1)
    channel.queue_declare(name, durable=True)
    publish(channel, name, BODIES)
    (mirror,) = [number for number in rings.in_sync() if number != 1]
    spare = ({1, 2, 3} - {1, mirror}).pop()
    cluster.kill(mirror)
    rings.settle(sorted([1, spare]))
    cluster.start(mirror)
    assert len(rings.in_sync()) == 2
    assert drain(channel, name) == BODIES


def test_what_operators_see_and_do(
    cluster: Cluster, clients: Clients, rings: Rings, name: str
) -> None:
    rings.set("all", ha_min_in_sync=2)
    clients.channel(1).queue_declare(name, durable=True)
    for via in NODES:
        ring = rings.ring(via)
        assert (ring["state"], ring["master"], ring["min_in_sync"]) == ("running", rings.node(1), 2)
        assert ring["wanted"] == [row["node"] for row in ring["replicas"]]
        assert ring["explain"][0].endswith("becomes master, nothing is lost")
    columns = ("name", "master_node", "queue_slave_nodes", "synchronised_slave_pids")
    rows = json.loads(cluster.ctl(2, "list_queues", *columns, "--json"))
    (row,) = [row for row in rows if row["name"] == name]
    others = [rings.node(number) for number in (2, 3)]
    assert (row["master_node"], sorted(row["queue_slave_nodes"])) == (rings.node(1), others)
    assert len(row["synchronised_slave_pids"]) == 2
    cluster.ctl(3, "transfer_master", name, rings.node(2))
    eventually(lambda: rings.master(via=3), 2, LONG_S)
    with pytest.raises(CtlFailed, match="master of queue"):
        cluster.ctl(3, "transfer_master", name, rings.node(2))
    cluster.ctl(1, "check_if_node_is_mirror_sync_critical")
    clients.channel(3).queue_declare(f"{name}.alone", exclusive=True)
    assert json.loads(cluster.ctl(3, "mirrors", f"{name}.alone", "--json"))["epoch"] == 0


def lose(cluster: Cluster, clients: Clients, rings: Rings, name: str) -> None:
    """A queue on node 1, with mirrors that lack what is in it; node 1 is killed."""
    channel = clients.confirming(1)
    channel.queue_declare(name, durable=True)
    publish(channel, name, BODIES)
    rings.set("all", ha_sync_mode="manual")
    eventually(lambda: [row["role"] for row in rings.ring()["replicas"]].count("learner"), 2)
    with pytest.raises(CtlFailed, match=name):
        cluster.ctl(1, "check_if_node_is_mirror_sync_critical")
    cluster.kill(1)
    eventually(lambda: rings.ring(via=2)["state"], "no master", LONG_S)


def test_nothing_is_given_up_unless_it_is_asked_for(
    cluster: Cluster, clients: Clients, rings: Rings, name: str
) -> None:
    lose(cluster, clients, rings, name)
    refused(404, "down or inaccessible", lambda: counts(clients.channel(2), name))
    cluster.start(1)
    eventually(lambda: rings.master(via=3), 1, LONG_S)
    assert drain(clients.channel(3), name) == BODIES


def test_a_mirror_that_lacks_messages_is_promoted_where_that_is_wanted(
    cluster: Cluster, clients: Clients, rings: Rings, name: str
) -> None:
    lose(cluster, clients, rings, name)
    rings.set("all", via=2, ha_promote_on_failure="always")
    eventually(lambda: rings.master(via=2), within_s=LONG_S)
    channel = clients.confirming(3)
    eventually(lambda: not is_gone(clients.channel(3), name), within_s=LONG_S)
    publish(channel, name, [b"after"])
    assert "may lack messages" in cluster.log(2)
    cluster.start(1)
    rings.settle([1, 2, 3], via=2)
    assert drain(channel, name) == [b"after"]


def test_mirrors_are_synchronised_when_an_operator_says_so(
    cluster: Cluster, clients: Clients, rings: Rings, name: str
) -> None:
    channel = clients.confirming(2)
    channel.queue_declare(name, durable=True)
    publish(channel, name, BODIES)
    rings.set("all", ha_sync_mode="manual")
    eventually(lambda: len(rings.ring()["replicas"]), 3, LONG_S)
    assert rings.in_sync() == []
    # From a node that is not the master; it ends when all have everything.
    cluster.ctl(1, "sync_queue", name)
    assert rings.in_sync() == [1, 2, 3]
    cluster.kill(2)
    survivor = clients.channel(3)
    eventually(lambda: counts(survivor, name), (len(BODIES), 0), LONG_S)
    assert drain(survivor, name) == BODIES
