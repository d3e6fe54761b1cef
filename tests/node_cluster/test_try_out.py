"""`warren cluster`: what it starts, shows, ends and leaves; whom it leaves alone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from free_ports import free_first_port

from warren.node.process_mark import ProcessMark
from warren.node.try_out import TryOut, TryOutError, check_places, node_ports

WAIT_S = 100


class Commands:
    """Runs `warren cluster ...` in a directory."""

    def __init__(self, folder: Path, port: int, sockets: str) -> None:
        self.folder, self.port = folder, port
        self.env = {**os.environ, "WARREN_RUNTIME_DIR": sockets}

    def __call__(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "warren", "cluster", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def up(self, *words: str, status: int = 0) -> str:
        return self("up", "--port", str(self.port), *words, status=status)

    def states(self) -> dict[str, str]:
        """By node's number."""
        rows = [re.split(r" {2,}", line) for line in self("status").splitlines()[1:]]
        return {row[0].partition("warren")[2][0]: row[2] for row in rows}

    def mark(self, number: int) -> ProcessMark:
        mark = ProcessMark.read(self.folder / ".warren" / f"warren{number}" / "pid")
        assert mark is not None
        return mark


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Commands]:
    with tempfile.TemporaryDirectory(prefix="warren-") as sockets:
        commands = Commands(tmp_path, free_first_port(3), sockets)
        yield commands
        marks = [ProcessMark.read(path) for path in tmp_path.glob(".warren/*/pid")]
        for mark in marks:
            if mark is not None:
                mark.send(signal.SIGKILL)


def test_a_whole_life(cluster: Commands) -> None:
    shown = cluster.up("-n", "2")
    for number in (1, 2):
        assert f"warren{number}-{cluster.port}@localhost is ready" in shown
        url = f"amqp://guest:guest@127.0.0.1:{cluster.port + number - 1}"
        assert url in shown
        connection = pika.BlockingConnection(pika.URLParameters(url))
        connection.channel().queue_declare("kept", durable=True)
        connection.close()
    assert "warren cluster kill 2" in shown
    # Again: nothing happens.
    first = cluster.mark(1)
    assert "all nodes run already" in cluster.up()
    assert cluster.mark(1) == first
    assert os.getsid(first.pid) == first.pid

    assert "killed" in cluster("kill", "2")
    assert cluster.states() == {"1": "running", "2": "down"}
    assert "does not run" in cluster("kill", "2")
    assert "is ready" in cluster("start", f"warren2-{cluster.port}@localhost")
    assert "runs already" in cluster("start", "2")
    assert "stopped" in cluster("stop", "1")
    assert "does not run" in cluster("stop", "1")
    assert "ready in" in cluster("logs", "1")

    assert "does not run: warren cluster start 1" in cluster("partition", "1", "2", status=1)
    assert f"stopped warren2-{cluster.port}@localhost" in (down := cluster("down"))
    assert "MB remain in .warren" in down
    assert cluster.states() == {"1": "down", "2": "down"}
    cluster("up")
    connection = pika.BlockingConnection(
        pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{cluster.port}")
    )
    connection.channel().queue_declare("kept", passive=True)
    connection.close()
    (cluster.folder / ".warren" / "mine").write_text("not yours")
    assert "removed" in cluster("down", "--wipe")
    assert [path.name for path in (cluster.folder / ".warren").iterdir()] == ["mine"]
    assert "there is no cluster" in cluster("down")


def test_strangers_are_left_alone(cluster: Commands) -> None:
    """A pid file from before, whose number is somebody else's by now."""
    cluster.up("-n", "1")
    real = cluster.mark(1)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        path = cluster.folder / ".warren" / "warren1" / "pid"
        path.write_text(f"{stranger.pid} {real.began} {real.boot}\n")
        assert cluster.states() == {"1": "died"}
        assert "does not run" in cluster("kill", "1")
        path.write_text(f"{stranger.pid} {real.began} {real.boot}\n")
        assert "no node was running" in cluster("down")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        real.send(signal.SIGKILL)


def test_a_node_that_dies_and_one_that_sleeps(cluster: Commands) -> None:
    cluster.up("-n", "2")
    cluster.mark(1).send(signal.SIGSTOP)
    died = cluster.mark(2)
    died.send(signal.SIGKILL)
    died.wait(WAIT_S)
    assert cluster.states() == {"1": "paused", "2": "died"}
    # A paused one has to wake up to end.
    cluster("down", "--wipe")
    assert not list(cluster.folder.glob(".warren"))


def test_taken_ports_are_told_before_anything_is_started(cluster: Commands) -> None:
    with socket.create_server(("127.0.0.1", cluster.port + 1)):
        shown = cluster.up("-n", "3", status=1)
    assert f"port {cluster.port + 1} (AMQP of warren2-{cluster.port}@localhost)" in shown
    assert "--port" in shown
    assert list(cluster.folder.iterdir()) == []


def test_a_node_that_cannot_start(cluster: Commands) -> None:
    cluster.up("-n", "1")
    cluster("stop", "1")
    (cluster.folder / ".warren" / "cookie").chmod(0o644)
    shown = cluster("start", "1", status=1)
    assert "did not start" in shown
    assert "chmod 600" in shown
    assert cluster.states() == {"1": "died"}


def test_a_key_that_no_node_would_start_with_is_not_kept(cluster: Commands) -> None:
    told = cluster.up("--set", "hartbeat=5", status=2)
    assert "unknown key 'hartbeat'; did you mean 'heartbeat'?" in told
    assert "there is no cluster" in cluster("status", status=1)


def test_a_place_that_cannot_be_used(cluster: Commands) -> None:
    (cluster.folder / "file").write_text("")
    told = cluster("--dir", "file/inside", "up", status=1)
    assert "file/inside cannot be used: Not a directory; --dir names another place" in told


def test_asked_wrongly(cluster: Commands) -> None:
    for words in (("status",), ("kill", "1"), ("heal",), ("partition", "1", "2"), ("logs", "1")):
        assert "start one with warren cluster up" in cluster(*words, status=1)
    assert list(cluster.folder.iterdir()) == []
    cluster("up", "-n", "0", status=2)
    cluster("up", "-n", "10", status=2)
    cluster("kill", status=2)


def test_what_a_directory_holds_stays(tmp_path: Path) -> None:
    rows = [
        {"number": n, "name": f"warren{n}@localhost", **node_ports(n, 5672)} for n in range(1, 4)
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": rows}))
    try_out = TryOut(tmp_path)
    assert try_out.node("2") == try_out.node("warren2") == try_out.node("warren2@localhost")
    with pytest.raises(TryOutError, match=r"there is no node 4; there are 1 \(warren1@localhost\)"):
        try_out.node("4")
    for count, port in ((2, None), (None, 6000)):
        with pytest.raises(TryOutError, match="a cluster of 3 nodes from port 5672 on"):
            try_out.up(count, port, print, print)
    with pytest.raises(TryOutError, match="from itself"):
        try_out.partition(try_out.node("1"), try_out.node("1"))
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(TryOutError, match="cannot be read"):
        try_out.nodes()


def test_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="warren-") as sockets:
        monkeypatch.setenv("WARREN_RUNTIME_DIR", sockets)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(f"{sockets}/warren1-{(port := free_first_port(1))}@localhost.sock")
            other.listen()
            nodes = TryOut(tmp_path)._planned(1, port)
            with pytest.raises(TryOutError, match=f"warren1-{port}@localhost"):
                check_places(nodes)


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with TryOut(tmp_path)._alone(), pytest.raises(TryOutError, match="another warren cluster"):
        TryOut(tmp_path).up(1, None, print, print)


def test_usual_ports() -> None:
    nodes = TryOut(Path(".warren"))._planned(None, None)
    assert [node.amqp_port for node in nodes] == [5672, 5673, 5674]
    assert [node.management_port for node in nodes] == [15672, 15673, 15674]
    assert [node.link_port for node in nodes] == [25672, 25673, 25674]
    assert nodes[0].name == "warren1@localhost"


def kill_over_http(port: int, node: str) -> tuple[int, str]:
    """What the web UI asks for; the status of the answer, and its reason."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/warren/cluster/kill",
        json.dumps({"node": node}).encode(),
        {"Authorization": "Basic " + b64encode(b"guest:guest").decode()},
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return int(answer.status), ""
    except urllib.error.HTTPError as error:
        return error.code, str(json.loads(error.read())["reason"])


def test_nodes_are_killed_through_the_api_and_started_again(cluster: Commands) -> None:
    cluster.up("-n", "3")
    names = [f"warren{number}-{cluster.port}@localhost" for number in (1, 2, 3)]
    port = node_ports(1, cluster.port)["management_port"]
    marks = [cluster.mark(number) for number in (1, 2, 3)]
    assert kill_over_http(port, "nobody@localhost")[0] == 400
    # Another one, and the one that is asked.
    assert kill_over_http(port, names[1]) == (202, "")
    marks[1].wait(WAIT_S)
    assert kill_over_http(port, names[0]) == (202, "")
    marks[0].wait(WAIT_S)
    assert cluster.states() == {"1": "died", "2": "died", "3": "running"}
    # As the page says it, with the name in its place.
    configuration = (cluster.folder / ".warren" / "warren1" / "rabbitmq.conf").read_text()
    assert "cluster.try_out = warren cluster start {node}" in configuration
    cluster("start", names[0].partition("@")[0], "--no-wait")
    cluster("start", names[1].partition("@")[0])
    assert cluster.states() == {"1": "running", "2": "running", "3": "running"}
    cluster("down", "--wipe")


def test_the_way_back_names_another_directory(tmp_path: Path) -> None:
    try_out = TryOut(tmp_path / "my cluster")
    text = try_out._more["cluster.try_out"]
    assert text == f"warren cluster --dir '{tmp_path}/my cluster' start {{node}}"


def test_nodes_get_keys_of_the_configuration(cluster: Commands) -> None:
    handling = "cluster_partition_handling = autoheal"
    place = cluster.folder / ".warren" / "warren1" / "rabbitmq.conf"
    assert "KEY=VALUE" in cluster.up("-n", "1", "--set", "cluster_partition_handling", status=2)
    cluster.up("-n", "1", "--set", "cluster_partition_handling=autoheal")
    assert handling in place.read_text().splitlines()
    said = cluster.up("--set", "cluster_name=tried")
    assert "counts when they are started again" in said
    cluster("kill", "1")
    cluster("start", "1")
    assert {handling, "cluster_name = tried"} <= set(place.read_text().splitlines())
