"""A node that was by itself becomes the founder of a cluster, and others join it by commands."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from node_cluster_processes import Processes

from warren.testing import Cluster
from warren.testing.cluster import CtlFailed


def publish(url: str, queue: str, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_declare(queue, durable=True, arguments={"x-max-priority": 3})
        channel.queue_bind(queue, "orders", "#.new")
        for number in range(count):
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("orders", "eu.new", b"%d" % number, properties)


def take_all(url: str, queue: str) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got[2])
        return found


def test_a_single_node_keeps_all_it_has_when_others_join(tmp_path: Path) -> None:
    with Processes(tmp_path, 2) as nodes:
        nodes.start(1, clustered=False)
        publish(nodes.url(1), "kept", 5)
        nodes.ctl(1, "add_user", "anna", "secret")
        nodes.ctl(1, "set_policy", "cap", "^kept$", '{"max-length":9}')
        nodes.stop(1)
        # From now on others may join it.
        nodes.start(1)
        assert nodes.ctl(1, "list_queues", "-q", "--no-table-headers") == "kept\t5\n"
        publish(nodes.url(1), "kept", 1)
        nodes.start(2, clustered=False)
        publish(nodes.url(2), "gone", 1)
        nodes.ctl(2, "stop_app")
        nodes.ctl(2, "join_cluster", nodes.name(1))
        nodes.ctl(2, "start_app", "-t", "30")
        nodes.ctl(2, "await_online_nodes", "2", "-t", "30")
        assert "anna" in nodes.ctl(2, "list_users")
        assert "max-length" in nodes.ctl(2, "list_policies")
        assert take_all(nodes.url(2), "kept") == [b"0", b"1", b"2", b"3", b"4", b"0"]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'gone'"):
            take_all(nodes.url(2), "gone")
        # It stays a cluster, whatever its configuration says later.
        publish(nodes.url(2), "kept", 2)
        nodes.stop(2)
        nodes.stop(1)
        nodes.start(1, clustered=False, wait=False)
        nodes.start(2, clustered=False)
        assert take_all(nodes.url(2), "kept") == [b"0", b"1"]


def test_a_node_that_cannot_be_reached_is_not_joined(tmp_path: Path) -> None:
    with Processes(tmp_path, 2) as nodes:
        nodes.start(1)
        nodes.ctl(1, "stop_app")
        with pytest.raises(CtlFailed, match="cannot be reached") as failed:
            nodes.ctl(1, "join_cluster", nodes.name(2))
        assert failed.value.status == 69
        nodes.ctl(1, "start_app", "-t", "30")


def test_a_founding_that_was_cut_short_is_finished() -> None:
    """User, virtual host and permissions are three changes; whoever makes them may die between."""
    with Cluster(3) as cluster:
        cluster.ctl(1, "clear_permissions", "guest")
        cluster.ctl(1, "clear_global_parameter", "cluster_name")
        for node in cluster.numbers:
            with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
                pika.BlockingConnection(pika.URLParameters(cluster.url(node)))
        cluster.restart(2)
        for node in cluster.numbers:
            publish(cluster.url(node), "q", 1)
        # Once it was whole, an operator's word counts.
        cluster.ctl(1, "clear_permissions", "guest")
        cluster.restart(2)
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
            pika.BlockingConnection(pika.URLParameters(cluster.url(2)))
