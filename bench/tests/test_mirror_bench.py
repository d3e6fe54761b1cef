"""What computes in the benchmarks of mirrored queues, and that their loads can be carried out."""

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import report, run
from bench.bars import judge
from bench.brokers import Broker
from bench.clusters import RabbitCluster, Ring, WarrenCluster
from bench.confirm_beat import ConfirmBeat
from bench.generator import GeneratorError, build, open_flow
from bench.loads import Load
from bench.mirror_bars import MIRROR_BARS
from bench.mirror_loads import MIRROR_LOADS
from bench.mirror_procedures import amount_for, p99
from bench.mirrored import check_in_sync
from bench.outcome import Outcome
from bench.procedures import carry_out
from bench.run import QUICK_PACE
from bench.traffic import received_bytes

#: Those that make no more load than a machine with much else to do can bear.
LIGHT = ("mirrors-failover", "mirrors-sync", "mirrors-rejoin", "mirrors-many")


def named(name: str) -> Load:
    return next(load for load in MIRROR_LOADS if load.name == name)


def planned(*arguments: str) -> run.Plan:
    return run.make_plan(run.parse_arguments(list(arguments)))


def test_mirrors_names_its_loads_and_each_has_a_name() -> None:
    assert planned("--only", "mirrors").loads == list(MIRROR_LOADS)
    assert [load.name for load in planned("--only", "mirrors-sync").loads] == ["mirrors-sync"]
    quick = {load.name: load.amount for load in planned("--only", "mirrors", "--quick").loads}
    assert all(quick[load.name] < load.amount for load in MIRROR_LOADS if load.amount)


@pytest.mark.parametrize("load", MIRROR_LOADS, ids=lambda load: load.name)
def test_loads_go_to_clusters_alone(tmp_path: Path, load: Load) -> None:
    clusters: list[Broker] = [WarrenCluster(tmp_path), RabbitCluster(tmp_path)]
    part = [run.takes_part(cluster, load) for cluster in clusters]
    assert part == [True, not load.warren_only]


def test_others_are_asked_for_less_and_never_for_more(tmp_path: Path) -> None:
    load = named("mirrors-failover")
    warren, rabbitmq = WarrenCluster(tmp_path), RabbitCluster(tmp_path)
    assert amount_for(load, warren) == load.amount
    assert amount_for(load, rabbitmq) == load.others_amount < load.amount
    assert amount_for(replace(load, amount=1), rabbitmq) == 1


def test_p99_of_few_is_the_largest() -> None:
    assert p99([0.1, 3.0, 0.2]) == 3.0
    assert p99([float(number) for number in range(1, 201)]) == 198.0


def test_a_gap_is_between_two_answers() -> None:
    beat = ConfirmBeat(1, "x")
    beat.done = [(0.0, 1.0), (1.0, 6.0), (6.0, 6.5), (6.5, 8.0), (8.0, 8.1)]
    # The one of 5 s was over before the kill; the answer that the kill delayed counts in full.
    assert beat.longest_gap(7.0) == 1.5
    assert beat.longest_gap(5.0) == 5.0
    assert beat.longest_gap(9.0) == 0.0


def test_a_ring_that_lost_a_mirror_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = WarrenCluster(tmp_path)
    monkeypatch.setattr(cluster, "ring", lambda _: Ring("a@h", ("a@h", "b@h")))
    check_in_sync(cluster, "q", 2)
    with pytest.raises(Exception, match="of 3 replicas in sync are left: a@h, b@h"):
        check_in_sync(cluster, "q", 3)


def test_bytes_are_those_of_the_process_and_not_of_its_clients() -> None:
    script = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', {}))\n"
    script += "n = 0\nwhile n < 100000: n += len(s.recv(65536))\nprint(flush=True); time.sleep(60)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = ["python3", "-c", script.format(server.getsockname()[1])]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as reader:
            client, (_, port) = server.accept()
            with client:
                client.sendall(b"x" * 100_000)
                assert reader.stdout is not None
                reader.stdout.readline()
                assert received_bytes(reader.pid, client_port=1) == 100_000
                assert received_bytes(reader.pid, client_port=port) == 0
                reader.kill()


def test_the_bars_are_judged_and_shown() -> None:
    outcome = Outcome()
    outcome.add(named("mirrors-flow"), "warren", {"direct_fill_rate": 210.0})
    outcome.add(named("mirrors-flow"), "rabbitmq", {"direct_fill_rate": 10.0})
    outcome.add(named("mirrors-1k"), "warren", {"confirm_p99_ms": 3.0})
    outcome.add(named("mirrors-1k"), "rabbitmq", {"confirm_p99_ms": 2.0})
    outcome.add(named("mirrors-failover"), "warren", {"gap_p50_s": 0.1, "gap_p99_s": 0.7})
    outcome.add(named("mirrors-rejoin"), "warren", {"moved_percent": 0.4})
    status = {verdict.title: verdict.status for verdict in judge(outcome)}
    assert {bar.title for bar in MIRROR_BARS} <= set(status)
    assert status["mirrored, persistent with confirms, no consumer, of RabbitMQ"] == "reached"
    assert status["mirrored, p99 to confirm at 1,000 msg/s, of RabbitMQ's"] == "missed"
    assert status["gap in the confirms after a kill of the master, median"] == "reached"
    assert status["gap in the confirms after a kill of the master, p99"] == "missed"
    assert status["moved when a mirror comes back after 10 s, of the backlog"] == "reached"
    assert "gap in the confirms, p99 s" in report.details_table(outcome, ["warren"])


def test_a_flow_that_cannot_begin_says_why() -> None:
    build()
    with (
        pytest.raises(GeneratorError, match="cannot connect"),
        open_flow(["--endpoints", "127.0.0.1:1"]),
    ):
        pass


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarrenCluster]:
    build()
    made = WarrenCluster(tmp_path_factory.mktemp("mirrors"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("name", LIGHT)
def test_the_load_can_be_carried_out(cluster: WarrenCluster, name: str) -> None:
    load = named(name)
    metrics = carry_out(replace(load, amount=load.quick_amount), cluster, QUICK_PACE)
    assert metrics
    assert all(value >= 0 for value in metrics.values())
    assert cluster.is_running
    assert set(metrics) <= {metric for metric, _ in report.DETAILS}
