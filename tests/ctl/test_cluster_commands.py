"""The commands on the cluster: their formats, their errors, their exit codes; on one node."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from warren.management.cluster_control import ClusterStatus, MemberStatus
from warren.management.context import ListenerFacts
from warren.node.standalone import StandaloneControl
from warren.testing.broker import Broker

if TYPE_CHECKING:
    from warren.node.node import Node

Ctl = Callable[..., tuple[int, str, str]]
Ok = Callable[..., str]


class ClusterOfThree(StandaloneControl):
    """Says what a control of three nodes would."""

    asked: list[tuple[object, ...]]

    def status(self) -> ClusterStatus:
        def member(name: str, port: int, **more: object) -> MemberStatus:
            listener = ListenerFacts("clustering", "::", port)
            facts = {"product": "RabbitMQ", "version": "3.13.7", "runtime": "3.11.2"}
            return MemberStatus(name, True, cpu_cores=2, listeners=[listener], **(facts | more))

        down = MemberStatus("eco3@localhost", False, "ram")
        return ClusterStatus(
            "eco1@localhost",
            "eco",
            True,
            [
                member("eco1@localhost", 25672),
                member("eco2@localhost", 25673, alarms=["disk"]),
                down,
            ],
            {"eco1@localhost": ["eco2@localhost", "eco3@localhost"]},
        )

    def online_nodes(self) -> list[str]:
        return ["eco1@localhost", "eco2@localhost"]

    async def join(self, node: str, node_type: str) -> bool:
        self.asked.append((node, node_type))
        return node != "here@localhost"

    async def forget(self, node: str, offline: bool, force: bool) -> None:
        self.asked.append((node, offline, force))

    async def reset(self, force: bool) -> None:
        self.asked.append(("reset", force))


@pytest.fixture
def three(broker: Broker) -> Iterator[ClusterOfThree]:
    node = broker.call(lambda node: node)
    before, node.cluster_control = node.cluster_control, ClusterOfThree(node)
    node.cluster_control.asked = []
    yield node.cluster_control
    node.cluster_control = before


@pytest.fixture
def name(broker: Broker) -> str:
    return broker.call(lambda node: node.name)


TEXT = """\
Basics

Cluster name: eco
Total CPU cores available cluster-wide: 4

Disk Nodes

eco1@localhost
eco2@localhost

RAM Nodes

eco3@localhost

Running Nodes

eco1@localhost
eco2@localhost

Versions

eco1@localhost: RabbitMQ 3.13.7 on Python 3.11.2
eco2@localhost: RabbitMQ 3.13.7 on Python 3.11.2

CPU Cores

Node: eco1@localhost, available CPU cores: 2
Node: eco2@localhost, available CPU cores: 2

Maintenance status

Node: eco1@localhost, status: not under maintenance
Node: eco2@localhost, status: not under maintenance

Alarms

Free disk space alarm on node eco2@localhost

Network Partitions

Node eco1@localhost cannot communicate with eco2@localhost, eco3@localhost

Listeners

Node: eco1@localhost, interface: [::], port: 25672, protocol: clustering, purpose: inter-node communication
Node: eco2@localhost, interface: [::], port: 25673, protocol: clustering, purpose: inter-node communication

Feature flags

(none)

"""  # noqa: E501
#: The keys of a capture of RabbitMQ 3.10, and what 3.13 added.
KEYS = {
    "alarms",
    "cluster_name",
    "disk_nodes",
    "feature_flags",
    "listeners",
    "maintenance_status",
    "partitions",
    "ram_nodes",
    "running_nodes",
    "versions",
} | {"cpu_cores"}


def test_cluster_status_of_three(ctl: Ctl, three: ClusterOfThree) -> None:
    status, out, err = ctl("cluster_status")
    assert (status, out, err) == (0, TEXT, "Cluster status of node eco1@localhost ...\n")
    status, out, err = ctl("cluster_status", "--formatter", "json")
    assert (status, err) == (0, "")
    shown = json.loads(out)
    assert set(shown) == KEYS
    assert shown["disk_nodes"] == shown["running_nodes"] == ["eco1@localhost", "eco2@localhost"]
    assert shown["ram_nodes"] == ["eco3@localhost"]
    assert shown["listeners"]["eco1@localhost"] == [
        {
            "interface": "[::]",
            "node": "eco1@localhost",
            "port": 25672,
            "protocol": "clustering",
            "purpose": "inter-node communication",
        }
    ]
    assert shown["versions"]["eco2@localhost"] == {
        "erlang_version": "3.11.2",
        "rabbitmq_name": "RabbitMQ",
        "rabbitmq_version": "3.13.7",
    }
    assert shown["partitions"] == {"eco1@localhost": ["eco2@localhost", "eco3@localhost"]}
    assert shown["alarms"][0]["resource"] == "disk"


def test_cluster_status_of_one(ok: Ok, broker: Broker, name: str) -> None:
    out = ok("cluster_status")
    assert f"Running Nodes\n\n{name}\n" in out
    assert "RAM Nodes" not in out
    assert "Network Partitions\n\n(none)\n" in out
    shown = json.loads(ok("cluster_status", "--json"))
    assert set(shown) == KEYS
    (amqp, *_) = shown["listeners"][name]
    assert (amqp["port"], amqp["purpose"]) == (broker.port, "AMQP 0-9-1")


def test_what_is_asked_of_the_cluster(ctl: Ctl, ok: Ok, three: ClusterOfThree) -> None:
    assert ok("join_cluster", "eco2@localhost") == ""
    assert ok("join_cluster", "--ram", "here@localhost") == (
        "The node is already a member of this cluster\n"
    )
    ok("forget_cluster_node", "eco3@localhost")
    ok("forget_cluster_node", "--offline", "eco3@localhost")
    ok("forget_cluster_node", "--force", "eco3@localhost")
    ok("reset")
    ok("force_reset")
    assert three.asked == [
        ("eco2@localhost", "disc"),
        ("here@localhost", "ram"),
        ("eco3@localhost", False, False),
        ("eco3@localhost", True, False),
        ("eco3@localhost", False, True),
        ("reset", False),
        ("reset", True),
    ]
    ok("await_online_nodes", "2")
    status, _, err = ctl("-q", "await_online_nodes", "3", "-t", "0")
    assert (status, err) == (
        75,
        "Error:\ntimed out while waiting. Not enough nodes joined the cluster.\n",
    )


def test_asked_wrongly(ctl: Ctl) -> None:
    assert ctl("join_cluster")[0] == 64
    assert ctl("join_cluster", "a@b", "c@d")[0] == 64
    assert ctl("join_cluster", "--ram", "--disc", "a@b")[0] == 64
    assert ctl("join_cluster", "--rom", "a@b")[0] == 64
    assert ctl("forget_cluster_node")[0] == 64
    assert ctl("await_online_nodes", "0")[0] == 64
    assert ctl("await_online_nodes", "many")[0] == 64
    assert ctl("set_cluster_name", "")[0] == 65
    assert ctl("set_cluster_name", "x" * 256)[0] == 65


def test_one_node_refuses_what_it_cannot_do(ctl: Ctl, name: str) -> None:
    status, _, err = ctl("-q", "join_cluster", name)
    assert (status, err) == (70, f"Error:\ncannot cluster node with itself: {name}\n")
    running = (
        f"Error:\nWarren is still running on node {name}.\nPlease stop it first with: warrenctl"
    )
    for words in (
        ("join_cluster", "other@here"),
        ("reset",),
        ("force_reset",),
        ("forget_cluster_node", "--offline", name),
    ):
        status, _, err = ctl("-q", *words)
        assert status == 70, words
        assert err.startswith(running), words
    status, _, err = ctl("-q", "forget_cluster_node", "other@here")
    assert (status, err) == (70, "Error:\nother@here: the node selected is not in the cluster\n")
    status, _, err = ctl("-q", "forget_cluster_node", name)
    assert status == 70
    assert "must be stopped before it can be removed" in err


def test_links_are_blocked_through_the_control_socket_only(broker: Broker, ctl: Ctl) -> None:
    from warren.ctl.client import make_client
    from warren.ctl.errors import CtlError

    client = make_client(None, broker.http_url.replace("//", "//guest:guest@"), 10)
    assert client.get("/warren/links") == {"blocked": []}
    with pytest.raises(CtlError, match="control socket only"):
        client.want("PUT", "/warren/links/a@b", {"blocked": True})


def test_what_scripts_call_around_upgrades(ctl: Ctl, ok: Ok, name: str) -> None:
    assert name in ok("await_online_synchronized_mirror")
    assert ctl("-q", "is_booting") == (69, "", f"Error:\nnode {name} is not booting: it is up\n")
    assert "Nothing to do" in ok("update_cluster_nodes", "other@here")
    assert ok("-q", "change_cluster_node_type", "disc") == f"Node {name} is a disc node already\n"
    assert ctl("change_cluster_node_type", "ram")[0] == 70
    assert ctl("change_cluster_node_type", "tape")[0] == 64
    for words in (("force_boot",), ("rename_cluster_node", "a@b", "c@d"), ("eval", "node().")):
        status, out, err = ctl(*words)
        assert (status, out, err.startswith("Error:\n")) == (70, "", True)


def test_waiting_for_a_synchronised_mirror(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    from warren.ctl import client

    critical = [{"readable_name": "queue 'q' in vhost '/'"}]
    asked = []
    call = client.Client.call

    def answer(self: client.Client, method: str, path: str, *rest: Any) -> client.Answer:
        if path != "/health/checks/node-is-mirror-sync-critical":
            return call(self, method, path, *rest)
        asked.append(path)
        return client.Answer(503 if len(asked) < 3 else 200, {"queues": critical})

    monkeypatch.setattr(client.Client, "call", answer)
    monkeypatch.setattr("warren.ctl.upgrade.LOOK_AGAIN_S", 0.01)
    assert ctl("await_online_synchronized_mirror")[0] == 0
    assert len(asked) == 3
    del asked[:]
    status, _, err = ctl("-q", "-t", "0", "await_online_synchronized_mirror")
    assert (status, err.splitlines()[-1]) == (75, "queue 'q' in vhost '/'")


def test_long_work_tells_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from warren.ctl.mirrors import SyncProgress
    from warren.ctl.terminal import Progress

    monkeypatch.setattr("warren.ctl.terminal.LINE_S", 0.0)
    progress = SyncProgress(Progress("synchronised", 0))
    copying = {"node": "b", "sync": {"done": 40, "total": 100}}
    progress.show([{"node": "c", "sync": None}])
    progress.show([copying, {"node": "c", "sync": None}])
    assert capsys.readouterr().err.startswith("synchronised  40%  40 of 100")
    # One is done, the other begins: it does not go back.
    progress.show([{"node": "c", "sync": {"done": 0, "total": 100}}])
    assert capsys.readouterr().err.startswith("synchronised  50%  100 of 200")
    silent = SyncProgress(Progress("synchronised", 0, quiet=True))
    silent.show([copying])
    assert capsys.readouterr().err == ""


def test_names(ok: Ok) -> None:
    ok("set_cluster_name", "shop")
    assert ok("cluster_name") == "shop\n"
    assert "Cluster name: shop" in ok("cluster_status")


# -- stopping and starting the application ---------------------------------------------------------


@pytest.fixture
def own(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[Broker, Ctl]]:
    """A broker of the test's own."""
    from warren.ctl.main import run

    with Broker(http=True) as running:
        url = running.http_url.replace("http://", "http://guest:guest@")

        def call(*words: str) -> tuple[int, str, str]:
            capsys.readouterr()
            return run(["--url", url, "-q", *words]), *capsys.readouterr()

        yield running, call


def test_stop_app_and_start_app(own: tuple[Broker, Ctl]) -> None:
    broker, ctl = own
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare("kept", durable=True)
    assert ctl("stop_app") == (0, "", "")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(5)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.url))
    shown = json.loads(ctl("cluster_status", "--json")[1])
    assert (len(shown["disk_nodes"]), shown["running_nodes"]) == (1, [])
    assert ctl("await_startup", "-t", "0")[0] == 75
    assert ctl("stop_app")[0] == 0
    assert ctl("join_cluster", "other@here")[0] == 69
    # Whoever waits hears of it.
    later = threading.Timer(0.5, lambda: broker.call(lambda node: node.reopen()))
    later.start()
    assert ctl("await_startup", "-t", "20")[0] == 0
    later.join()
    assert ctl("start_app") == (0, "", "")
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare("kept", durable=True, passive=True)
    connection.close()


def test_reset_forgets_everything(own: tuple[Broker, Ctl]) -> None:
    broker, ctl = own
    for words in (("add_user", "joe", "pw"), ("add_vhost", "v"), ("pub", "q", "x"), ("stop_app",)):
        assert ctl(*words)[0] == 0
    assert ctl("reset") == (0, "", "")
    assert ctl("start_app")[0] == 0
    assert ctl("list_users")[1] == "user\ttags\nguest\t[administrator]\n"
    assert ctl("-s", "list_vhosts")[1] == "/\n"
    assert ctl("-s", "list_queues")[1] == ""
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()


def test_a_port_taken_meanwhile(own: tuple[Broker, Ctl]) -> None:
    import socket

    broker, ctl = own
    assert ctl("stop_app")[0] == 0
    with socket.create_server(("127.0.0.1", broker.port)):
        status, _, err = ctl("start_app")
        assert status == 69
        assert f"port {broker.port} on 127.0.0.1 is taken" in err
    assert ctl("start_app")[0] == 0
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()


def test_a_reset_outlives_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.add_user("joe", "pw")
        broker.add_vhost("v")

        def reset(node: Node) -> None:
            node.cut()
            node.reset_content()

        broker.call(reset)
        broker.restart()
        assert broker.call(lambda node: [user.name for user in node.directory.list_users()]) == [
            "guest"
        ]
        assert broker.call(lambda node: list(node.engine.vhosts)) == ["/"]
        pika.BlockingConnection(pika.URLParameters(broker.url)).close()
