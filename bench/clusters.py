"""The contestants of the cluster's loads: three nodes each, started as one, on 127.0.0.1.

Node and cluster are both brokers: what is asked of a cluster as a whole (its CPU time, what it has
written) is the sum over its nodes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import time
import urllib.request
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.brokers import (
    READY_TIMEOUT_S,
    Broker,
    BrokerError,
    RabbitMQ,
    StoredWarren,
    end_process,
    free_port,
    start_epmd,
)
from warren.testing.ports import reserve_ports

NODES = 3
#: An import of many bindings, or all of them as JSON.
CONTROL_TIMEOUT_S = 900.0
RABBITMQCTL = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
#: The policy of the loads of mirrored queues, and what it is for.
MIRRORS_POLICY, MIRRORS_PATTERN = "bench-mirrors", "^mirrors"
_ATOMS = re.compile(r"[\w.-]+@[\w.-]+")
_LEADS = re.compile(r"(\S+) leads the agreement in term (\d+)")


@dataclass(frozen=True, slots=True)
class Ring:
    """Where a mirrored queue is: names of nodes, the master among those in sync."""

    master: str
    in_sync: tuple[str, ...]


class Cluster(Broker):
    """Some nodes; where one alone is asked for, the first stands for all."""

    on_disk = True
    clustered = True
    #: Between two looks at a ring: a look of RabbitMQ's costs a second of a core.
    look_again_s = 0.02

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        #: How many nodes the next start makes.
        self.size = NODES
        self.base = base / f"{self.name}-cluster"
        self.nodes: Sequence[Broker] = ()
        #: Keeps the ports of nodes that are down, or not started yet, from everybody else.
        self.held_ports = contextlib.ExitStack()

    @abstractmethod
    def make_nodes(self) -> Sequence[Broker]:
        """Nodes that know of each other; called once for each life of the cluster."""

    def node_directory(self, number: int) -> Path:
        """Where a node has its files."""
        return self.base / f"node{number}"

    def command(self) -> list[str]:
        """The first node's."""
        return self.nodes[0].command()

    @property
    def running_nodes(self) -> list[Broker]:
        """Those whose process runs."""
        return [node for node in self.nodes if node.is_running]

    @property
    def pid(self) -> int:
        """The first node's."""
        return self.nodes[0].pid

    @property
    def pids(self) -> list[int]:
        """Of all nodes that are up."""
        running = self.running_nodes
        if not running:
            raise BrokerError(f"no node of {self.name} runs\n{self.log_tail()}")
        return [node.pid for node in running]

    @property
    def is_running(self) -> bool:
        """Whether all nodes are."""
        return bool(self.nodes) and len(self.running_nodes) == len(self.nodes)

    @property
    def endpoint(self) -> str:
        """The first node's."""
        return self.nodes[0].endpoint

    @property
    def endpoints(self) -> str:
        """Of all nodes that are up."""
        return ",".join(node.endpoint for node in self.running_nodes)

    def start(self) -> None:
        """A fresh cluster of all nodes.

        Raises:
            BrokerError: a node ended, or was not ready in time.
        """
        self.start_some(self.size)

    def start_some(self, count: int) -> None:
        """A fresh cluster of which only the first nodes are started.

        Raises:
            BrokerError: a node ended, or was not ready in time.
        """
        shutil.rmtree(self.base, ignore_errors=True)
        self.base.mkdir(parents=True)
        self.nodes = self.make_nodes()
        for node in self.nodes:
            node.base.mkdir(parents=True)
        for node in self.nodes[:count]:
            node.resume()
        for node in self.nodes[:count]:
            node.await_port()
        self.await_together()

    @abstractmethod
    def await_together(self) -> None:
        """Returns once the nodes that run see each other."""

    def halt(self, kill: bool) -> float:
        """Ends all nodes."""
        return sum(node.halt(kill) for node in self.nodes)

    def resume(self) -> None:
        """Starts all nodes on the data that is there."""
        for node in self.nodes:
            node.resume()

    def stop(self) -> None:
        """Ends the nodes; their data goes with them, so nothing has to be stopped in good order."""
        self.halt(kill=True)
        shutil.rmtree(self.base, ignore_errors=True)
        self.nodes = ()
        self.held_ports.close()

    def log_tail(self) -> str:
        """The last words of all nodes."""
        return "\n".join(node.log_tail() for node in self.nodes)

    @abstractmethod
    def leader(self) -> Broker | None:
        """The node that the others agree through; None where there is no such node."""

    @abstractmethod
    def import_definitions(self, document: dict[str, Any]) -> None:
        """Makes all that a definitions file has, through the first node.

        Raises:
            BrokerError: it was refused.
        """

    @abstractmethod
    def count_bindings(self, node: Broker, exchange: str) -> int:
        """How many bindings a node knows of an exchange."""

    @property
    def node_names(self) -> list[str]:
        """Of all nodes, those that are down included."""
        return [node.node_name for node in self.nodes]

    def named(self, name: str) -> Broker:
        """The node with that name."""
        return self.nodes[self.node_names.index(name)]

    @abstractmethod
    def mirror(self, definition: dict[str, Any]) -> None:
        """Sets the policy of all queues of the mirrors' loads.

        Raises:
            BrokerError: it was refused.
        """

    @abstractmethod
    def ring(self, queue: str) -> Ring:
        """Where a queue is, as the first node that runs sees it."""

    @abstractmethod
    def count_in_sync(self, prefix: str, replicas: int) -> int:
        """How many queues with names that begin so have so many replicas in sync, or more."""


class WarrenNode(StoredWarren):
    """One of ours; its settings say who the others are."""

    def __init__(self, base: Path, node_name: str, port: int, secret: str) -> None:
        super().__init__(base)
        self.base, self.node_name, self.port, self.secret = base, node_name, port, secret
        self.management_port = 0

    def environment(self) -> dict[str, str]:
        """The secret goes this way, not through a file."""
        return {
            **super().environment(),
            "WARREN_NODENAME": self.node_name,
            "WARREN_RUNTIME_DIR": str(self.base.parent),
            "WARREN_ERLANG_COOKIE": self.secret,
        }


def warren_settings(names: Sequence[str], links: Sequence[int], own: int) -> dict[str, str]:
    """The lines of rabbitmq.conf by which one of the nodes finds the others."""
    settings = {"cluster.listen": f"127.0.0.1:{links[own]}"}
    for number, (name, link) in enumerate(zip(names, links, strict=True), start=1):
        settings[f"cluster_formation.classic_config.nodes.{number}"] = name
        settings[f"cluster.nodes.{name}"] = f"127.0.0.1:{link}"
    return settings


def last_leader(logs: Iterable[str]) -> str | None:
    """The name of the leader of the latest term that a log tells of."""
    terms = {int(term): name for log in logs for name, term in _LEADS.findall(log)}
    return terms[max(terms)] if terms else None


class WarrenCluster(Cluster):
    """Ours: `warren serve` with a data directory for each node."""

    name = "warren"

    def make_nodes(self) -> Sequence[WarrenNode]:
        """Four ports each: clients, links, management, metrics."""
        names = [f"bench{number}@localhost" for number in range(1, self.size + 1)]
        ports = iter(reserve_ports(4 * self.size, self.held_ports))
        clients, links = [[next(ports) for _ in names] for _ in range(2)]
        secret = secrets.token_hex(16)
        nodes = []
        for i, name in enumerate(names):
            node = WarrenNode(self.node_directory(i + 1), name, clients[i], secret)
            node.management_port = next(ports)
            node.settings = {
                "management.tcp.ip": "127.0.0.1",
                "management.tcp.port": str(node.management_port),
                "prometheus.tcp.ip": "127.0.0.1",
                "prometheus.tcp.port": str(next(ports)),
                **warren_settings(names, links, i),
            }
            nodes.append(node)
        return nodes

    def await_together(self) -> None:
        """A node that lets clients in has been seen by a majority; all must know of a leader."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self.leader() is None:
            if time.monotonic() > deadline:
                raise BrokerError(f"no node leads\n{self.log_tail()}")
            time.sleep(0.05)

    def leader(self) -> Broker | None:
        """Told by the logs."""
        texts = [(node.base / "output.log") for node in self.nodes]
        leader = last_leader(text.read_text(errors="replace") for text in texts if text.exists())
        for node in self.running_nodes:
            assert isinstance(node, WarrenNode)
            if node.node_name == leader:
                return node
        return None

    def import_definitions(self, document: dict[str, Any]) -> None:
        """Over HTTP."""
        self._ask(self.nodes[0], "/api/definitions", json.dumps(document).encode())

    def count_bindings(self, node: Broker, exchange: str) -> int:
        """Over HTTP."""
        return len(self._ask(node, f"/api/exchanges/%2F/{exchange}/bindings/source"))

    def mirror(self, definition: dict[str, Any]) -> None:
        """Over HTTP."""
        policy = {"pattern": MIRRORS_PATTERN, "definition": definition, "apply-to": "queues"}
        path, body = f"/api/policies/%2F/{MIRRORS_POLICY}", json.dumps(policy).encode()
        self._ask(self.running_nodes[0], path, body, "PUT")

    def ring(self, queue: str) -> Ring:
        """Over HTTP."""
        shown = self._ask(self.running_nodes[0], f"/api/queues/%2F/{queue}/mirrors")
        rows = [row for row in shown["replicas"] if row["online"] and row["synchronised"]]
        return Ring(shown["master"] or "", tuple(row["node"] for row in rows))

    def count_in_sync(self, prefix: str, replicas: int) -> int:
        """Over HTTP; the rows name the mirrors only."""
        rows = self._ask(self.running_nodes[0], "/api/queues/%2F")
        counts = [
            1 + len(row.get("synchronised_mirror_nodes", ()))
            for row in rows
            if row["name"].startswith(prefix)
        ]
        return sum(count >= replicas for count in counts)

    def rebalance(self) -> None:
        """Have the masters spread over the nodes."""
        self._ask(self.running_nodes[0], "/api/rebalance/queues", b"{}", "POST")

    def rebalancing(self) -> dict[str, Any]:
        """How far that is."""
        told: dict[str, Any] = self._ask(self.running_nodes[0], "/api/rebalance/queues")
        return told

    def _ask(
        self, node: Broker, path: str, body: bytes | None = None, method: str | None = None
    ) -> Any:
        assert isinstance(node, WarrenNode)
        url = f"http://127.0.0.1:{node.management_port}{path}"
        login = base64.b64encode(b"guest:guest").decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=CONTROL_TIMEOUT_S) as answer:
                text = answer.read()
        except OSError as error:
            raise BrokerError(f"{path}: {error}") from error
        return json.loads(text) if text else None


class RabbitNode(RabbitMQ):
    """One of RabbitMQ's nodes; name daemon, home and cookie are the cluster's."""

    def __init__(self, base: Path, node_name: str, port: int, epmd_port: int) -> None:
        super().__init__(base)
        self.base, self.node_name, self.port = base, node_name, port
        self.epmd_port = epmd_port

    def environment(self) -> dict[str, str]:
        """The home holds the cookie."""
        home = str(self.base.parent)
        return {**super().environment(), "HOME": home, "RABBITMQ_NODENAME": self.node_name}


def rabbit_settings(names: Sequence[str]) -> dict[str, str]:
    """The lines of rabbitmq.conf by which the nodes find each other."""
    settings = {"cluster_formation.peer_discovery_backend": "classic_config"}
    for number, name in enumerate(names, start=1):
        settings[f"cluster_formation.classic_config.nodes.{number}"] = name
    return settings


class RabbitCluster(Cluster):
    """Debian's rabbitmq-server, three times."""

    name = "rabbitmq"
    look_again_s = 0.5

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.epmd: subprocess.Popen[bytes] | None = None

    def make_nodes(self) -> Sequence[RabbitNode]:
        """With one name daemon for all."""
        cookie = self.base / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        names = [f"bench{number}@localhost" for number in range(1, self.size + 1)]
        epmd_port = free_port()
        self.epmd = start_epmd(epmd_port)
        nodes = []
        ports = reserve_ports(self.size, self.held_ports)
        for number, (name, port) in enumerate(zip(names, ports, strict=True), start=1):
            node = RabbitNode(self.node_directory(number), name, port, epmd_port)
            node.settings = rabbit_settings(names)
            nodes.append(node)
        return nodes

    def await_together(self) -> None:
        """Each node is asked: the first may not know yet whom the last has met."""
        count = str(len(self.running_nodes))
        for node in self.running_nodes:
            self._ctl(node, "await_online_nodes", count, "--timeout", f"{READY_TIMEOUT_S:.0f}")

    def stop(self) -> None:
        """The name daemon goes last."""
        super().stop()
        if self.epmd is not None:
            end_process(self.epmd)
            self.epmd = None

    def leader(self) -> None:
        """All are equal."""

    def import_definitions(self, document: dict[str, Any]) -> None:
        """Through its tool."""
        path = self.base / "definitions.json"
        path.write_text(json.dumps(document))
        self._ctl(self.nodes[0], "import_definitions", str(path))

    def count_bindings(self, node: Broker, exchange: str) -> int:
        """Out of the node's own copy of the table of routes."""
        name = f'{{resource, <<"/">>, exchange, <<"{exchange}">>}}'
        pattern = f"{{route, {{binding, {name}, '_', '_', '_'}}, '_'}}"
        count = f"ets:select_count(rabbit_route, [{{{pattern}, [], [true]}}])."
        return int(self._ctl(node, "eval", count))

    def mirror(self, definition: dict[str, Any]) -> None:
        """Through its tool."""
        words = [MIRRORS_POLICY, MIRRORS_PATTERN, json.dumps(definition), "--apply-to", "queues"]
        self._ctl(self.running_nodes[0], "set_policy", *words)

    def ring(self, queue: str) -> Ring:
        """Out of the table of queues."""
        found = f'rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>))'
        alive = "lists:member(node(P), rabbit_nodes:all_running())"
        pids = "[amqqueue:get_pid(Q) | amqqueue:get_sync_slave_pids(Q)]"
        code = f"{{ok, Q}} = {found}, [node(P) || P <- {pids}, {alive}]."
        names = _ATOMS.findall(self._ctl(self.running_nodes[0], "eval", code))
        return Ring(names[0] if names else "", tuple(names))

    def count_in_sync(self, prefix: str, replicas: int) -> int:
        """Out of the table of queues."""
        code = (
            "Has = fun(Q) -> {_, _, _, Name} = amqqueue:get_name(Q), "
            f'string:prefix(Name, <<"{prefix}">>) =/= nomatch '
            f"andalso length(amqqueue:get_sync_slave_pids(Q)) + 1 >= {replicas} end, "
            "length(lists:filter(Has, rabbit_amqqueue:list()))."
        )
        return int(self._ctl(self.running_nodes[0], "eval", code))

    def _ctl(self, node: Broker, *words: str) -> str:
        assert isinstance(node, RabbitNode)
        environment = {**os.environ, **node.environment()}
        done = subprocess.run(
            [str(RABBITMQCTL), "-n", node.node_name, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=CONTROL_TIMEOUT_S,
        )
        if done.returncode:
            raise BrokerError(f"rabbitmqctl {words[0]}: {done.stderr.strip() or done.stdout}")
        return done.stdout.strip()
