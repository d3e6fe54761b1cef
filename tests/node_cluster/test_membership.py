"""Who is in a cluster, by commands of operators on real processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from warren.testing import Cluster
from warren.testing.cluster import CtlFailed

CONFLICT, UNAVAILABLE = 70, 69


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


def status(cluster: Cluster, n: int) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(cluster.ctl(n, "cluster_status", "--formatter=json"))
    return shown


def declare(cluster: Cluster, n: int, queue: str, messages: int = 0) -> None:
    with pika.BlockingConnection(pika.URLParameters(cluster.url(n))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for _ in range(messages):
            channel.basic_publish("", queue, b"kept", pika.BasicProperties(delivery_mode=2))


def count(cluster: Cluster, n: int, queue: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(cluster.url(n))) as connection:
        found = connection.channel().queue_declare(queue, passive=True).method.message_count
        return int(found)


def test_every_node_shows_the_whole_cluster(three: Cluster) -> None:
    for n in three.numbers:
        shown = status(three, n)
        assert shown["disk_nodes"] == shown["running_nodes"] == three.nodes
        assert shown["partitions"] == {}
        assert list(shown["versions"]) == three.nodes
        protocols = {row["protocol"] for row in shown["listeners"][three.nodes[0]]}
        assert protocols == {"amqp", "http", "http/prometheus", "clustering"}
    text = three.ctl(2, "cluster_status")
    assert "Running Nodes\n\n" + "\n".join(three.nodes) in text
    assert three.ctl(1, "await_online_nodes", "3", "-t", "5") == ""
    with pytest.raises(CtlFailed) as failed:
        three.ctl(1, "await_online_nodes", "4", "-t", "1")
    assert failed.value.status == 75


def test_the_name_of_the_cluster_is_the_same_everywhere(three: Cluster) -> None:
    assert len({three.ctl(n, "cluster_name") for n in three.numbers}) == 1
    three.ctl(2, "set_cluster_name", "ours")
    assert [three.ctl(n, "cluster_name") for n in three.numbers] == ["ours\n"] * 3
    with pika.BlockingConnection(pika.URLParameters(three.url(3))) as connection:
        assert connection._impl.server_properties["cluster_name"] == "ours"
    three.restart(3)
    assert three.ctl(3, "cluster_name") == "ours\n"


def test_what_needs_a_stopped_node_is_refused_on_one_that_runs(three: Cluster) -> None:
    for words in (("reset",), ("force_reset",), ("forget_cluster_node", three.nodes[1])):
        with pytest.raises(CtlFailed) as failed:
            three.ctl(1, *words)
        assert failed.value.status == CONFLICT
    with pytest.raises(CtlFailed, match="not in the cluster"):
        three.ctl(1, "forget_cluster_node", "nobody@localhost")
    with pytest.raises(CtlFailed, match="itself"):
        three.ctl(1, "join_cluster", three.nodes[0])
    assert "already a member" in three.ctl(1, "join_cluster", three.nodes[1])


def test_a_stopped_node_counts_as_down_and_comes_back(three: Cluster) -> None:
    declare(three, 3, "of-three", messages=2)
    pid = three.pid(3)
    three.ctl(3, "stop_app")
    assert status(three, 1)["running_nodes"] == three.nodes[:2]
    assert status(three, 3)["running_nodes"] == three.nodes[:2]
    # The others go on without it, and its queue waits for it.
    declare(three, 1, "without-three")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="down or inaccessible"):
        count(three, 1, "of-three")
    three.ctl(3, "start_app")
    three.wait_until_ready()
    assert three.pid(3) == pid
    os.kill(pid, 0)
    assert count(three, 1, "of-three") == 2
    assert count(three, 3, "without-three") == 0


def test_a_node_that_left_joins_again_and_has_nothing_of_its_own(three: Cluster) -> None:
    declare(three, 3, "lost-with-three", messages=1)
    declare(three, 1, "stays", messages=1)
    three.ctl(3, "stop_app")
    three.ctl(3, "reset")
    assert status(three, 1)["disk_nodes"] == three.nodes[:2]
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'lost-with-three'"):
        count(three, 2, "lost-with-three")
    three.ctl(3, "join_cluster", three.nodes[1])
    three.ctl(3, "start_app")
    three.wait_until_ready()
    assert status(three, 3)["running_nodes"] == three.nodes
    assert count(three, 3, "stays") == 1
    declare(three, 3, "new-on-three", messages=1)
    assert count(three, 1, "new-on-three") == 1
    # What it learnt by joining is still there after a restart.
    three.restart(3)
    three.wait_until_ready()
    assert count(three, 3, "new-on-three") == 1


def test_a_killed_node_is_forgotten_with_its_queues(three: Cluster) -> None:
    declare(three, 2, "of-two", messages=1)
    three.kill(2)
    three.ctl(1, "forget_cluster_node", three.nodes[1])
    assert status(three, 3)["disk_nodes"] == [three.nodes[0], three.nodes[2]]
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'of-two'"):
        count(three, 1, "of-two")
    with pytest.raises(CtlFailed, match="not in the cluster"):
        three.ctl(1, "forget_cluster_node", three.nodes[1])
