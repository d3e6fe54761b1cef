"""Any node shows the whole cluster: queues of other nodes with their counters, and all clients."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from warren.testing import Cluster

KNOWN_TO_ALL = {"name", "vhost", "node", "state", "durable", "arguments", "policy", "type"}


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    config = {"collect_statistics_interval": 500, "cluster_formation.target_cluster_size_hint": 3}
    with Cluster(3, config=config) as cluster:
        for n in cluster.numbers:
            with pika.BlockingConnection(pika.URLParameters(cluster.url(n))) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare(f"q{n}", durable=True)
                for _ in range(n):
                    channel.basic_publish("", f"q{n}", b"x", pika.BasicProperties(delivery_mode=2))
        yield cluster


def call(
    cluster: Cluster, n: int, path: str, body: Any = None, method: str | None = None
) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{cluster.management_url(n)}/api{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            status, data = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, data = error.code, error.read()
    return status, json.loads(data) if data else None


def get(cluster: Cluster, n: int, path: str) -> Any:
    status, shown = call(cluster, n, path)
    assert status == 200, shown
    return shown


def until(met: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_queues_of_all_nodes_have_their_counters_everywhere(three: Cluster) -> None:
    for n in three.numbers:
        rows = get(three, n, "/queues")
        assert [(row["name"], row["messages"]) for row in rows] == [("q1", 1), ("q2", 2), ("q3", 3)]
        assert [row["node"] for row in rows] == three.nodes
        assert {row["state"] for row in rows} == {"running"}
        listed = three.ctl(n, "list_queues", "-q", "--no-table-headers", "name", "messages")
        assert listed == "q1\t1\nq2\t2\nq3\t3\n"


def test_lists_are_sorted_filtered_paged_and_cut_over_all_nodes(three: Cluster) -> None:
    rows = get(three, 1, "/queues?sort=messages&sort_reverse=true&columns=name")
    assert rows == [{"name": "q3"}, {"name": "q2"}, {"name": "q1"}]
    page = get(three, 2, "/queues?page=2&page_size=2&columns=name,messages")
    assert page["items"] == [{"name": "q3", "messages": 3}]
    assert (page["total_count"], page["page_count"]) == (3, 2)
    assert [row["name"] for row in get(three, 3, "/queues/%2F?name=1&page=1")["items"]] == ["q1"]
    shown = get(three, 1, "/queues?disable_stats=true")
    assert [row["messages_ready"] for row in shown] == [1, 2, 3]


def test_one_queue_of_another_node_is_shown_whole(three: Cluster) -> None:
    here, there = get(three, 3, "/queues/%2F/q3"), get(three, 1, "/queues/%2F/q3")
    assert here.keys() - {"idle_since"} == there.keys() - {"idle_since"}
    assert there["messages"] == 3
    assert there["node"] == three.nodes[2]
    assert call(three, 1, "/queues/%2F/none")[0] == 404


def test_messages_of_a_queue_elsewhere(three: Cluster) -> None:
    wanted = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    status, found = call(three, 1, "/queues/%2F/q2/get", wanted)
    assert status == 200
    assert [message["payload"] for message in found] == ["x", "x"]
    status, _ = call(three, 1, "/queues/%2F/other", {"durable": True}, "PUT")
    assert status == 201
    message = {"routing_key": "other", "payload": "y", "payload_encoding": "string"}
    assert call(three, 3, "/exchanges/%2F/amq.default/publish", message)[1] == {"routed": True}
    until(lambda: get(three, 2, "/queues/%2F/other")["messages"] == 1)
    assert call(three, 2, "/queues/%2F/other/contents", method="DELETE")[0] == 204
    assert get(three, 3, "/queues/%2F/other")["messages"] == 0
    status, outcome = call(three, 3, "/queues/%2F/other/move", {"to": "q2"})
    assert (status, outcome["moved"]) == (200, 0)
    assert call(three, 3, "/queues/%2F/other/actions", {"action": "sync"})[0] == 400
    assert call(three, 3, "/queues/%2F/other", method="DELETE")[0] == 204
    assert all(call(three, n, "/queues/%2F/other")[0] == 404 for n in three.numbers)
    assert get(three, 2, "/aliveness-test/%2F") == get(three, 3, "/aliveness-test/%2F")
    assert call(three, 1, "/queues/%2F/aliveness-test", method="DELETE")[0] == 204


def test_clients_of_all_nodes_are_seen_and_closed_from_any(three: Cluster) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(three.url(2)))
    channel = connection.channel()
    channel.basic_consume("q3", lambda *_: None, consumer_tag="far")
    for n in three.numbers:
        (row,) = get(three, n, "/connections")
        assert row["node"] == three.nodes[1]
        assert [row["number"] for row in get(three, n, "/channels")] == [1]
        (consumer,) = get(three, n, "/consumers")
        assert (consumer["consumer_tag"], consumer["queue"]["name"]) == ("far", "q3")
        overview = get(three, n, "/overview")
        totals = overview["object_totals"]
        assert (totals["connections"], totals["channels"], totals["consumers"]) == (1, 1, 1)
        assert totals["queues"] == 3
        assert overview["queue_totals"]["messages"] == 6
        assert {row["node"] for row in overview["listeners"]} == set(three.nodes)
        assert three.ctl(n, "list_consumers", "-q").count("far") == 1
    name = urllib.request.quote(row["name"], safe="")
    assert get(three, 3, f"/connections/{name}")["node"] == three.nodes[1]
    assert len(get(three, 1, f"/connections/{name}/channels")) == 1
    # The home shows who consumes from it.
    (shown,) = get(three, 1, "/queues/%2F/q3")["consumer_details"]
    assert shown["consumer_tag"] == "far"
    assert shown["channel_details"]["node"] == three.nodes[1]
    assert call(three, 3, f"/connections/{name}", method="DELETE")[0] == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(30)
    until(lambda: get(three, 1, "/connections") == [])


def test_virtual_hosts_are_counted_over_all_nodes(three: Cluster) -> None:
    for n in three.numbers:
        (row,) = get(three, n, "/vhosts")
        one = get(three, n, "/vhosts/%2F?lengths_age=60&lengths_incr=5")
        for shown in (row, one):
            assert (shown["messages"], shown["messages_ready"]) == (6, 6)
            assert shown["message_stats"]["publish"] >= 6
            assert shown["recv_oct"] > 0
            assert shown["cluster_state"] == dict.fromkeys(three.nodes, "running")
        assert "samples" in one["messages_details"]
        assert get(three, n, "/vhosts?columns=name,messages") == [{"name": "/", "messages": 6}]


def test_nodes_and_health(three: Cluster) -> None:
    for n in three.numbers:
        rows = get(three, n, "/nodes")
        assert [(row["name"], row["running"]) for row in rows] == [(x, True) for x in three.nodes]
        other = three.nodes[n % 3]
        assert get(three, n, f"/nodes/{other}")["name"] == other
        assert "total" in get(three, n, f"/nodes/{other}/memory")["memory"]
        for check in ("alarms", "local-alarms", "node-is-quorum-critical", "is-in-service"):
            assert get(three, n, f"/health/checks/{check}") == {"status": "ok"}
        assert get(three, n, "/health/checks/reached-target-cluster-size") == {"status": "ok"}
    assert call(three, 1, "/nodes/nobody@localhost")[0] == 404


def test_definitions_and_metrics_with_queues_of_other_nodes(three: Cluster) -> None:
    exported = get(three, 1, "/definitions")
    assert [row["name"] for row in exported["queues"]] == ["q1", "q2", "q3"]
    # Each node measures itself only.
    node = get(three, 2, f"/nodes/{three.nodes[0]}")
    assert node["running"]
    (port,) = [
        row["port"]
        for row in get(three, 1, "/overview")["listeners"]
        if row["node"] == three.nodes[0] and row["protocol"] == "http/prometheus"
    ]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    assert "rabbitmq_queues 1" in lines
    assert "rabbitmq_queue_messages 1" in lines


def test_a_node_that_does_not_answer_does_not_hold_others_up(
    three: Cluster, judge_time: Callable[[float, float], None]
) -> None:
    three.pause(3)
    try:
        began_s = time.monotonic()
        rows = get(three, 1, "/queues")
        judge_time(time.monotonic() - began_s, 2.5)
        assert [row["name"] for row in rows] == ["q1", "q2", "q3"]
        assert rows[2]["state"] in {"unresponsive", "down"}
        assert "messages" not in rows[2]
        assert rows[2].keys() >= KNOWN_TO_ALL
        until(lambda: get(three, 1, "/queues/%2F/q3")["state"] == "down")
        assert [row["running"] for row in get(three, 1, "/nodes")] == [True, True, False]
        assert get(three, 1, f"/nodes/{three.nodes[2]}")["running"] is False
        status, refusal = call(three, 1, "/health/checks/node-is-quorum-critical")
        assert (status, refusal["running"]) == (503, [three.nodes[1]])
        assert call(three, 1, "/health/checks/reached-target-cluster-size")[0] == 503
        assert "q3\t\n" in three.ctl(1, "list_queues", "-q", "name", "messages")
    finally:
        three.resume(3)
    three.wait_until_ready()
    until(lambda: get(three, 1, "/queues/%2F/q3").get("messages") == 3)
