"""The commands of warrenctl that pages show, word for word, on nodes that have what they are about.

What stands for something (QUEUE, <node>, rabbit@host1) is put in the place of it, and nothing else.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pika
import pytest
from pages import PAGES, Command, commands
from plan import CLUSTERING, MIRRORED, ONE_NODE, way_of
from ways import By

from warren.ctl.client import make_client
from warren.ctl.main import run
from warren.testing import Broker, Cluster

WAIT_S = 60.0
ORDERS = "from-rabbit-orders"
HOSTS = {f"rabbit@host{n}": f"node{n}@localhost" for n in (1, 2, 3)}
#: Other statuses than 0 that are good answers here: doctors find something, checks fail.
STATUSES = {
    "doctor": {0, 69},
    "check_if_node_is_mirror_sync_critical": {0, 69},
    "reset": {70},
}


def commands_by(test: str, page: str) -> list[Command]:
    """Those of a page that are a test's, in their order."""
    return [command for command in commands(page) if way_of(command) == By(test)]


def perform(text: str, names: Mapping[str, str]) -> None:
    """Run a command line; fails if warrenctl does."""
    words = [shown(word, names) for word in shlex.split(text)]
    assert words.pop(0) == "warrenctl"
    name = next(word for word in words if re.fullmatch(r"[a-z_]+", word))
    assert run(words) in STATUSES.get(name, {0}), words


def shown(word: str, names: Mapping[str, str]) -> str:
    for name, meant in names.items():
        # Not within another word, where it is a part of a name.
        word = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", lambda _, meant=meant: meant, word)
    return word


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The commands find the nodes of the test, and files where they may be."""
    for name in ("WARREN_URL", "WARREN_NODENAME", "RABBITMQ_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_on_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"rabbit1": "127.0.0.1:1", "rabbit2": "127.0.0.1:1"}
    names = {"QUEUE": "orders", "CURSOR": "lake", "NAME": ORDERS, **nowhere}
    for page in PAGES:
        asked = commands_by(ONE_NODE, page)
        if not asked:
            continue
        with Broker(http=True) as broker:
            monkeypatch.setenv("WARREN_URL", broker.http_url.replace("//", "//guest:guest@"))
            with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
                connection.channel().queue_declare("orders", durable=True)
            make_client(None, None, 30).want("PUT", "/queues/%2F/orders/cursors/lake", {})
            ends = '{"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://"}'
            perform(f"warrenctl set_parameter shovel {ORDERS} '{ends}'", {})
            perform("warrenctl export_definitions rabbit.json", {})
            for command in asked:
                perform(command.text, names)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterable[Cluster]:
    with Cluster(3) as running:
        monkeypatch.setenv("WARREN_RUNTIME_DIR", str(running._sockets))
        yield running


def test_mirrored_queues(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (page,) = {c.page for p in PAGES for c in commands_by(MIRRORED, p)}
    with pika.BlockingConnection(pika.URLParameters(cluster.url(1))) as connection:
        channel = connection.channel()
        for name in ("orders", "orders.1", "ha.orders"):
            channel.queue_declare(name, durable=True)
        channel.exchange_declare("orders", "x-modulus-hash", durable=True)
    names = {**HOSTS, "<queue>": "ha.orders", "<node>": "node2@localhost"}
    for command in commands_by(MIRRORED, page):
        if "transfer_master" in command.text:
            until(lambda: "node2" in cluster.ctl(1, "list_queues", "-q", "synchronised_slave_pids"))
        # What is about one node is said on it.
        local = "check_if" in command.text or "events" in command.text
        monkeypatch.setenv("WARREN_NODENAME", "node1@localhost" if local else "")
        perform(command.text, names)


def test_clustering(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page from its top to its end, a part at a time, with what must have happened before."""
    (page,) = {c.page for p in PAGES for c in commands_by(CLUSTERING, p)}
    left = commands_by(CLUSTERING, page)
    shells, sentences = (
        [c.text for c in left if not c.is_inline],
        [c.text for c in left if c.is_inline],
    )

    def part(last: str) -> list[str]:
        """The next commands of the page, up to one."""
        size = shells.index(last) + 1
        found, shells[:size] = shells[:size], []
        return found

    def act(lines: Iterable[str]) -> None:
        for line in lines:
            perform(line, {**HOSTS, "QUEUE": "orders"})

    cluster.ctl(1, "pub", "orders", "x")
    act(sentences)
    joining = part("warrenctl await_online_nodes 2")
    # Taking a node out, and having it join anew.
    act(part("warrenctl -n rabbit@host1 forget_cluster_node rabbit@host3"))
    # The cluster may have its name of it.
    told = cluster.ctl(1, "cluster_status").replace("Cluster name: node3", "")
    assert "node3" not in told
    act(["warrenctl -n rabbit@host3 force_reset"])
    monkeypatch.setenv("WARREN_NODENAME", "node3@localhost")
    act(joining)
    monkeypatch.delenv("WARREN_NODENAME")
    until(lambda: "orders" in cluster.ctl(3, "list_queues"))
    act(part("warrenctl -n rabbit@host2 revive"))
    # One that is lost for good, and a fresh one in its place.
    cluster.ctl(3, "stop_app")
    act(part("warrenctl -n rabbit@host3 start_app"))
    until(lambda: "orders" in cluster.ctl(3, "list_queues"))
    # All others are lost: the survivor goes on by itself.
    cluster.kill(2)
    cluster.kill(3)
    cluster.ctl(1, "stop_app")
    act(part("warrenctl -n rabbit@host1 start_app"))
    assert cluster.ctl(1, "list_queues", "-q", "name") == "name\norders\n"
    assert shells == []
