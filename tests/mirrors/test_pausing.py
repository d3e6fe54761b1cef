"""Paused consumers on real clusters: over a failover, a handover and restarts; on any node."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_clients import NODES, Clients, Inbox, counts, eventually, publish
from rings import api, await_ring, make_master, queue_row

from warren.testing import Cluster

LONG_S = 60.0
#: Long enough for what should not come to come.
QUIET_S = 0.7


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Any:
    """All nodes run again after every test."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()


def bodies(first: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, end)]


def check_paused(cluster: Cluster, name: str, *nodes: int) -> None:
    """All of the nodes say so, and who it was."""
    for node in nodes:
        eventually(lambda node=node: queue_row(cluster, node, name).get("state"), "paused", LONG_S)
        assert queue_row(cluster, node, name)["paused_by"] == "rmq-cli"


def check_quiet(*inboxes: Inbox) -> None:
    """Nothing comes for a while."""
    before = [len(inbox.got) for inbox in inboxes]
    for inbox in inboxes:
        inbox.listen(lambda: False, QUIET_S)
    assert [len(inbox.got) for inbox in inboxes] == before


def wait_all(count: int, *inboxes: Inbox) -> list[bytes]:
    """Until so many have come to all of them together."""

    def came() -> int:
        for inbox in inboxes:
            inbox.listen(lambda: False, 0.05)
        return sum(len(inbox.got) for inbox in inboxes)

    eventually(lambda: came() >= count, True, LONG_S)
    return sorted(body for inbox in inboxes for body in inbox.bodies)


def promotions(cluster: Cluster, node: int, name: str) -> list[dict[str, Any]]:
    rows = api(cluster, node, "GET", "/cluster/events?names=queue.promoted")
    return [row["details"] for row in rows if row["details"]["name"] == name]


def test_it_holds_over_a_failover(cluster: Cluster, clients: Clients, ha: str) -> None:
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=(1, 2, 3))
    inboxes = [Inbox(clients.channel(node), ha, auto_ack=True) for node in (2, 3)]
    publish(clients.confirming(2), ha, bodies(0, 20))
    wait_all(20, *inboxes)
    cluster.ctl(3, "pause_queue", ha)
    check_paused(cluster, ha, *NODES)
    publish(clients.confirming(3), ha, bodies(20, 40))
    check_quiet(*inboxes)
    cluster.kill(1)
    ring = await_ring(cluster, ha, synchronised=(2, 3))
    check_paused(cluster, ha, 2, 3)
    # Publishes go on at the new master, deliveries do not.
    publish(clients.confirming(3), ha, bodies(40, 50))
    check_quiet(*inboxes)
    assert counts(clients.channel(2), ha)[0] == 30
    master = ring.shown["master"]
    (told,) = promotions(cluster, cluster.nodes.index(master) + 1, ha)
    assert (told["from"], told["node"], told["cause"]) == (cluster.nodes[0], master, "failure")
    assert 0 < told["took_ms"] < 60_000
    # Nothing was out, so nothing comes again.
    assert (told["dropped"], told["redelivered"]) == (0, 0)
    cluster.ctl(2, "resume_queue", ha)
    assert wait_all(50, *inboxes) == sorted(bodies(0, 50))
    eventually(lambda: queue_row(cluster, 3, ha)["state"], "running", LONG_S)


def test_it_holds_over_a_handover_and_a_restart_of_all(
    cluster: Cluster, clients: Clients, ha: str, name: str
) -> None:
    for queue in (ha, name):
        clients.channel(2).queue_declare(queue, durable=True)
        publish(clients.confirming(1), queue, bodies(0, 10))
        cluster.ctl(1, "pause_queue", queue)
    await_ring(cluster, ha, master=2, synchronised=(1, 2, 3))
    make_master(cluster, ha, 3)
    check_paused(cluster, ha, *NODES)
    (told,) = promotions(cluster, 3, ha)
    assert (told["from"], told["cause"]) == (cluster.nodes[1], "handover")
    for node in NODES:
        cluster.stop(node)
    cluster.start_all()
    cluster.wait_until_ready()
    for queue in (ha, name):
        eventually(
            lambda queue=queue: queue_row(cluster, 1, queue).get("messages_ready"), 10, LONG_S
        )
        check_paused(cluster, queue, *NODES)
        inbox = Inbox(clients.channel(1), queue, auto_ack=True)
        check_quiet(inbox)
        cluster.ctl(3, "resume_queue", queue)
        assert inbox.wait(10, LONG_S) == bodies(0, 10)


def test_what_is_held_stays_and_what_goes_out_again_is_told(
    cluster: Cluster, clients: Clients, ha: str
) -> None:
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=(1, 2, 3))
    channel = clients.channel(2)
    channel.basic_qos(prefetch_count=5)
    inbox = Inbox(channel, ha)
    publish(clients.confirming(2), ha, bodies(0, 20))
    inbox.wait(5)
    cluster.ctl(1, "pause_queue", ha)
    row = queue_row(cluster, 1, ha)
    assert (row["messages_ready"], row["messages_unacknowledged"]) == (15, 5)
    cluster.kill(1)
    ring = await_ring(cluster, ha, synchronised=(2, 3))
    (told,) = promotions(cluster, cluster.nodes.index(ring.shown["master"]) + 1, ha)
    assert 5 <= told["redelivered"] <= 20
    eventually(lambda: counts(clients.channel(3), ha)[0], 20, LONG_S)
    cluster.ctl(3, "resume_queue", ha)
    inbox.wait(10, LONG_S)
    again = [(body, method.redelivered) for method, _, body in inbox.got[5:10]]
    assert again == [(body, True) for body in bodies(0, 5)]


def test_many_queues_of_several_nodes_in_one_request(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    names = [f"{name}.{node}" for node in NODES] + [f"ha.{name}.{node}" for node in NODES]
    for queue in names:
        clients.channel(int(queue[-1])).queue_declare(queue, durable=True)
        publish(clients.confirming(1), queue, bodies(0, 3))
    for queue in names[3:]:
        await_ring(cluster, queue, synchronised=(1, 2, 3))
    queues = [{"vhost": "/", "name": queue} for queue in names]

    def act(action: str) -> list[int]:
        body = {"action": action, "queues": queues}
        answer = api(cluster, 2, "POST", "/warren/queues/actions", body)
        return [item["status"] for item in answer["items"]]

    assert act("pause") == [204] * 6
    for queue in names:
        for node in NODES:
            eventually(lambda n=node, q=queue: queue_row(cluster, n, q)["state"], "paused", LONG_S)
    assert act("resume") == [204] * 6
    # Plain queues have nothing to be synchronised, wherever they are.
    assert act("sync") == [400] * 3 + [204] * 3
    assert act("purge") == [204] * 6
    assert act("delete") == [204] * 6
    assert act("delete") == [404] * 6
