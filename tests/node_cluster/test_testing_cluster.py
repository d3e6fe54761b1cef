"""`warren.testing.Cluster`: real processes, what can be done to them, and that none stay behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest

from warren.node.local_nodes import LocalNodeError
from warren.node.process_mark import ProcessMark
from warren.testing import Cluster, ClusterFault, CtlFailed

WAIT_S = 100


def connect(url: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(url))


def wait_until_refused(url: str) -> None:
    """Until the node lets nobody in."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        try:
            connect(url).close()
        except pika.exceptions.AMQPConnectionError:
            return
        time.sleep(0.1)
    raise AssertionError(f"{url} goes on letting clients in")


def test_what_can_be_done_to_nodes() -> None:
    with Cluster(2, config={"cluster_name": "both"}, node_config={2: {"heartbeat": 7}}) as cluster:
        assert cluster.nodes == ["node1@localhost", "node2@localhost"]
        assert len(set(cluster.urls)) == 2
        assert "Cluster name: both" in cluster.ctl(1, "cluster_status")
        assert '"heartbeat_s": 7' in cluster.ctl(2, "environment")
        assert '"heartbeat_s": 60' in cluster.ctl(1, "environment")

        with connect(cluster.url(2)) as connection:
            connection.channel().queue_declare("kept", durable=True)
        before = cluster.pid(2)
        cluster.kill(2)
        assert cluster.running == [1]
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(cluster.url(2))
        with pytest.raises(RuntimeError, match="does not run"):
            cluster.pid(2)
        cluster.start(2)
        assert cluster.pid(2) != before
        with connect(cluster.url(2)) as connection:
            connection.channel().queue_declare("kept", passive=True)

        cluster.pause(1)
        port = int(cluster.url(1).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 1) as client:
            client.sendall(b"AMQP\0\0\x09\x01")
            with pytest.raises(TimeoutError):
                client.recv(1)
        cluster.resume(1)
        cluster.wait_until_ready()
        connect(cluster.url(1)).close()
        cluster.restart(1)
        assert cluster.log(1).count("ready in") == 2

        with pytest.raises(CtlFailed) as failed:
            cluster.ctl(1, "delete_user", "nobody")
        assert failed.value.status == 67
        cluster.partition(1, 2)
        for node in (1, 2):
            # Neither of two is a majority.
            wait_until_refused(cluster.url(node))
        cluster.heal()
        cluster.wait_until_ready()
        for node in (1, 2):
            connect(cluster.url(node)).close()
    assert cluster.running == []


def test_asked_wrongly() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Cluster(0)
    with pytest.raises(ValueError, match="names node 4; nodes are 1 to 3"):
        Cluster(3, node_config={4: {}})
    with Cluster(1) as cluster:
        for act in (cluster.kill, cluster.url, cluster.isolate, cluster.log):
            with pytest.raises(ValueError, match="there is no node 2"):
                act(2)
        with pytest.raises(ValueError, match="from itself"):
            cluster.partition(1, 1)
        with pytest.raises(RuntimeError, match="runs already"):
            cluster.start(1)
        with pytest.raises(RuntimeError, match="up already"):
            cluster.up()


def test_a_node_that_cannot_start_is_told_with_its_log() -> None:
    cluster = Cluster(1, config={"hartbeat": 1})
    with pytest.raises(LocalNodeError, match="did you mean 'heartbeat'"):
        cluster.up()
    assert cluster.running == []


def test_a_port_that_is_lost_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    from warren.testing import cluster as module

    given: list[list[int]] = []
    real = module.reserve_ports
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def reserve(count: int, ends: object) -> list[int]:
            ports = real(count, ends)  # type: ignore[arg-type]
            given.append(ports if given else [taken.getsockname()[1], *ports[1:]])
            return given[-1]

        monkeypatch.setattr(module, "reserve_ports", reserve)
        with Cluster(1) as cluster:
            connect(cluster.url(1)).close()
    assert len(given) == 2


def test_ends_after_an_exception_and_shows_the_logs() -> None:
    pids = []

    def fail() -> None:
        with Cluster(1) as cluster:
            pids.append(cluster.pid(1))
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fail()
    assert ProcessMark.of(pids[0]) is None
    assert any("log of node1@localhost" in note for note in caught.value.__notes__)


def test_a_nodes_own_failure_fails_the_test(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterFault, match="node1@localhost failed"),
        Cluster(1, directory=tmp_path),
        (tmp_path / "node1" / "log").open("a") as log,
    ):
        log.write("Traceback (most recent call last):\nValueError: of ours\n")
    # A directory that was named is the caller's.
    assert (tmp_path / "node1" / "data").is_dir()


HELD = """
import sys, time
from warren.testing import Cluster
with Cluster(2) as cluster:
    cluster.pause(2)
    print(cluster.pid(1), cluster.pid(2), flush=True)
    time.sleep(600)
"""


def test_nodes_do_not_outlive_a_test_that_is_killed() -> None:
    """Neither one that runs nor one that is paused, which could not notice anything."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    marks = [ProcessMark.of(int(pid)) for pid in process.stdout.readline().split()]
    assert len(marks) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=WAIT_S)
    for mark in marks:
        assert mark is not None
        assert mark.wait(WAIT_S)


def test_a_node_that_is_not_waited_for() -> None:
    with Cluster(2) as cluster:
        cluster.kill(1)
        cluster.kill(2)
        cluster.start(1, wait=False)
        assert cluster.running == [1]
        cluster.start_all()
        cluster.wait_until_ready()
        for url in cluster.urls:
            connect(url).close()
        assert "Traceback" not in cluster.log(1)


def test_ports_stay_ours_while_nobody_listens() -> None:
    with Cluster(1) as cluster:
        port = int(cluster.url(1).rpartition(":")[2])
        cluster.kill(1)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        cluster.start(1)


MARKED = """
import pika
import pytest

@pytest.mark.amqp_cluster(n=1, config={"heartbeat": 11})
def test_marked(amqp_cluster):
    assert '"heartbeat_s": 11' in amqp_cluster.ctl(1, "environment")
    pika.BlockingConnection(pika.URLParameters(amqp_cluster.url(1))).close()

@pytest.mark.amqp_cluster(1)
def test_fails(amqp_cluster):
    assert amqp_cluster.url(1) is None
"""


def test_the_fixture_and_its_marker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MARKED)
    command = [sys.executable, "-m", "pytest", "--strict-markers", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [*command, "-p", "no:xdist", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=os.environ,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "log of node1@localhost" in done.stdout
    assert "ready in" in done.stdout


def test_partitions_are_kept_while_a_node_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without links to block yet: what is asked of the nodes' control sockets."""
    asked: list[tuple[str, str]] = []

    class Ask:
        def __init__(self, name: str) -> None:
            self.name = name

        def block(self, peer: object) -> None:
            asked.append((self.name[4], peer.name[4]))  # type: ignore[attr-defined]

        def unblock_all(self) -> None:
            asked.append((self.name[4], "all"))

    with Cluster(3) as cluster:
        monkeypatch.setattr(cluster, "_control", lambda n: Ask(cluster.nodes[n - 1]))
        cluster.kill(3)
        cluster.isolate(1)
        assert asked == [("1", "2"), ("2", "1"), ("1", "3")]
        asked.clear()
        cluster.start(3)
        assert asked == [("1", "3"), ("3", "1")]
        asked.clear()
        cluster.heal()
        assert asked == [("1", "all"), ("2", "all"), ("3", "all")]
        asked.clear()
        cluster.split([1], [2, 3])
        assert sorted(asked) == [("1", "2"), ("1", "3"), ("2", "1"), ("3", "1")]
        cluster.wait_until_ready(WAIT_S)
