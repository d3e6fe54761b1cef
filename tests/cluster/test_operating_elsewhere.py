"""Any node answers for a queue of another: looks, moves, counts; and shovels have one node."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from cluster_clients import NODES, Clients, eventually
from prometheus_client.parser import text_string_to_metric_families
from test_definitions_everywhere import call

from warren.testing import Cluster


def fill(clients: Clients, node: int, queue: str, count: int) -> None:
    channel = clients.channel(node)
    channel.confirm_delivery()
    channel.queue_declare(queue, durable=True)
    for number in range(count):
        channel.basic_publish("", queue, str(number).encode())


def peek(cluster: Cluster, node: int, queue: str, **body: Any) -> list[str]:
    rows = call(cluster, node, "POST", f"/queues/%2F/{queue}/peek", {"count": 100, **body})
    return [row["payload"] for row in rows]


def test_a_look_from_any_node(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 20)
    for node in NODES:
        assert peek(cluster, node, name) == [str(number) for number in range(20)]
        assert peek(cluster, node, name, offset=18, match={"payload": "19"}) == ["19"]
        shown = call(cluster, node, "GET", f"/queues/%2F/{name}/tail?count=2")
        assert [row["payload"] for row in shown["messages"]] == ["18", "19"]
        missed = call(cluster, node, "GET", f"/queues/%2F/{name}/tail?since={shown['cursor']}")
        assert (missed["messages"], missed["missed"]) == ([], 0)
    assert cluster.ctl(3, "peek", name, "--count", "2").splitlines()[-2:] == ["0", "1"]


def test_a_queue_is_followed_from_any_node(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 3)
    place = f"/queues/%2F/{name}/tail"
    at = {n: call(cluster, n, "POST", place, {"name": f"n{n}", "count": 1}) for n in NODES}
    channel = clients.channel(2)
    for number in range(3, 8):
        channel.basic_publish("", name, str(number).encode())
    eventually(lambda: len(peek(cluster, 1, name)) == 8)
    while channel.basic_get(name, auto_ack=True)[0] is not None:
        pass
    for node in NODES:
        assert [row["payload"] for row in at[node]["messages"]] == ["2"]
        body = {"name": f"n{node}", "since": at[node]["cursor"], "wait_ms": 5000}
        shown = call(cluster, node, "POST", place, body)
        assert [row["payload"] for row in shown["messages"]] == ["3", "4", "5", "6", "7"]
        cluster.ctl(node, "delete_cursor", name, f"tail.n{node}")


def test_moves_from_any_node(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 10)
    fill(clients, 1, f"{name}.to", 0)
    body = {"to": f"{name}.to", "match": {"payload": "[3-5]"}}
    planned = call(cluster, 2, "POST", f"/queues/%2F/{name}/move", {**body, "dry_run": True})
    assert (planned["moved"], planned["unmatched"]) == (3, 7)
    moved = call(cluster, 3, "POST", f"/queues/%2F/{name}/move", body)
    assert (moved["moved"], moved["unmatched"]) == (3, 7)
    assert peek(cluster, 2, f"{name}.to") == ["3", "4", "5"]


def test_who_holds_what_on_another_node(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 1)
    assert clients.channel(2).basic_get(name)[0] is not None
    for node in NODES:
        (row,) = call(cluster, node, "GET", f"/queues/%2F/{name}/unacked")
        assert row["channel_details"]["node"] == cluster.nodes[1]
        assert peek(cluster, node, name, unacked=True) == ["0"]


def test_an_exchange_counts_on_all_nodes(cluster: Cluster, clients: Clients, name: str) -> None:
    clients.channel(1).exchange_declare(name, "fanout")
    for node in NODES:
        channel = clients.channel(node)
        channel.confirm_delivery()
        for _ in range(node):
            channel.basic_publish(name, "", b"x")
    for node in NODES:
        stats = call(cluster, node, "GET", f"/exchanges/%2F/{name}")["message_stats"]
        assert (stats["publish_in"], stats["publish_out"]) == (6, 0)
        for query in ("", "?sort=message_stats.publish_in", "?page=1&page_size=500"):
            rows = call(cluster, node, "GET", f"/exchanges/%2F{query}")
            rows = rows["items"] if isinstance(rows, dict) else rows
            (row,) = [row for row in rows if row["name"] == name]
            assert row["message_stats"]["publish_in"] == 6
        query = f"?page=1&page_size=1&name={name}&columns=name,message_stats.publish_in"
        (row,) = call(cluster, node, "GET", f"/exchanges{query}")["items"]
        assert row == {"name": name, "message_stats": {"publish_in": 6}}


def test_a_shovel_has_one_node(cluster: Cluster, clients: Clients, name: str) -> None:
    fill(clients, 1, name, 30)
    value = {
        "src-uri": "amqp://",
        "src-queue": name,
        "dest-uri": "amqp://",
        "dest-queue": f"{name}.to",
    }
    cluster.ctl(1, "set_parameter", "shovel", name, json.dumps(value))

    def moved() -> bool:
        rows = [
            [row for row in call(cluster, node, "GET", "/shovels") if row["name"] == name]
            for node in NODES
        ]
        # Whoever is asked knows it, and it is there once.
        return all(len(found) == 1 and found[0]["forwarded"] == 30 for found in rows)

    eventually(moved)
    assert peek(cluster, 2, f"{name}.to") == [str(number) for number in range(30)]
    for node in NODES:
        assert call(cluster, node, "GET", f"/shovels/vhost/%2F/{name}")["state"] == "running"
    cluster.ctl(3, "delete_shovel", name)
    eventually(lambda: call(cluster, 1, "GET", "/shovels") == [])


def test_a_node_tells_of_itself(cluster: Cluster) -> None:
    """Its own listeners, not those of all nodes; and whether it is drained."""
    for node in NODES:
        port = cluster.url(node).rpartition(":")[2].partition("/")[0]
        others = [cluster.url(n).rpartition(":")[2].partition("/")[0] for n in NODES if n != node]
        for command in ("listeners", "status"):
            shown = cluster.ctl(node, command)
            assert f"port: {port}," in shown
            assert not any(f"port: {other}," in shown for other in others)
    assert "Is under maintenance?: false" in cluster.ctl(3, "status")
    cluster.ctl(3, "drain")
    assert "Is under maintenance?: true" in cluster.ctl(3, "status")
    cluster.ctl(3, "revive")


def test_limits_of_another_node(cluster: Cluster) -> None:
    other = cluster.nodes[2]
    limit = {"vm_memory_high_watermark": {"relative": 0.3}, "disk_free_limit": {"absolute": "1MB"}}
    before = call(cluster, 1, "GET", f"/nodes/{other}")
    call(cluster, 1, "PUT", f"/warren/nodes/{other}/limits", limit)
    after = call(cluster, 2, "GET", f"/nodes/{other}")
    assert after["disk_free_limit"] == 1_000_000
    assert 0 < after["mem_limit"] < before["mem_limit"]
    cluster.ctl(3, "set_vm_memory_high_watermark", "0.4")
    cluster.ctl(3, "set_log_level", "info")
    levels = call(cluster, 1, "GET", f"/warren/nodes/{other}/log-levels")
    assert set(levels.values()) == {"info"}


def test_mirrored_queues_are_looked_into_and_moved(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    cluster.ctl(1, "set_policy", name, f"^{name}", '{"ha-mode": "all"}')
    fill(clients, 1, name, 200)
    fill(clients, 1, f"{name}.to", 0)
    assert peek(cluster, 2, name, count=200) == [str(number) for number in range(200)]
    body = {"to": f"{name}.to", "match": {"payload": "1??"}}
    moved = call(cluster, 3, "POST", f"/queues/%2F/{name}/move", body)
    assert (moved["moved"], moved["unmatched"]) == (100, 100)
    assert peek(cluster, 2, f"{name}.to") == [str(number) for number in range(100, 200)]
    assert peek(cluster, 3, name) == [str(number) for number in range(100)]

    def kept() -> bool:
        shown = call(cluster, 1, "GET", f"/queues/%2F/{name}")
        return (shown["messages"], shown["messages_persistent"]) == (100, 100)

    # What has left is there until all replicas know of it.
    eventually(kept)
    cluster.ctl(1, "clear_policy", name)


def scraped(cluster: Cluster, path: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The metrics of all nodes together."""
    listeners = call(cluster, 1, "GET", "/overview")["listeners"]
    ports = [row["port"] for row in listeners if row["protocol"] == "http/prometheus"]
    assert len(ports) == len(NODES)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as page:
            text = page.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_of_mirrors(cluster: Cluster, clients: Clients, name: str) -> None:
    definition = json.dumps({"ha-mode": "all", "ha-sync-mode": "automatic"})
    cluster.ctl(1, "set_policy", name, f"^{name}$", definition)
    fill(clients, 1, name, 5)

    def total(metric: str) -> float:
        return sum(value for _, value in scraped(cluster, "/metrics")[metric])

    eventually(lambda: total("warren_mirrors_synchronised") == 2)
    assert (total("warren_mirrored_queues"), total("warren_mirrors")) == (1, 2)
    assert total("warren_queues_without_synchronised_mirror") == 0
    eventually(lambda: total("warren_mirror_lag_messages") == 0)
    by_object = scraped(cluster, "/metrics/per-object")
    labels = [labels for labels, _ in by_object["warren_mirror_lag_messages"]]
    assert {(one["queue"], one["node"]) for one in labels} == {
        (name, node) for node in cluster.nodes[1:]
    }
    before = total("warren_promotions_total")
    cluster.ctl(2, "transfer_master", name, cluster.nodes[1])
    eventually(lambda: total("warren_promotions_total") == before + 1)
    cluster.ctl(1, "clear_policy", name)
