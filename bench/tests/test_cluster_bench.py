"""What computes in the benchmarks of the cluster, and where the generator's connections go."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import report, run
from bench.bars import judge
from bench.brokers import Broker, BrokerError, StoredWarren, Warren, free_ports
from bench.cluster_loads import CLUSTER_LOADS
from bench.cluster_procedures import PLACES, bindings_document, place_arguments, places
from bench.clusters import (
    NODES,
    RabbitCluster,
    WarrenCluster,
    last_leader,
    rabbit_settings,
    warren_settings,
)
from bench.declare_beat import DeclareBeat
from bench.generator import PROGRAM, build
from bench.loads import LOADS, Load
from bench.measure import usage, usage_of
from bench.metrics import Pace
from bench.outcome import Outcome
from bench.store_loads import STORE_LOADS
from warren.testing.cluster import Cluster

TITLE = "kill of the leader to the next declare, most"


def planned(*arguments: str) -> run.Plan:
    return run.make_plan(run.parse_arguments(list(arguments)))


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(50))) == 50


def test_usage_is_the_sum_over_processes() -> None:
    one, twice = usage(os.getpid()), usage_of([os.getpid(), os.getpid()])
    assert twice.cpu_s >= 2 * one.cpu_s
    assert twice.rss_bytes >= 1.5 * one.rss_bytes


def test_cluster_names_its_loads() -> None:
    assert planned("--only", "cluster").loads == list(CLUSTER_LOADS)
    together = {load.name for load in planned("--only", "cluster", "--only", "store").loads}
    assert together == {load.name for load in (*CLUSTER_LOADS, *STORE_LOADS)}


@pytest.mark.parametrize("load", CLUSTER_LOADS, ids=lambda load: load.name)
def test_loads_of_clusters_go_to_clusters_alone(tmp_path: Path, load: Load) -> None:
    clusters: list[Broker] = [WarrenCluster(tmp_path), RabbitCluster(tmp_path)]
    part = [run.takes_part(cluster, load) for cluster in clusters]
    assert part == [True, not load.warren_only]
    assert not any(run.takes_part(one(tmp_path), load) for one in (Warren, StoredWarren))
    assert not any(run.takes_part(cluster, LOADS[0]) for cluster in clusters)
    assert not any(run.takes_part(cluster, STORE_LOADS[0]) for cluster in clusters)


def test_the_leader_is_that_of_the_latest_term() -> None:
    first = "x a@h leads the agreement in term 2\nb@h leads the agreement in term 10\n"
    assert last_leader([first, "a@h leads the agreement in term 9\n"]) == "b@h"
    assert last_leader(["nothing of the kind", ""]) is None


def test_nodes_know_each_other() -> None:
    settings = warren_settings(["a@h", "b@h"], [7, 8], own=1)
    assert settings == {
        "cluster.listen": "127.0.0.1:8",
        "cluster_formation.classic_config.nodes.1": "a@h",
        "cluster.nodes.a@h": "127.0.0.1:7",
        "cluster_formation.classic_config.nodes.2": "b@h",
        "cluster.nodes.b@h": "127.0.0.1:8",
    }
    assert rabbit_settings(["a@h"])["cluster_formation.classic_config.nodes.1"] == "a@h"


def test_nodes_share_a_secret_and_no_port(tmp_path: Path) -> None:
    nodes = WarrenCluster(tmp_path).make_nodes()
    assert len(nodes) == NODES
    ports = [port for node in nodes for port in (node.port, node.management_port)]
    ports += [int(node.settings["prometheus.tcp.port"]) for node in nodes]
    ports += [int(node.settings["cluster.listen"].rpartition(":")[2]) for node in nodes]
    assert len(set(ports)) == 4 * NODES
    assert len({node.environment()["WARREN_ERLANG_COOKIE"] for node in nodes}) == 1
    assert len({node.data_directory for node in nodes}) == NODES


def test_a_cluster_that_is_not_started_says_so(tmp_path: Path) -> None:
    cluster = WarrenCluster(tmp_path)
    assert not cluster.is_running
    with pytest.raises(BrokerError, match="no node of warren runs"):
        _ = cluster.pids
    cluster.stop()


def test_a_single_broker_has_no_other_places(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="is no cluster"):
        places(CLUSTER_LOADS[0], Warren(tmp_path), [], Pace(0.0, 0.1))


def test_clients_go_to_the_places(tmp_path: Path) -> None:
    cluster = WarrenCluster(tmp_path)
    cluster.nodes = cluster.make_nodes()
    ends = [node.endpoint for node in cluster.nodes]
    expected = {"direct": (0, 0), "via": (1, 0), "both": (1, 2)}
    for place in PLACES:
        producer, consumer = (ends[number] for number in expected[place.name])
        given = ["--producer-endpoints", producer, "--consumer-endpoints", consumer]
        assert place_arguments(place, cluster) == ["--endpoints", ends[0], *given]


def test_every_binding_has_its_own_key_and_a_queue_that_is_there() -> None:
    document = bindings_document(1000)
    bindings = document["bindings"]
    assert len({binding["routing_key"] for binding in bindings}) == 1000
    queues = {queue["name"] for queue in document["queues"]}
    assert {binding["destination"] for binding in bindings} == queues
    assert {binding["source"] for binding in bindings} == {document["exchanges"][0]["name"]}


@pytest.mark.parametrize(("most", "status"), [(0.9, "reached"), (1.1, "missed")])
def test_the_longest_failover_is_judged(most: float, status: str) -> None:
    sample = {"failover_s": 0.1, "failover_most_s": most}
    outcome = Outcome({"cluster-failover": {"warren": [sample]}})
    assert next(v.status for v in judge(outcome) if v.title == TITLE) == status
    context = report.Context("2000-01-01", "0", "machine", 1, 1.0, ["warren"])
    assert "kill of a node" in report.render(outcome, context, whole=False)


def test_only_declares_sent_after_the_kill_count() -> None:
    beat = DeclareBeat(1, "x")
    now = time.monotonic()
    # One that was under way at the kill says nothing about the time after it.
    beat.done = [(now - 1.0, now - 0.9), (now - 0.1, now + 0.2), (now + 0.3, now + 0.5)]
    assert beat.await_one_since(now, 1.0) == pytest.approx(0.5)
    beat.done.pop()
    with pytest.raises(BrokerError, match="no declare within"):
        beat.await_one_since(now, 0.05)
    with pytest.raises(BrokerError, match="2 of 3 declares"):
        beat.await_count(3, 0.05)


def test_a_broker_that_refuses_is_counted_and_asked_again() -> None:
    with DeclareBeat(free_ports(1)[0], "x") as beat:
        deadline = time.monotonic() + 10
        while beat.failed < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert beat.failed >= 2
    assert beat.done == []


@contextlib.contextmanager
def deaf_server() -> Iterator[tuple[int, list[bytes]]]:
    """Takes connections, notes their first bytes and hangs up."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        heard.append(client.recv(8))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    build()
    return subprocess.run(
        [str(PROGRAM), *arguments], capture_output=True, text=True, check=False, timeout=30
    )


def test_the_first_endpoint_sets_up_and_the_last_list_counts() -> None:
    with deaf_server() as (first, first_heard), deaf_server() as (second, second_heard):
        before = ["--endpoints", f"127.0.0.1:{second}"]
        ends = [f"127.0.0.1:{port}" for port in (first, second)]
        refused = load(*before, "--endpoints", ",".join(ends), "--producer-endpoints", ends[1])
    assert refused.returncode == 1
    assert first_heard == [b"AMQP\0\0\x09\x01"]
    assert second_heard == []


@pytest.mark.parametrize("option", ["--producer-endpoints", "--consumer-endpoints"])
@pytest.mark.parametrize("given", ["5672", ":1", "a:0", "a:65536", "a:b", ","])
def test_lists_of_nodes_are_checked(option: str, given: str) -> None:
    refused = load(option, given)
    assert refused.returncode == 1
    assert option in refused.stderr


def test_a_flow_through_another_node() -> None:
    with Cluster(2) as cluster:
        ends = [url.rpartition("@")[2] for url in cluster.urls]
        places = ["--endpoints", ends[0], "--producer-endpoints", ends[1]]
        done = load(*places, "--window", "100", "--warm", "0.1", "--seconds", "0.3", "--keep")
        spread = ["--endpoints", ",".join(ends), "--producers", "2", "--prefix", "spread"]
        both = load(*spread, "--mode", "declare", "--queues", "4", "--keep")
        names = cluster.ctl(1, "list_queues", "--quiet", "name").split()
    assert done.returncode == both.returncode == 0, done.stderr + both.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["consumed"] > 0
    assert result["nacked"] == 0
    assert {f"spread-q{number:06}" for number in range(4)} < set(names)
