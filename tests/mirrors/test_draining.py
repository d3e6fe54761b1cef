"""A node is taken out of service and put back: list B, maintenance mode."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

import pika
import pika.exceptions
import pytest
from cluster_clients import Clients, can_connect, drain, eventually, publish
from rings import Refused, api, await_ring, make_master, mirror, queue_row, ring_of

from warren.testing import Cluster, CtlFailed

DRAINED = "marked for maintenance"


@pytest.fixture
def served(cluster: Cluster) -> Iterator[Cluster]:
    """The shared nodes, all of them in service afterwards."""
    yield cluster
    for node in cluster.numbers:
        cluster.ctl(node, "revive")


def maintenance(cluster: Cluster, node: int) -> dict[str, str]:
    shown = json.loads(cluster.ctl(node, "cluster_status", "--formatter=json"))
    told: dict[str, str] = shown["maintenance_status"]
    return told


def test_masters_move_and_clients_are_told(served: Cluster, clients: Clients, ha: str) -> None:
    cluster, first = served, served.nodes[0]
    names = [f"{ha}.{i}" for i in range(6)]
    for name in names:
        clients.channel(1).queue_declare(name, durable=True)
        await_ring(cluster, name, synchronised=(1, 2, 3))
        make_master(cluster, name, 1)
        publish(clients.confirming(2), name, [b"%d" % i for i in range(5)])
    going = clients.connection(1)
    said = cluster.ctl(1, "drain")
    assert f"Node {first} is drained" in said
    masters = [getattr(ring_of(cluster, name), "master", None) for name in names]
    # Not all to the same one.
    assert set(masters) == set(cluster.nodes[1:])
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as told:
        going.process_data_events(5)
    assert told.value.reply_code == 320
    assert "maintenance" in told.value.reply_text
    assert not can_connect(clients, 1)
    for node in (1, 2):
        assert maintenance(cluster, node)[first] == DRAINED
        assert maintenance(cluster, node)[cluster.nodes[1]] == "not under maintenance"
    rows = {row["name"]: row for row in api(cluster, 2, "GET", "/nodes")}
    assert rows[first]["being_drained"] is True
    assert rows[first]["running"] is True
    assert rows[cluster.nodes[1]]["being_drained"] is False
    # It keeps its mirrors, in sync.
    await_ring(cluster, names[0], synchronised=(1, 2, 3))
    for name in names:
        assert drain(clients.channel(3), name) == [b"%d" % i for i in range(5)]
    cluster.ctl(1, "revive")
    assert can_connect(clients, 1)
    assert set(maintenance(cluster, 2).values()) == {"not under maintenance"}
    events = cluster.ctl(2, "events", "--json")
    assert '"node.drained"' in events
    assert '"node.revived"' in events
    assert '"node.drain.ended"' in cluster.ctl(1, "events", "--json")


def test_nothing_is_placed_on_a_drained_node(served: Cluster, clients: Clients, name: str) -> None:
    cluster, third = served, served.nodes[2]
    cluster.ctl(3, "drain")
    mirror(cluster, f"^{name}", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    clients.channel(1).queue_declare(f"{name}.all", durable=True)
    await_ring(cluster, f"{name}.all", replicas=(1, 2), synchronised=(1, 2))
    for turn in range(6):
        queue = f"plain-{name}.{turn}"
        arguments = {"x-queue-master-locator": ("random", "min-masters")[turn % 2]}
        clients.channel(1).queue_declare(queue, durable=True, arguments=arguments)
        assert queue_row(cluster, 1, queue)["node"] != third
    # Declared through the drained node itself, too.
    api(cluster, 3, "PUT", f"/queues/%2F/api-{name}", {"durable": True})
    assert queue_row(cluster, 1, f"api-{name}")["node"] != third
    with pytest.raises(CtlFailed, match="drained"):
        cluster.ctl(1, "add_queue_mirror_link", f"plain-{name}.0", third)
    planned = api(cluster, 1, "POST", "/rebalance/queues", {"dry_run": True})
    assert third not in {move["target"] for move in planned}
    cluster.ctl(3, "revive")
    # As soon as it is back, the policy has it again.
    await_ring(cluster, f"{name}.all", replicas=(1, 2, 3), synchronised=(1, 2, 3))
    cluster.ctl(3, "drain")
    path = f"/queues/%2F/{quote(name)}.all/actions"
    with pytest.raises(Refused, match="drained"):
        api(cluster, 1, "POST", path, {"action": "transfer_leader", "node": third})


def test_it_stays_so_over_a_restart(served: Cluster, clients: Clients, ha: str) -> None:
    cluster, second = served, served.nodes[1]
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, synchronised=(1, 2, 3))
    make_master(cluster, ha, 1)
    cluster.ctl(2, "drain")
    for end in (cluster.stop, cluster.kill):
        end(2)
        eventually(lambda: second in running(cluster), False, 30)
        cluster.start(2, wait=False)
        eventually(lambda: maintenance(cluster, 1).get(second), DRAINED, 30)
        assert not can_connect(clients, 2)
        await_ring(cluster, ha, synchronised=(1, 2, 3))
    # A drained node takes over only where there is nobody else; the oldest here is another.
    cluster.kill(1)
    await_ring(cluster, ha, master=3)
    cluster.start(1)
    cluster.ctl(2, "revive")
    assert can_connect(clients, 2)
    assert json.loads(cluster.ctl(2, "cluster_status", "--json"))["maintenance_status"][second]


def running(cluster: Cluster) -> list[str]:
    shown = json.loads(cluster.ctl(1, "cluster_status", "--formatter=json"))
    return list(shown["running_nodes"])


def test_a_master_without_an_heir_stays_and_follows_later(
    served: Cluster, clients: Clients, name: str
) -> None:
    cluster = served
    clients.channel(1).queue_declare(name, durable=True)
    publish(clients.confirming(1), name, [b"%d" % i for i in range(20)])
    mirror(cluster, f"^{name}$", {"ha-mode": "all", "ha-sync-mode": "manual"})
    await_ring(cluster, name, replicas=(1, 2, 3), synchronised=(1,))
    with pytest.raises(CtlFailed, match="timed out"):
        cluster.ctl(1, "await_online_synchronized_mirror", "-t", "1")
    said = cluster.ctl(1, "drain")
    assert f"'{name}' in vhost '/'" in said
    assert "sync_queue" in said
    # It can still be had through the others.
    assert clients.channel(2).queue_declare(name, passive=True).method.message_count == 20
    cluster.ctl(2, "sync_queue", name)
    await_ring(cluster, name, synchronised=(1, 2, 3))
    until_s = time.monotonic() + 30
    while getattr(ring_of(cluster, name), "master", None) == cluster.nodes[0]:
        assert time.monotonic() < until_s, "its master has not followed"
        time.sleep(0.1)
    cluster.ctl(1, "await_online_synchronized_mirror", "-t", "10")
    assert drain(clients.channel(3), name) == [b"%d" % i for i in range(20)]


def test_the_last_node_in_service_is_not_drained(served: Cluster, clients: Clients) -> None:
    served.ctl(1, "drain")
    served.ctl(2, "drain")
    with pytest.raises(CtlFailed, match="no other node is in service"):
        served.ctl(3, "drain")
    assert can_connect(clients, 3)
    # Said again, it is not begun again.
    assert "is drained" in served.ctl(2, "drain")


def test_the_agreement_is_shown(served: Cluster) -> None:
    shown = json.loads(served.ctl(2, "cluster_status", "--formatter=json"))["agreement"]
    assert shown["leader"] in served.nodes
    assert shown["voters"] == served.nodes
    assert shown["term"] > 0
    assert shown["has_majority"] is True
    text = served.ctl(2, "cluster_status")
    assert f"Leader: {shown['leader']}, term: {shown['term']}" in text
    assert f"Voters: {', '.join(served.nodes)}" in text
