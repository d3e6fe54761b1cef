"""Which node warrenctl speaks to, and what it says when there is none."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest

from warren.ctl import client as client_module
from warren.ctl.client import Client
from warren.ctl.main import run
from warren.testing import Broker, Cluster

WAIT_S = 30.0
Said = tuple[int, str, str]
Ctl = Callable[..., Said]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where control sockets are looked for; nothing is there yet."""
    for name in ("WARREN_URL", "WARREN_NODENAME", "RABBITMQ_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WARREN_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def here(place: Path, capsys: pytest.CaptureFixture[str]) -> Ctl:
    def call(*words: str) -> Said:
        capsys.readouterr()
        status = run(words)
        out, err = capsys.readouterr()
        return status, out, err

    return call


def left_behind(path: Path) -> None:
    """The socket of a node that was killed: the file is there and nobody behind it."""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))


@pytest.fixture
def pretender(place: Path) -> Iterator[Path]:
    """A socket that accepts and says nothing."""
    path = place / "pretender@here.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield path


def test_where_no_node_runs(here: Ctl, place: Path) -> None:
    status, _, err = here("status")
    assert status == 69
    assert "the node is not running (start one with: warren dev, or warren cluster up)" in err
    assert str(place) in err


def test_a_killed_node_is_nobody(here: Ctl, place: Path, pretender: Path) -> None:
    left_behind(place / "killed@here.sock")
    status, _, err = here("-n", "killed@here", "status")
    assert status == 69
    assert "the node is not running; here run: pretender@here (choose one with -n)" in err
    # With one node left it need not be named.
    status, _, err = here("-t", "1", "status")
    assert (status, "did not answer" in err) == (75, True)


def test_several_nodes_that_are_no_cluster(here: Ctl, place: Path, pretender: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place / "other@here.sock"))
        other.listen()
        status, _, err = here("status")
    assert status == 69
    assert "several nodes run here (other@here, pretender@here): name one with -n" in err
    assert "as in -n other@here" in err


def test_of_a_cluster_any_node_will_do(here: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(3) as cluster:
        monkeypatch.setenv("WARREN_RUNTIME_DIR", str(cluster._sockets))
        cluster.kill(1)
        # One that stands still is passed over.
        cluster.pause(2)
        assert here("list_users", "-q")[0] == 0
        cluster.resume(2)
        cluster.wait_until_ready()
        assert here("pub", "orders", "x")[0] == 0
        assert here("list_queues", "-q", "name")[1] == "name\norders\n"
        # What is about one node wants its name, of which the part before the @ is enough.
        status, _, err = here("stop_app")
        assert (status, "(node2@localhost, node3@localhost)" in err) == (69, True)
        assert here("-n", "node3", "ping")[0] == 0
        # Whoever declares one of these may think that it is on several nodes.
        with pika.BlockingConnection(pika.URLParameters(cluster.url(2))) as connection:
            kind = {"x-queue-type": "quorum"}
            connection.channel().queue_declare("safe", durable=True, arguments=kind)
        said = "queue 'safe' in vhost '/' was declared as a quorum queue"
        assert said in here("-n", "node2", "doctor")[1]
        policy = '{"ha-mode": "all", "ha-sync-mode": "automatic"}'
        assert here("set_policy", "ha", "^safe$", policy)[0] == 0
        until_s = time.monotonic() + WAIT_S
        while said in here("-n", "node2", "doctor")[1]:
            assert time.monotonic() < until_s
        # One that lets no clients in is not chosen.
        assert here("-n", "node2", "stop_app")[0] == 0
        assert here("cluster_status", "-q")[0] == 0


def test_another_program_is_not_taken_for_a_node(here: Ctl) -> None:
    with Broker(http=True) as broker:
        for port in (broker.port, int(str(broker.metrics_url).rpartition(":")[2].split("/")[0])):
            status, _, err = here("--url", f"http://127.0.0.1:{port}", "list_queues")
            assert status == 69
            assert "is not a management API: that is at port 15672" in err
        port = int(broker.http_url.rpartition(":")[2])
        status, _, err = here("--url", f"https://127.0.0.1:{port}", "list_queues")
        assert (status, "there is no TLS on this port" in err) == (69, True)
        status, _, err = here("--url", f"http://shop:wrong@127.0.0.1:{port}", "list_queues")
        assert status == 77
        assert f"Login failed\n\nThat was user 'shop' at 127.0.0.1:{port}" in err
        broker.add_user("plain", "pw")
        status, _, err = here("--url", f"http://plain:pw@127.0.0.1:{port}", "list_queues")
        assert (status, "Not management user" in err, "needs a tag" in err) == (77, True, True)


def test_an_address_where_nobody_listens(here: Ctl) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    status, _, err = here("--url", f"http://127.0.0.1:{port}", "list_queues")
    assert status == 69
    assert "management API is on another port" in err
    assert "warren dev" not in err


def test_at_a_terminal_it_says_that_it_waits(
    pretender: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_module, "SILENCE_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listening:
        path = pretender.with_name("slow@here.sock")
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}")

        for is_terminal in (False, True):
            monkeypatch.setattr(sys.stderr, "isatty", lambda is_it=is_terminal: is_it)
            thread = threading.Timer(0.5, answer)
            thread.start()
            assert Client(path, None, None, 30).get("/overview") == {}
            thread.join()
            said = capsys.readouterr().err
            assert ("waiting for the node's answer" in said) is is_terminal


def test_the_version(here: Ctl) -> None:
    assert here("--version") == here("version")
    assert here("--version")[0] == 0
