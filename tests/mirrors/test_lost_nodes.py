"""Nodes that are lost for good: forgotten, also without a majority, and replaced by fresh ones."""

from __future__ import annotations

import json
import shutil

import pytest
from cluster_clients import Clients, drain, eventually, publish
from rings import await_ring, mirror

from warren.testing import Cluster, CtlFailed

BODIES = [b"%d" % i for i in range(20)]
ALL = {"ha-mode": "all", "ha-sync-mode": "automatic"}


def members(cluster: Cluster, node: int) -> list[str]:
    shown = json.loads(cluster.ctl(node, "cluster_status", "--formatter=json"))
    return list(shown["disk_nodes"])


def start_without_waiting(cluster: Cluster, node: int) -> None:
    cluster.start(node, wait=False)
    eventually(lambda: is_answering(cluster, node), True, 30)


def is_answering(cluster: Cluster, node: int) -> bool:
    try:
        members(cluster, node)
    except CtlFailed:
        return False
    return True


def lose(cluster: Cluster, node: int) -> None:
    """With its disk."""
    cluster.kill(node)
    shutil.rmtree(cluster.data_dir(node))


def test_a_lost_node_is_replaced_by_a_fresh_one_of_the_same_name() -> None:
    with Cluster(3) as cluster, Clients(cluster) as clients:
        mirror(cluster, "^", dict(ALL))
        clients.channel(1).queue_declare("q", durable=True)
        publish(clients.confirming(2), "q", BODIES)
        await_ring(cluster, "q", synchronised=(1, 2, 3))
        lose(cluster, 3)
        cluster.ctl(1, "forget_cluster_node", cluster.nodes[2])
        assert members(cluster, 2) == cluster.nodes[:2]
        await_ring(cluster, "q", replicas=(1, 2))
        start_without_waiting(cluster, 3)
        # It has a list of the founders and an empty disk: it must not vote for what it had.
        cluster.ctl(3, "stop_app")
        cluster.ctl(3, "force_reset")
        cluster.ctl(3, "join_cluster", cluster.nodes[0])
        cluster.ctl(3, "start_app")
        await_ring(cluster, "q", replicas=(1, 2, 3), synchronised=(1, 2, 3))
        assert members(cluster, 3) == cluster.nodes
        # What the others had, it has.
        for node in (1, 2):
            cluster.kill(node)
        cluster.start_all()
        await_ring(cluster, "q", synchronised=(1, 2, 3))
        assert drain(clients.channel(3), "q") == BODIES


def test_a_lost_node_is_replaced_by_one_of_another_name() -> None:
    """The fourth node is the fresh one: it was in no cluster with the others before."""
    with Cluster(4) as cluster, Clients(cluster) as clients:
        cluster.ctl(4, "stop_app")
        cluster.ctl(4, "reset")
        two = {"ha-mode": "exactly", "ha-params": 3, "ha-sync-mode": "automatic"}
        mirror(cluster, "^", dict(two))
        clients.channel(1).queue_declare("q", durable=True)
        publish(clients.confirming(2), "q", BODIES)
        await_ring(cluster, "q", synchronised=(1, 2, 3))
        lose(cluster, 3)
        cluster.ctl(2, "forget_cluster_node", cluster.nodes[2])
        cluster.ctl(4, "join_cluster", cluster.nodes[0])
        cluster.ctl(4, "start_app")
        await_ring(cluster, "q", replicas=(1, 2, 4), synchronised=(1, 2, 4))
        assert members(cluster, 1) == [cluster.nodes[n] for n in (0, 1, 3)]
        assert drain(clients.channel(4), "q") == BODIES


def test_a_survivor_goes_on_without_a_majority() -> None:
    with Cluster(3) as cluster, Clients(cluster) as clients:
        first, second, third = cluster.nodes
        mirror(cluster, "^ha", dict(ALL))
        for name in ("ha.q", "gone"):
            clients.channel(2).queue_declare(name, durable=True)
            publish(clients.confirming(2), name, BODIES)
        await_ring(cluster, "ha.q", synchronised=(1, 2, 3))
        with pytest.raises(CtlFailed, match="without --offline"):
            cluster.ctl(1, "forget_cluster_node", "--offline", second)
        lose(cluster, 2)
        lose(cluster, 3)
        eventually(lambda: app_runs(cluster), False, 30)
        with pytest.raises(CtlFailed, match="say it on a node that runs"):
            cluster.ctl(1, "forget_cluster_node", second)
        for name in (second, third):
            assert "start_app" in cluster.ctl(1, "forget_cluster_node", "--offline", name)
        cluster.ctl(1, "start_app")
        eventually(lambda: members(cluster, 1), [first], 40)
        await_ring(cluster, "ha.q", master=1, replicas=(1,))
        assert drain(clients.channel(1), "ha.q") == BODIES
        # A queue that was on a lost node alone is lost with it.
        names = [row.split()[0] for row in cluster.ctl(1, "-q", "list_queues").splitlines()]
        assert "gone" not in names
        shown = json.loads(cluster.ctl(1, "cluster_status", "--json"))
        assert shown["agreement"]["voters"] == [first]
        # It is a cluster as ever: another start, and others may join.
        cluster.restart(1)
        start_without_waiting(cluster, 2)
        cluster.ctl(2, "stop_app")
        cluster.ctl(2, "force_reset")
        cluster.ctl(2, "join_cluster", first)
        cluster.ctl(2, "start_app")
        await_ring(cluster, "ha.q", replicas=(1, 2), synchronised=(1, 2))


def app_runs(cluster: Cluster) -> bool:
    shown = json.loads(cluster.ctl(1, "cluster_status", "--formatter=json"))
    return cluster.nodes[0] in shown["running_nodes"]
